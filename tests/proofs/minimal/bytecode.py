"""Each module of the image has its .pyc, which is of the source beside it: a stale one would be run all the same, since their
kind, unchecked-hash, is never compared with the source; a missing or timed one would be compiled in each sandbox anew.

Prints one JSON object: how many, and the first of those that are wrong.
"""

import importlib.util
import json
import pathlib
import sys
import sysconfig

roots = {sysconfig.get_path("stdlib"), *(p for p in sys.path if p.endswith("dist-packages"))}
count, wrong = 0, {}
for source in (p for root in sorted(roots) for p in pathlib.Path(root).rglob("*.py")):
    if "__pycache__" in source.parts:
        continue
    count += 1
    compiled = pathlib.Path(importlib.util.cache_from_source(str(source)))
    text = source.read_bytes()
    if not compiled.exists():
        try:
            compile(text, str(source), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue  # templates and files for other versions of Python: nothing can compile them
        wrong[str(source)] = "missing"
        continue
    with compiled.open("rb") as file:
        head = file.read(16)
    if int.from_bytes(head[4:8], "little") != 1:
        wrong[str(source)] = "not of the kind unchecked-hash"
    elif head[8:16] != importlib.util.source_hash(text):
        wrong[str(source)] = "stale"
print(json.dumps({"count": count, "wrong": len(wrong), "first": dict(list(wrong.items())[:5])}))
