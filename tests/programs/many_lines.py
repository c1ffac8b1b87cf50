import sys

for n in range(2000):
    print("out", n)
    if n % 100 == 0:
        print("err", n, file=sys.stderr)
sys.stdout.write("no newline at the end")
