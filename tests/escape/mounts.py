"""The mount family (class 16), chroot, and what a changed mount would give."""
MS_REMOUNT, MS_BIND, MS_RDONLY = 32, 4096, 1


def mount(source, target, kind, flags=0):
    return syscall(165, source, target, kind, flags, 0)


os.makedirs("/tmp/m", exist_ok=True)
for kind in (b"tmpfs", b"proc", b"sysfs", b"cgroup", b"cgroup2", b"overlay", b"devpts", b"mqueue", b"debugfs", b"ext4", b"fuse"):
    refused(f"mount {kind.decode()}", mount(b"none", b"/tmp/m", kind))
for target in (b"/", b"/usr", b"/inputs", b"/etc", b"/dev", b"/proc", b"/work"):
    refused(f"remount {target.decode()} rw", mount(b"none", target, b"none", MS_REMOUNT | MS_BIND))
    refused(f"umount {target.decode()}", syscall(166, target, 2))
refused("bind / on /tmp/m", mount(b"/", b"/tmp/m", b"none", MS_BIND))
refused("make shared", mount(b"none", b"/", b"none", 1 << 20))
refused("move mount", mount(b"/tmp", b"/tmp/m", b"none", 8192))
refused("pivot_root", syscall(155, b"/tmp", b"/tmp/m"))
refused("chroot", syscall(161, b"/tmp"))
refused("fsopen", syscall(430, b"tmpfs", 0))
refused("fspick", syscall(433, -100, b"/", 0))
refused("open_tree", syscall(428, -100, b"/", 1))
refused("open_tree plain", syscall(428, -100, b"/", 0))
refused("move_mount", syscall(429, -100, b"/tmp", -100, b"/tmp/m", 0))
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
refused("mount_setattr", syscall(442, -100, b"/", 0x8000, ctypes.byref(attributes), 32))
refused("statmount", syscall(457, 0, 0, 0, 0), "ENOSYS", "EPERM")
refused("open_tree_attr", syscall(467, -100, b"/", 1, ctypes.byref(attributes), 32), "ENOSYS", "EPERM")
refused("swapon", syscall(167, b"/tmp/m", 0))
refused("quotactl", syscall(179, 0, 0, 0, 0))

for path in ("/usr/bin/probe", "/etc/probe", "/probe", "/inputs/probe", "/dev/probe", "/usr/lib/probe"):
    attempt(f"create {path}", lambda: open(path, "w"))
attempt("chmod of the root", lambda: os.chmod("/", 0o777))
attempt("write python", lambda: open(os.path.realpath(sys.executable), "r+b"))
try:
    os.chdir("/")
    for _ in range(50):
        os.chdir("..")
    say("dot dot stays", os.listdir("/") != os.listdir("."))
except OSError as e:
    say("dot dot stays", False, e)
say("no old root", any(os.path.exists(p) for p in ("/oldroot", "/.old", "/old_root", "/put_old", "/mnt/root")))
