import os
import signal
import sys

r, w = os.pipe()
os.close(r)
try:
    os.write(w, b"x")
except BrokenPipeError as e:
    print(e, signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN)
os.dup2(w, 1)
sys.stdout.write("into the broken pipe\n" * 10000)
