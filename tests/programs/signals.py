import os
import signal
import time

seen = []
for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
    signal.signal(s, lambda n, frame: seen.append(signal.Signals(n).name))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR2)
os.kill(os.getpid(), signal.SIGTERM)
signal.setitimer(signal.ITIMER_REAL, 0.01)
while "SIGALRM" not in seen:
    time.sleep(0.01)
if os.fork() == 0:
    os._exit(0)
os.wait()
print(seen)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
os.kill(os.getpid(), signal.SIGHUP)
print(signal.sigpending(), signal.sigwait([signal.SIGHUP]), signal.sigtimedwait([signal.SIGHUP], 0.01))
print(sorted(s.name for s in signal.Signals if s.value < 32 and s not in (signal.SIGKILL, signal.SIGSTOP)
             and signal.getsignal(s) == signal.SIG_IGN))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
r, w = os.pipe()
os.set_blocking(w, False)
signal.set_wakeup_fd(w)
os.kill(os.getpid(), signal.SIGUSR1)
print(os.read(r, 1) == bytes([signal.SIGUSR1]))
