import gc
import inspect
import os
import sys
import types
import warnings

main = sys.modules["__main__"]
print(sys.argv, sys.orig_argv[1:], sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix, sys.platlibdir)
print(sys.flags, sys.dont_write_bytecode, sys.pycache_prefix, sys.is_finalizing(), sys.getswitchinterval())
print(sys.path, sys.path_hooks, sys.meta_path)
print(sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth())
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__)
print([hasattr(sys, n) for n in ("last_type", "last_value", "last_exc", "ps1", "tracebacklimit")], sys.exc_info())
print(sys.get_int_max_str_digits(), sys.hash_info.algorithm, sys.thread_info, sys.float_repr_style)
print({k: v for k, v in vars(main).items() if k.startswith("__") and k not in ("__builtins__", "__loader__")})
print(type(main.__loader__), main.__spec__, main.__builtins__ is sys.modules["builtins"], main is inspect.getmodule(lambda: 0))
print(sorted(dir(types.ModuleType("fresh"))), dir())
print([(f.filename, f.lineno, f.function, f.code_context, f.index) for f in inspect.stack()], sys._getframe().f_back, sys._getframe().f_code.co_name)
print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks)
print(warnings.filters, warnings.defaultaction, sys.warnoptions, sys._xoptions)
print(__annotations__ if "__annotations__" in globals() else "no annotations", __debug__, __build_class__)


def depth(n=1):
    try:
        return depth(n + 1)
    except RecursionError:
        return n


print(depth(), depth())


def outer():
    return [f.function for f in inspect.stack()], len(inspect.getouterframes(sys._getframe()))


print(outer())
print([p for p in sys.path_importer_cache if "/fd/" in p])
print([n for n in sys.modules if n.startswith(("_wait", "creel"))])
