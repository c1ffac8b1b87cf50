"""What a program finds of the making of its sandbox: a fork of a zygote, delivered into a slot. Nothing must be left of the socket to the launcher,
the waiting room, the zygote and earlier or other tenants."""
import gc
import io
import socket
import stat

for fd in range(3, 256):
    try:
        os.fstat(fd)
        say(f"descriptor {fd} is open", True, os.readlink(f"/proc/self/fd/{fd}"))
    except OSError as e:
        if fd < 9:
            say(f"descriptor {fd}", e.errno != errno.EBADF, e)
for fd in (3, 4, 5):
    for name, call in {
        "write": lambda: os.write(fd, b"ready"), "read": lambda: os.read(fd, 1), "openat": lambda: os.open("sitecustomize.py", 0, dir_fd=fd),
        "sendmsg": lambda: socket.socket(fileno=os.dup(fd)).send(b"fork"), "reopen": lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR),
        "fchdir": lambda: os.fchdir(fd),
    }.items():
        attempt(f"{name} on {fd}", call, "EBADF", "ENOENT")
for fd in (0, 1, 2):
    mode = os.fstat(fd).st_mode
    say(f"stream {fd} is no socket", stat.S_ISSOCK(mode), oct(mode))

# Objects that were there before this program.
gc.unfreeze()
alive = [s for s in gc.get_objects() if isinstance(s, socket.socket.__base__) and s.fileno() != -1]
say("open sockets among the objects", alive, alive)
files = [f for f in gc.get_objects() if isinstance(f, (io.FileIO, io.BufferedReader, io.BufferedWriter, io.TextIOWrapper)) and f.fileno() > 2]
say("open files among the objects", files, files)

say("parent", os.getppid() != 1, os.getppid())
say("processes", sorted(p for p in os.listdir("/proc") if p.isdigit()) != ["1", str(os.getpid())])
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
say("pid namespaces seen", len(status["NSpid"].split()) != 1, status["NSpid"])
for key, value in {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0}.items():
    say(key, int(status[key], 16) != value, status[key])
say("filter", status["Seccomp"].strip() != "2" or status["NoNewPrivs"].strip() != "1")
say("groups", status["Groups"].split(), status["Groups"])
say("user map", open("/proc/self/uid_map").read().split()[2:3] == ["4294967295"], open("/proc/self/uid_map").read())
for kind in ("user", "mnt", "net", "ipc", "uts", "pid", "cgroup"):
    attempt(f"namespace {kind} of PID 1", lambda: os.readlink(f"/proc/1/ns/{kind}"), "EACCES", "EPERM")
    fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    refused(f"its own {kind} namespace again", syscall(308, fd, 0), "EPERM", "EINVAL")
    if kind == "user":
        # NS_GET_PARENT: the zygote's namespace.
        refused("the parent of the user namespace", syscall(16, fd, 0xB702, 0), "EPERM")
    os.close(fd)
refused("a user namespace", syscall(272, 0x10000000), "EPERM", "ENOSPC")
refused("ptrace of PID 1", syscall(101, 16, 1, 0, 0), "EPERM", "ENOSYS")
refused("dumpable off and on", syscall(101, 0, 0, 0, 0), "EPERM", "ENOSYS")
for pid in (*range(2, 40), 300, 1000, 32768):
    if pid != os.getpid():
        try:
            os.kill(pid, 0)
            say(f"process {pid} is there", True)
        except OSError as e:
            if e.errno != errno.ESRCH:
                say(f"process {pid}", True, e)
say("the waiting room is mounted", "fd/4" in open("/proc/self/mountinfo").read() or "sitecustomize" in open("/proc/self/mountinfo").read())
say("abstract sockets", [l for l in open("/proc/net/unix").read().splitlines()[1:] if "@" in l])
say("PYTHONPATH", "PYTHONPATH" in os.environ or any("/fd/" in p for p in sys.path))
# The block that the process was started with: its place is the only word of the waiting, and says nothing of the host (ARCHITECTURE.md).
block = open("/proc/self/environ", "rb").read().split(b"\0")
odd = [v for v in block if b"/var/lib/creel" in v or b"run_" in v or (b"/fd/" in v and not v.startswith(b"PYTHONPATH=/proc/self/fd/4"))]
say("the environment of the process", odd, odd)
for span in open("/proc/self/maps").read().splitlines():
    place = span.split(maxsplit=5)
    if place[-1] in ("[heap]", "[stack]"):
        start, end = (int(x, 16) for x in place[0].split("-"))
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            text = memory.read(end - start)
        needle = b"/var/lib/" + b"creel/runs"
        say(f"paths of the host in {place[-1]}", needle in text)
attempt("descriptors of PID 1", lambda: os.listdir("/proc/1/fd"), "EACCES", "EPERM")
child = os.fork()
if child == 0:
    signal.pause()
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
os.waitpid(child, 0)
say("kill(-1) and this goes on", False)
