import os
import sys

for code in (0, 1, 255):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.stdout.flush()
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(w, f"{os.getppid() > 0} {os.getsid(0) != os.getpid()}".encode())
        os._exit(0)
    os._exit(0)
os.wait()
os.close(w)
print(os.read(r, 100))
pid = os.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", "exit 12"])
print(os.waitid(os.P_PID, pid, os.WEXITED).si_status)
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "echo spawned"], os.environ)
os.waitpid(pid, 0)
fd = os.pidfd_open(os.getpid())
print(fd > 2)
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), 19)
    os._exit(5)
print(os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]))
os.kill(pid, 18)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
try:
    os.wait()
except ChildProcessError as e:
    print(e)
sys.stdout.flush()
os.execv("/bin/sh", ["sh", "-c", "echo replaced; exit 6"])
