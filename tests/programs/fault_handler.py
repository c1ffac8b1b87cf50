import faulthandler
import sys


def here():
    faulthandler.dump_traceback(all_threads=False)


here()
print(faulthandler.is_enabled(), sys.flags.optimize, sys.flags.isolated, sys.flags.dont_write_bytecode)
sys.excepthook = lambda kind, e, tb: print("hook", kind.__name__, e)
raise LookupError("hooked")
