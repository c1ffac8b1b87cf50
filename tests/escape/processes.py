"""Signals and memory of others (classes 3, 6, 30). Arguments: process ids of the host."""
for pid in [int(a) for a in sys.argv[1:]]:
    attempt(f"signal host process {pid}", lambda: os.kill(pid, 9), "ESRCH", "EPERM")
    attempt(f"pidfd of host process {pid}", lambda: os.pidfd_open(pid))
    say(f"/proc/{pid}", os.path.exists(f"/proc/{pid}"))
for p in (1, os.getppid()):
    refused(f"ptrace {p}", syscall(101, 16, p, 0, 0), "EPERM", "ENOSYS")
    data = ctypes.create_string_buffer(8)
    vec = (ctypes.c_uint64 * 2)(ctypes.addressof(data), 8)
    refused(f"process_vm_readv {p}", syscall(310, p, ctypes.byref(vec), 1, ctypes.byref(vec), 1, 0), "EPERM", "ENOSYS")
    for file in ("mem", "environ", "maps", "auxv", "syscall", "stack", "pagemap"):
        try:
            say(f"read /proc/{p}/{file}", open(f"/proc/{p}/{file}", "rb").read(1))
        except OSError as e:
            say(f"read /proc/{p}/{file}", False, e)
    for link in ("root", "cwd", "exe", "ns/user", "ns/mnt", "ns/net"):
        attempt(f"readlink /proc/{p}/{link}", lambda: os.readlink(f"/proc/{p}/{link}"))
    attempt(f"fds of {p}", lambda: os.listdir(f"/proc/{p}/fd"))

# A signal to PID 1 changes nothing: it goes on reaping, and the run ends by this program's exit.
for number in list(range(1, 32)):
    try:
        os.kill(1, number)
    except OSError:
        pass
say("init lives", not os.path.exists("/proc/1/stat"))

# A child with another pid namespace's number: only own processes are reached by kill(-1).
child = os.fork()
if child == 0:
    signal.pause()
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
os.waitpid(child, 0)
say("kill(-1) reached the child and this goes on", False)
