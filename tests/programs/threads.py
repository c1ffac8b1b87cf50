import queue
import threading

results = queue.Queue()
barrier = threading.Barrier(8)
local = threading.local()
lock = threading.RLock()
total = 0


def work(n):
    global total
    barrier.wait()
    local.n = n
    with lock:
        for _ in range(1000):
            total += 1
    results.put(local.n * n)


threads = [threading.Thread(target=work, args=(n,), name=f"t{n}") for n in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(total, sorted(results.queue), threading.active_count())
timer = threading.Timer(0.01, print, ["timer"])
timer.start()
timer.join()
condition = threading.Condition()
with condition:
    print(condition.wait_for(lambda: False, timeout=0.05))
threading.stack_size(256 * 1024)
t = threading.Thread(target=print, args=("small stack",))
t.start()
t.join()
