"""New namespaces (class 18), clone3 (19), legacy fork paths (20): nothing new comes into being, threads do."""
import threading

NEW = {"NS": 0x20000, "CGROUP": 0x2000000, "UTS": 0x4000000, "IPC": 0x8000000, "USER": 0x10000000,
       "PID": 0x20000000, "NET": 0x40000000, "TIME": 0x80}
for name, bit in NEW.items():
    refused(f"unshare NEW{name}", syscall(272, bit), "EPERM", "ENOSYS", "EINVAL")
    if name != "TIME":  # Not a flag of clone: the low byte is the signal.
        for high in (0, 1 << 40):
            def call():
                result, error = syscall(56, bit | signal.SIGCHLD | high, 0, 0, 0, 0)
                if result == 0:
                    os._exit(0)
                return 1 if result > 0 else 0
            say(f"clone NEW{name} high bits {high:#x}", in_child(call) != 0)
refused("unshare NEWUSER|NEWNS with high bits", syscall(272, 0x10020000 | (1 << 40)))
refused("unshare everything", syscall(272, 0x7E020080))

args = (ctypes.c_uint64 * 11)()
args[0] = NEW["USER"]
args[4] = signal.SIGCHLD


def clone3():
    outcome = syscall(435, ctypes.byref(args), 88)
    if outcome[0] == 0:  # It worked, and this is the child: the parent tells.
        os._exit(0)
    return outcome


refused("clone3 NEWUSER", clone3(), "ENOSYS")
args[0] = 0
refused("clone3 plain answers ENOSYS, so that libc falls back", clone3(), "ENOSYS")
done = []
thread = threading.Thread(target=lambda: done.append(1))
thread.start()
thread.join()
say("threads work all the same", done != [1])

for kind in os.listdir("/proc/self/ns"):
    try:
        fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    except OSError as e:
        say(f"setns {kind}", False, e)
        continue
    refused(f"setns {kind}", syscall(308, fd, 0), "EPERM", "ENOSYS")
    os.close(fd)
refused("setns by pidfd", syscall(308, os.pidfd_open(os.getpid()) if hasattr(os, "pidfd_open") else -1, 0x10000000))
for file in ("uid_map", "gid_map", "setgroups"):
    attempt(f"write {file}", lambda: os.write(os.open(f"/proc/self/{file}", os.O_WRONLY), b"0 0 1\n"))
for call, number in (("setuid", 105), ("setgid", 106), ("setfsuid", 122)):
    syscall(number, 0)
say("still 10001", os.getresuid() != (10001,) * 3 or os.getresgid() != (10001,) * 3, os.getresuid())
refused("setgroups", syscall(116, 1, ctypes.byref(ctypes.c_uint32(0))))
