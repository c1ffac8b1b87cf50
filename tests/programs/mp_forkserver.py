import multiprocessing as mp


def square(n):
    return n * n


def child(queue, event, value, array, pipe):
    event.wait(60)
    with value.get_lock():
        value.value += 1
    array[0] = 42
    pipe.send({"汉": [1, 2]})
    queue.put("from the child")


if __name__ == "__main__":
    ctx = mp.get_context("forkserver")
    with ctx.Pool(3) as pool:
        print(pool.map(square, range(10)), pool.apply_async(square, (9,)).get(60))
    queue, event, here, there = ctx.Queue(), ctx.Event(), *ctx.Pipe()
    value, array = ctx.Value("i", 5), ctx.Array("i", [1, 2, 3])
    p = ctx.Process(target=child, args=(queue, event, value, array, there))
    p.start()
    event.set()
    print(queue.get(timeout=60), here.recv(), value.value, list(array))
    p.join()
    print(p.exitcode)
    lock = ctx.Lock()
    with lock, ctx.Semaphore(2), ctx.Condition():
        print("locked")
