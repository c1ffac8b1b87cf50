import json
import sys


def down(n):
    return down(n + 1)


try:
    down(0)
except RecursionError as e:
    print(e)
sys.setrecursionlimit(20000)


def depth(n):
    return n if n == 15000 else depth(n + 1)


print(depth(0))
deep = []
for _ in range(5000):
    deep = [deep]
print(len(json.dumps(deep)))
sys.setrecursionlimit(200)
down(0)
