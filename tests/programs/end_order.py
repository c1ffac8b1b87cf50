import atexit
import ctypes
import sys
import threading
import time
import weakref

libc = ctypes.CDLL(None)


class Loud:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("deleted", self.name)


def late():
    time.sleep(0.2)
    print("a thread that is waited for", threading.main_thread().is_alive())


first = Loud("global first")
_private = Loud("private global")
cycle = [Loud("in a cycle")]
cycle.append(cycle)
holder = type("Holder", (), {})()
holder.self, holder.loud = holder, Loud("in an object cycle")
sys.modules["json"] = Loud("instead of a module") if "json" in sys.modules else None
weakref.finalize(holder, print, "finalizer of the holder")
atexit.register(print, "atexit one")
atexit.register(lambda: [t := threading.Thread(target=print, args=("thread from atexit",)), t.start(), t.join()])


@atexit.register
def from_atexit():
    print("atexit registers another")
    atexit.register(print, "registered at exit")


@atexit.register
def fails():
    raise ValueError("in atexit")


threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
import builtins

builtins.kept = Loud("in builtins")
sys.kept = Loud("in sys")
libc.printf(b"C stdio, not flushed\n")
print("end of the program")
