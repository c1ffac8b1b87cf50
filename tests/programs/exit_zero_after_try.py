import atexit
import sys

atexit.register(print, "first registered, last run")
atexit.register(lambda: print("second", file=sys.stderr))
try:
    sys.exit(5)
finally:
    print("finally")
