"""The stop-watch: a small process that starts one command at a time and times it.

Every contestant is timed by this same code. There is one worker in the host's mount namespace and, on a hybrid cgroup host, one more
in a private copy of it (for crun, which refuses hybrid hosts), so that no `unshare` or `mount` is inside a measurement.
"""

import ctypes
import gc
import os
import pickle
import signal
import struct
import time

CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x4000 | 0x40000
PR_SET_PDEATHSIG = 1
HANG_SECONDS = 20


class Worker:
    """A forked child that answers requests over two pipes. `unmount`: paths to unmount in a mount namespace of its own."""

    def __init__(self, unmount=()):
        request_read, self.request = os.pipe()
        self.reply, reply_write = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.request)
                os.close(self.reply)
                _die_with(parent)
                if unmount:
                    leave_mounts(unmount)
                _send(reply_write, None)
                _serve(request_read, reply_write)
                code = 0
            except Exception as error:
                _send(reply_write, error)
            finally:
                os._exit(code)
        os.close(request_read)
        os.close(reply_write)
        trouble = _receive(self.reply)
        if trouble is not None:
            os.waitpid(self.pid, 0)
            raise trouble

    def run(self, argv, stdout=None, stderr=None):
        """Runs `argv` once: {"ns", "code", "cpu_us"}. Output is thrown away, or goes to files of the names given."""
        _send(self.request, (argv, stdout, stderr))
        answer = _receive(self.reply)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        # Said, not just closed: workers started later hold copies of this pipe.
        try:
            _send(self.request, None)
        except BrokenPipeError:
            pass
        os.close(self.request)
        os.close(self.reply)
        os.waitpid(self.pid, 0)


def leave_mounts(paths):
    """Moves the calling process into a mount namespace of its own, cut off from the host's, and unmounts `paths` there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result, what):
        if result != 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    before = os.readlink("/proc/self/ns/mnt")
    check(libc.unshare(CLONE_NEWNS), "unshare")
    # Nothing below may run in the host's namespace.
    if os.readlink("/proc/self/ns/mnt") == before:
        raise RuntimeError("still in the host's mount namespace")
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC_PRIVATE), None), "make mounts private")
    for path in paths:
        check(libc.umount2(path.encode(), 0), f"unmount {path}")


# Not /dev/null: crun and runc give the streams that they start with to the container's user, and the host's device would be his.
EMPTY, SINK = os.memfd_create("empty"), os.memfd_create("sink")


def start(argv, env, stdin=EMPTY, stdout=None, stderr=None):
    """posix_spawn with the streams at files (or descriptors)."""
    os.ftruncate(SINK, 0)
    actions = []
    for number, target in enumerate((stdin, stdout, stderr)):
        target = SINK if target is None else target
        if isinstance(target, int):
            actions.append((os.POSIX_SPAWN_DUP2, target, number))
        else:
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            actions.append((os.POSIX_SPAWN_OPEN, number, target, flags, 0o600))
    return os.posix_spawn(argv[0], argv, env, file_actions=actions)


ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}


def time_once(argv, stdout, stderr):
    hung = []
    pid = 0

    def kill(*_):
        hung.append(True)
        if pid:
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.alarm(HANG_SECONDS)
    begun = time.perf_counter_ns()
    pid = start(argv, ENVIRONMENT, stdout=stdout, stderr=stderr)
    _, status, usage = os.wait4(pid, 0)
    elapsed = time.perf_counter_ns() - begun
    signal.alarm(0)
    code = None if hung else os.waitstatus_to_exitcode(status)
    return {"ns": elapsed, "code": code, "cpu_us": round((usage.ru_utime + usage.ru_stime) * 1e6)}


def _serve(requests, replies):
    gc.disable()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while (request := _receive(requests)) is not None:
        try:
            _send(replies, time_once(*request))
        except OSError as error:
            _send(replies, error)


def _die_with(parent):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _send(fd, message):
    data = pickle.dumps(message)
    data = struct.pack("I", len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _receive(fd):
    """The next message; None when the other side is gone."""
    head = _read(fd, 4)
    return pickle.loads(_read(fd, struct.unpack("I", head)[0])) if head else None


def _read(fd, count):
    data = b""
    while len(data) < count:
        part = os.read(fd, count - len(data))
        if not part:
            return b""
        data += part
    return data
