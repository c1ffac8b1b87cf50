"""Socket families (class 27, CVE-2026-31431), netlink kinds, raw sockets, and ways to the host's network."""
import socket

ALLOWED = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}
for family in range(0, 51):
    for kind in (1, 2, 3, 5):
        for high in (0, 1 << 32):
            result, error = syscall(41, family | high, kind, 0)
            if result >= 0:
                os.close(result)
                allowed = family in ALLOWED and kind in (1, 2, 5) or family == socket.AF_NETLINK and kind in (2, 3)
                # A Unix socket of type RAW is a datagram socket.
                allowed = allowed or family == socket.AF_UNIX and kind == 3
                if not allowed:
                    say(f"socket family {family} type {kind} {high:#x}", True, result)
            result, error = syscall(53, family | high, kind, 0, ctypes.byref((ctypes.c_int * 2)()))
            if result == 0 and family not in (socket.AF_UNIX,):
                say(f"socketpair family {family} type {kind}", True)
say("families 0 to 50", False)
for protocol in range(0, 32):
    result, error = syscall(41, socket.AF_NETLINK, 3, protocol)
    say(f"netlink protocol {protocol}", result >= 0 and protocol != 0, error)
for name, args in {"raw icmp": (2, 3, 1), "raw ip": (2, 3, 255), "packet": (17, 3, 768), "alg": (38, 5, 0), "vsock": (40, 1, 0),
                   "raw6": (10, 3, 58), "xdp": (44, 3, 0), "tipc": (30, 5, 0), "rds": (21, 5, 0), "smc": (43, 1, 0)}.items():
    refused(f"socket {name}", syscall(41, *args))

for name in sys.argv[1:2]:
    attempt("the host's abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\0" + name), "ECONNREFUSED", "EPERM", "EACCES")
    attempt("the same, datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect("\0" + name), "ECONNREFUSED", "EPERM", "EACCES")
for port in sys.argv[2:3]:
    for host in ("127.0.0.1", "::1"):
        attempt(f"the host's port on {host}", lambda: socket.create_connection((host, int(port)), 3), "ECONNREFUSED")
for address in ("10.0.0.1", "169.254.169.254", "192.168.0.1", "172.17.0.1", "1.1.1.1"):
    attempt(f"connect {address}", lambda: socket.create_connection((address, 80), 3), "ENETUNREACH", "EACCES", "EPERM")

# lo can't be joined by another interface, nor its settings changed.
import fcntl
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt("set an address", lambda: fcntl.ioctl(control, 0x8916, b"lo" + bytes(14) + b"\x02\0\0\0\x0a\0\0\x01" + bytes(16)))
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
link.bind((0, 0))
body = bytes(16) + b"\x09\0\x03\0dum0\0\0\0\0" + b"\x10\0\x12\0" + b"\x09\0\x01\0dummy\0\0\0"
message = (16 + len(body)).to_bytes(4, "little") + (16).to_bytes(2, "little") + (0x605).to_bytes(2, "little") + bytes(8) + body
try:
    link.send(message)
    link.settimeout(3)
    answer = int.from_bytes(link.recv(4096)[16:20], "little", signed=True)
    say("make an interface", answer >= 0, answer)
except OSError as e:
    say("make an interface", False, e)
say("one interface", [n for _, n in socket.if_nameindex()] != ["lo"], socket.if_nameindex())
