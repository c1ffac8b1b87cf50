import ctypes
import ctypes.util

libc = ctypes.CDLL("libc.so.6", use_errno=True)
print(libc.strlen(b"hello"), libc.abs(-5), ctypes.c_double.in_dll(ctypes.CDLL(None), "signgam").value >= 0)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
numbers = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
libc.qsort(numbers, 5, 4, compare(lambda a, b: a[0] - b[0]))
print(list(numbers))
print(libc.open(b"/no/such/file", 0), ctypes.get_errno())
libm = ctypes.CDLL("libm.so.6")
libm.cos.restype, libm.cos.argtypes = ctypes.c_double, [ctypes.c_double]
print(libm.cos(0.0))
print(libc.prctl(15, b"renamed", 0, 0, 0), open("/proc/self/comm").read().strip())
print(libc.sched_yield(), libc.getpagesize())
