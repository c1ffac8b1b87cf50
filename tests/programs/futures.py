from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
import math


def fail(n):
    raise ValueError(f"no {n}")


if __name__ == "__main__":
    with ProcessPoolExecutor(3) as pool:
        print(list(pool.map(math.factorial, range(8))))
        try:
            pool.submit(fail, 3).result()
        except ValueError as e:
            print("caught", e)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(pow, 2, n) for n in range(20)]
        print(sum(j.result() for j in as_completed(jobs)), len(wait(jobs).done))
