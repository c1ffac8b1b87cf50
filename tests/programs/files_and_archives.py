import bz2
import csv
import gzip
import io
import lzma
import os
import pathlib
import shutil
import tarfile
import zipfile

base = pathlib.Path("/work/tree")
for n in range(20):
    p = base / f"d{n % 4}" / f"文件{n}.txt"
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_text("内容\n" * n, encoding="utf-8")
print(sorted(str(p.relative_to(base)) for p in base.rglob("*.txt"))[:4], sum(len(f) for _, _, f in os.walk(base)))
with zipfile.ZipFile("/work/a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for p in sorted(base.rglob("*.txt")):
        z.write(p, p.relative_to(base))
print(zipfile.ZipFile("/work/a.zip").testzip(), len(zipfile.ZipFile("/work/a.zip").namelist()))
with tarfile.open("/work/a.tar.gz", "w:gz") as t:
    t.add(base, "tree")
with tarfile.open("/work/a.tar.gz") as t:
    t.extractall("/work/out")
print(sorted(os.listdir("/work/out/tree")), (pathlib.Path("/work/out/tree/d3/文件7.txt").read_text() == "内容\n" * 7))
for module in (gzip, bz2, lzma):
    with module.open("/work/packed", "wt", encoding="utf-8") as f:
        csv.writer(f).writerows([["名", "值"], ["a,b", 'q"q']] * 1000)
    with module.open("/work/packed", "rt", encoding="utf-8") as f:
        print(module.__name__, len(list(csv.DictReader(f))))
os.chmod("/work/a.zip", 0o640)
os.utime("/work/a.zip", (1e9, 1e9))
print(oct(os.stat("/work/a.zip").st_mode), os.stat("/work/a.zip").st_mtime, oct(os.stat("/work/packed").st_mode))
shutil.rmtree("/work/out")
print(os.access("/work/a.zip", os.W_OK), shutil.disk_usage("/work").total > 0)
print(io.open("/work/entry.py").readline().strip(), sorted(os.listdir("/work")))
(base / "d0" / "missing" / "x").write_text("fails")
