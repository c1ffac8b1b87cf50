import dataclasses
import importlib
import os
import pickle
import sys
import typing
from multiprocessing import get_context


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: "list[int]" = dataclasses.field(default_factory=list)


class Loud:
    def __reduce__(self):
        return Loud, ()


def square(x):
    return x * x


if __name__ == "__main__":
    print(pickle.loads(pickle.dumps(Point(1, [2]))), pickle.dumps(square), pickle.loads(pickle.dumps(square))(4), Loud.__module__)
    print(typing.get_type_hints(Point), repr(Point), Point.__module__, sys.modules[Point.__module__].__file__)
    open("/work/late.py", "w").write("import sys\nvalue = __name__, __file__, sys._getframe(1).f_code.co_name != ''\n")
    importlib.invalidate_caches()
    import late

    print(late.value, late.__cached__, late.__spec__.origin)
    open("/work/json_.py", "w").write("shadow = 1\n")
    os.mkdir("/work/包")
    open("/work/包/__init__.py", "w").write("from . import 甲\n")
    open("/work/包/甲.py", "w").write("乙 = __package__\n")
    import json_
    import 包

    print(json_.shadow, 包.甲.乙, sys.path[0])
    for method in ("fork", "spawn", "forkserver"):
        with get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(4)), pool.apply(type, (Point(1),)))
    print(sorted(n for n in globals() if not n.startswith("__")))
