import sys
import traceback
import warnings


def fail(n):
    if n:
        return fail(n - 1)
    try:
        {}["键"]
    except KeyError as e:
        e.add_note("a note")
        raise ValueError("值") from e


def old():
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    warnings.warn("older", stacklevel=3)


class Custom(Exception):
    def __str__(self):
        raise RuntimeError("no text")


old()
warnings.warn("at the top", stacklevel=1)
warnings.warn("above the top", stacklevel=99)
for error in (fail, lambda n: 1 / 0, lambda n: "x" + n, lambda n: undefined_name, lambda n: sys.undefined_name, lambda n: exec("x = (")):
    try:
        error(5)
    except Exception as e:
        print(traceback.format_exc(), len(traceback.extract_tb(e.__traceback__)), traceback.extract_stack())
traceback.print_stack()
sys.unraisablehook  # stays
class Bad:
    def __del__(self):
        raise OSError(5, "in __del__")


Bad()
try:
    raise Custom
except Custom as e:
    traceback.print_exception(e)
exec(compile("def f():\n    raise ExceptionGroup('组', [ValueError(1), ExceptionGroup('in', [TypeError(2)])])\nf()", "<made>", "exec"))
