import os
import select
import sys

print(repr(sys.stdin.read()), sys.stdin.isatty(), os.read(0, 10))
print([f for f in select.select([0], [], [], 0)[0]])
for line in sys.stdin:
    print("never", line)
try:
    input("prompt> ")
except EOFError as e:
    print("\nEOF:", e)
input()
