import sys
import threading


def leave():
    sys.exit(7)


def fail():
    raise ValueError("in a thread")


for target in (leave, fail):
    t = threading.Thread(target=target, name=target.__name__)
    t.start()
    t.join()
print("the main thread goes on")
