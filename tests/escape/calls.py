"""Kernel surface: calls that have no business here (25, 26, 28, 29, 31, 32, 39, 42), and unknown ones."""
buffer = ctypes.create_string_buffer(4096)
at = ctypes.addressof(buffer)
ENOSYS_ONLY = {
    "io_uring_setup": (425, 8, at), "io_uring_enter": (426, 0, 0, 0, 0, 0, 0), "io_uring_register": (427, 0, 0, 0, 0),
    "add_key": (248, b"user", b"x", b"y", 1, -3), "request_key": (249, b"user", b"x", 0, -3), "keyctl": (250, 0, -3, 1, 0, 0),
    "userfaultfd": (323, 0),
}
for name, call in ENOSYS_ONLY.items():
    refused(name, syscall(*call), "ENOSYS")
DENIED = {
    "bpf": (321, 0, at, 72), "perf_event_open": (298, at, 0, -1, -1, 0), "kexec_load": (246, 0, 0, 0, 0),
    "kexec_file_load": (320, 0, 0, 0, 0, 0), "init_module": (175, at, 1, b""), "finit_module": (313, 0, b"", 0),
    "delete_module": (176, b"x", 0), "iopl": (172, 3), "ioperm": (173, 0, 1, 1), "reboot": (169, 0, 0, 0, 0),
    "acct": (163, b"/tmp/acct"), "nfsservctl": (180, 0, 0, 0), "lookup_dcookie": (212, 0, at, 10), "modify_ldt": (154, 17, at, 16),
    "syslog": (103, 3, at, 100), "vhangup": (153,), "sethostname": (170, b"x", 1), "setdomainname": (171, b"x", 1),
    "settimeofday": (164, at, 0), "clock_settime": (227, 0, at), "uselib": (134, b"x"), "ustat": (136, 0, at), "sysfs": (139, 3),
    "_sysctl": (156, at), "open_by_handle_at": (304, -100, at, 0), "name_to_handle_at": (303, -100, b"/work", at, at + 64, 0),
    "process_vm_readv": (310, 1, at, 1, at, 1, 0), "process_vm_writev": (311, 1, at, 1, at, 1, 0), "kcmp": (312, 1, 1, 0, 0, 0),
    "pidfd_getfd": (438, 3, 0, 0), "process_madvise": (440, 3, at, 1, 20, 0), "fanotify_init": (300, 0, 0),
    "move_pages": (279, 1, 0, 0, 0, 0, 0), "migrate_pages": (256, 1, 0, 0, 0), "memfd_secret": (447, 0),
    "lsm_set_self_attr": (460, 0, at, 0, 0), "quotactl_fd": (443, 0, 0, 0, 0),
    "ptrace traceme": (101, 0, 0, 0, 0), "ptrace attach 1": (101, 16, 1, 0, 0), "ptrace seize 1": (101, 0x4206, 1, 0, 0),
}
for name, call in DENIED.items():
    refused(name, syscall(*call), "EPERM", "ENOSYS")

timex = ctypes.create_string_buffer(256)
ctypes.c_uint32.from_buffer(timex).value = 0x4000  # ADJ_TICK
refused("adjtimex write", syscall(159, timex))
unknown = [n for n in list(range(480, 600)) + [900, 1000, 5000] if syscall(n, 0, 0, 0, 0, 0, 0)[1] != "ENOSYS"]
say("unknown numbers answer ENOSYS", unknown, unknown)

READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE = 0x400000, 0x40000
for name, value in (("READ_IMPLIES_EXEC", READ_IMPLIES_EXEC), ("ADDR_NO_RANDOMIZE", ADDR_NO_RANDOMIZE),
                    ("with high bits", READ_IMPLIES_EXEC | 1 << 40)):
    refused(f"personality {name}", syscall(135, value), "EPERM", "ENOSYS")
now = syscall(135, 0xFFFFFFFF)
say("personality is unchanged", now[0] not in (0, -1), now)

# A terminal's input can't be stuffed, whatever the upper half of the command says (CVE-2019-7303, CVE-2023-28100).
for name, command in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C)):
    for high in (0, 1 << 32, 0xFFFFFFFF << 32):
        for fd in (0, 1, 2):
            refused(f"{name} {high:#x} on {fd}", syscall(16, fd, ctypes.c_ulong(command | high), at), "EPERM", "ENOSYS")

for name, value in (("setrlimit core", lambda: __import__("resource").setrlimit(4, (1 << 30, 1 << 30))),
                    ("setrlimit nofile", lambda: __import__("resource").setrlimit(7, (4096, 4096)))):
    try:
        value()
        say(name, True)
    except (ValueError, OSError) as e:
        say(name, False, e)
refused("nice", syscall(141, 0, 0, ctypes.c_long(-20)))
refused("real-time scheduling", syscall(144, 0, 1, ctypes.byref(ctypes.c_int(50))))
refused("capset", syscall(126, ctypes.byref((ctypes.c_uint32 * 2)(0x20080522, 0)), ctypes.byref((ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))))
refused("ambient capability", syscall(157, 47, 2, 21, 0, 0))
say("new privileges stay off", syscall(157, 39, 0, 0, 0, 0)[0] != 1)
say("dropping the filter", syscall(157, 22, 0, 0, 0, 0)[0] != -1)
