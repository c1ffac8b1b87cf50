import multiprocessing as mp
from multiprocessing import shared_memory


def fill(shared, numbers, name):
    shared["key"] = "value"
    numbers.append(3)
    block = shared_memory.SharedMemory(name=name)
    block.buf[:5] = b"hello"
    block.close()


if __name__ == "__main__":
    with mp.Manager() as manager:
        shared, numbers = manager.dict(), manager.list([1, 2])
        block = shared_memory.SharedMemory(create=True, size=1 << 20)
        p = mp.Process(target=fill, args=(shared, numbers, block.name))
        p.start()
        p.join()
        print(dict(shared), list(numbers), bytes(block.buf[:5]), p.exitcode)
        block.close()
        block.unlink()
    fail = mp.Process(target=int, args=("no number",))
    fail.start()
    fail.join()
    print("exit code", fail.exitcode)
