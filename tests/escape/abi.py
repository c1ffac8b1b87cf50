"""Other ways into the kernel (classes 21, 22): x32 numbers, and 32-bit calls by int 0x80."""
import mmap

X32 = 0x40000000
for number in (39, 56, 57, 101, 165, 272, 520, 521, 0):
    for high in (0, 1 << 32):
        def call():
            return 1 if syscall(X32 | number | high, 0, 0, 0, 0, 0, 0)[0] != -1 else 0
        outcome = in_child(call)
        say(f"x32 {number} {high:#x}", outcome > 0, outcome)


def int80(number, *registers):
    """Runs `mov eax, number; int 0x80; ret` and returns eax: a 32-bit call that a 64-bit filter would miss."""
    code = b"\x53" + b"\xbb" + (registers[0] if registers else 0).to_bytes(4, "little")
    code += b"\x31\xc9\x31\xd2\xb8" + number.to_bytes(4, "little") + b"\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


for name, number, argument in (("getpid", 20, 0), ("unshare", 310, 0x10000000), ("socketcall", 102, 1), ("mount", 21, 0)):
    outcome = in_child(lambda: 1 if int80(number, argument) >= 0 else 0)
    # Killed by SIGSYS where the kernel has 32-bit emulation, by SIGSEGV where it has not.
    say(f"int 0x80 {name}", outcome not in (-signal.SIGSYS, -signal.SIGSEGV), outcome)

# vfork and fork stay inside like clone: same limits, same filter.
pid = os.fork()
if pid == 0:
    os._exit(0 if syscall(272, 0x10000000)[0] == -1 else 1)
say("the filter is inherited", os.waitpid(pid, 0)[1] != 0)
