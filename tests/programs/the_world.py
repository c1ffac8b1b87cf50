import os
import platform
import resource
import sys

print(__name__, __file__, sys.argv, os.getcwd(), sys.path[0], sys.version_info[:2], platform.machine())
print({k: v for k, v in sorted(os.environ.items())})
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_FSIZE))
print(sys.getrecursionlimit(), os.getuid(), os.getgid(), os.getgroups(), oct(os.umask(0)), os.nice(0))
print(os.path.realpath(sys.executable), os.sysconf("SC_PAGESIZE"), os.ctermid(), os.isatty(1))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0, os.getrandom(4) != os.getrandom(4), os.times().user >= 0)
print(sys.stdout.line_buffering, sys.stdout.write_through, sys.dont_write_bytecode, bool(sys.flags.no_user_site))
try:
    os.setuid(0)
except PermissionError as e:
    print(e)
os.sched_setaffinity(0, os.sched_getaffinity(0))
open("/etc/motd-probe", "w") if os.access("/etc", os.W_OK) else print("no /etc")
