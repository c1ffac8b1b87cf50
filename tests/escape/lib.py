"""Put before each probe: raw system calls, and one JSON line for each thing tried."""
import ctypes
import errno
import json
import os
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def syscall(number, *args):
    """Returns (result, errno name or None). Integers go as 64-bit words."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *words)
    return result, errno.errorcode.get(ctypes.get_errno()) if result == -1 else None


def say(name, escaped, detail=""):
    print(json.dumps({"name": name, "escaped": bool(escaped), "detail": str(detail)[:300]}), flush=True)


def refused(name, outcome, *allowed):
    """The call must have failed, with one of the given errors if any are given."""
    result, error = outcome
    say(name, result != -1 or (allowed and error not in allowed), f"{result} {error}")


def attempt(name, call, *allowed):
    """The Python call must raise OSError, with one of the given errors if any are given."""
    try:
        say(name, True, call())
    except OSError as e:
        error = errno.errorcode.get(e.errno, e.errno)
        say(name, allowed and error not in allowed, error)


def in_child(body):
    """Runs body in a forked child; returns what it returned (0..255), or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(int(body() or 0))
        except BaseException:
            os._exit(200)
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
