"""Run in two sandboxes at once (class 41). The first leaves marks and waits; the second must find none of them.
Arguments: the role (leave, find)."""
import fcntl
import mmap
import socket
import time

KEY, NAME = 0x6372656C, "creel-canary"
IPC_CREAT = 0o1000
role = sys.argv[1]
paths = [d + "/" + NAME for d in ("/dev/shm", "/tmp", "/run", "/work", "/outputs")]

if role == "leave":
    for path in paths:
        open(path, "w").write("mark")
    marks = [syscall(29, KEY, 4096, IPC_CREAT | 0o666), syscall(64, KEY, 1, IPC_CREAT | 0o666), syscall(68, KEY, IPC_CREAT | 0o666)]
    queue = syscall(240, NAME.encode(), os.O_CREAT | os.O_RDWR, 0o666, 0)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + NAME)
    abstract.listen()
    port = socket.create_server(("127.0.0.1", 45454))
    print("left", marks, queue, flush=True)
    sys.stdin.read()  # Until the other is done.
else:
    for path in paths:
        say(f"the other's {path}", os.path.exists(path))
    refused("shared memory segment", syscall(29, KEY, 0, 0))
    refused("semaphores", syscall(64, KEY, 0, 0))
    refused("message queue", syscall(68, KEY, 0))
    refused("POSIX message queue", syscall(240, NAME.encode(), os.O_RDWR, 0, 0))
    attempt("abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\0" + NAME), "ECONNREFUSED", "EPERM")
    attempt("loopback port", lambda: socket.create_connection(("127.0.0.1", 45454), 3), "ECONNREFUSED")
    attempt("netlink listing of sockets", lambda: [l for l in open("/proc/net/unix") if NAME in l] or (_ for _ in ()).throw(OSError(2, "none")))
    for table in ("shm", "sem", "msg"):
        try:
            say(f"/proc/sysvipc/{table}", len(open(f"/proc/sysvipc/{table}").readlines()) > 1)
        except OSError as e:
            say(f"/proc/sysvipc/{table}", False, e)
    say("processes of the other", [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())])
