"""Files that would be a way out: /proc and /sys (33, 34), devices (36), set-id bits (37), the runtime's binary (1)."""
import glob
import stat

WRITES = """kernel/core_pattern kernel/modprobe kernel/hotplug kernel/poweroff_cmd kernel/sysrq kernel/panic kernel/hostname
kernel/domainname kernel/ns_last_pid kernel/shmmax kernel/shm_rmid_forced kernel/randomize_va_space kernel/yama/ptrace_scope
kernel/unprivileged_bpf_disabled vm/drop_caches vm/overcommit_memory vm/mmap_min_addr fs/binfmt_misc/register fs/suid_dumpable
fs/protected_symlinks fs/pipe-max-size net/ipv4/ip_forward net/core/somaxconn user/max_user_namespaces""".split()
REFUSALS = ("EROFS", "EACCES", "ENOENT", "EPERM")
for path in ["/proc/sys/" + p for p in WRITES] + ["/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/mtrr",
        "/proc/self/uid_map", "/proc/self/loginuid", "/proc/self/attr/current", "/sys/kernel/uevent_helper",
        "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent", "/sys/power/state"]:
    attempt(f"open {path} for writing", lambda: os.open(path, os.O_WRONLY), *REFUSALS)

HIDDEN = """kcore kmsg kallsyms keys timer_list sched_debug config.gz iomem ioports kpagecount kpageflags kpagecgroup vmallocinfo
slabinfo pagetypeinfo latency_stats interrupts acpi scsi asound""".split()
for name in HIDDEN:
    path = "/proc/" + name
    try:
        shown = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(4096)
        # Addresses shown as zeros tell nothing.
        lines = [] if isinstance(shown, list) else shown.splitlines()
        useless = lines and not any(line.split()[0].strip(b"0-") for line in lines if line.split())
        say(f"read {path}", shown and not useless, shown)
    except OSError as e:
        say(f"read {path}", False, e)
for path in ("/sys/kernel", "/sys/firmware", "/sys/devices", "/sys/fs/cgroup", "/sys/class/net"):
    say(f"no {path}", os.path.exists(path) and os.listdir(path))

for name in "mem kmem port kmsg kvm fuse net/tun vda sda loop0 loop-control ptmx pts/0 console mapper/control vhost-net uinput hpet".split():
    attempt(f"open /dev/{name}", lambda: os.open("/dev/" + name, os.O_RDONLY))
for place in ("/tmp", "/work", "/dev/shm", "/run", "/outputs", "/dev"):
    for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 10, 229)):
        attempt(f"mknod {place} {major}:{minor}", lambda: os.mknod(place + "/node", kind | 0o666, os.makedev(major, minor)))
attempt("open a tty", lambda: os.open("/dev/tty", os.O_RDWR))

# Set-id programs of the image, and ones made here, give nothing.
for program in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount", "/usr/bin/newgrp", "/usr/bin/chsh"):
    if os.path.exists(program) and os.stat(program).st_mode & stat.S_ISUID:
        say(f"{program} is on nosuid", not os.statvfs(program).f_flag & os.ST_NOSUID)
open("/tmp/id", "wb").write(open("/usr/bin/id", "rb").read())
os.chmod("/tmp/id", 0o6755)
got = os.popen("/tmp/id -u; /tmp/id -g").read().split()
say("set-id program made here", got not in ([], ["10001", "10001"]), got)
for place in ("/tmp", "/work", "/outputs"):
    say(f"{place} is nosuid,nodev", os.statvfs(place).f_flag & (os.ST_NOSUID | 4) != os.ST_NOSUID | 4)
attempt("chown to root", lambda: os.chown("/tmp/id", 0, 0))
attempt("file capabilities", lambda: os.setxattr("/tmp/id", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")))

# The runtime's own binary (CVE-2019-5736).
for path in ["/proc/1/exe", "/proc/self/exe"] + glob.glob("/proc/[0-9]*/exe"):
    attempt(f"overwrite {path}", lambda: open(path, "r+b"))
    attempt(f"truncate {path}", lambda: os.truncate(path, 0))
for path in ("/proc/1/root/etc/shadow", "/proc/1/cwd", "/proc/1/fd/3", "/etc/shadow", "/etc/gshadow", "/root/.ssh", "/proc/self/root/../etc/shadow"):
    try:
        say(f"read {path}", os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError as e:
        say(f"read {path}", False, e)
for path in sys.argv[1:]:
    say(f"the host's file {path}", os.path.exists(path))
