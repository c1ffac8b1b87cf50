"""Proofs on `minimal`; the first three hold of every image."""

import csv
import decimal
import io
import json
import zipfile

from prove import HERE, check, equal

SALES = HERE / "inputs" / "销售.csv"
# The bound for the unpacked image `minimal`, in MB.
MINIMAL_MEGABYTES = 150


def sales():
    """The rows of the CSV, and what all of it cost."""
    with SALES.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, sum(int(r["数量"]) * decimal.Decimal(r["单价"]) for r in rows)


def surroundings(image):
    """User, read-only root, no network, python beside python3, nothing of the builder"""
    world = image.run("minimal/world.py").json
    equal(world["python"], [3, 11], "Python")
    equal((world["uid"], world["gid"], world["user"], world["group"]), (10001, 10001, "sandbox", "sandbox"), "user")
    equal((world["write_usr"], world["write_root"]), ("EROFS", "EROFS"), "writing to the root")
    equal((world["network"], world["interfaces"]), ("ENETUNREACH", ["lo"]), "network")
    equal(world["python_program"], ["3", "11"], "python -c")
    check(all(world["which"].values()), f"programs missing: {world['which']}")
    equal(world["timezone"], "8:00:00", "Asia/Shanghai")
    equal(world["port_of_https"], 443, "port of https")
    check(world["certificates"], "no certificates")
    equal(world["encoding"], ["utf-8", "utf-8"], "encodings")
    equal(world["resolv_conf"], "", "resolv.conf")
    equal(world["logs"] + world["apt_lists"] + world["caches"], [], "logs, package lists and caches in the image")
    equal(world["setuid"], [], "set-user-id programs")


def bytecode(image):
    """Every module has its .pyc, of its source"""
    found = image.run("minimal/bytecode.py").json
    equal(found["wrong"], 0, f"modules with wrong bytecode, {found['first']}")
    check(found["count"] > 500, f"only {found['count']} modules")
    return f"{found['count']} modules"


def small(image):
    """The image is smaller than 150 MB"""
    # Not -x: files and directories of an overlay may have different device numbers. What only 0 may read is a few empty directories.
    mounts = " ".join(f"--exclude=/{d}" for d in ("proc", "dev", "run", "tmp", "work", "inputs", "outputs", "skill"))
    found = image.run(command=["bash", "-c", f"du -s --block-size=1000000 {mounts} / 2>/dev/null || true"]).stdout.split()
    megabytes = int(found[0])
    check(50 < megabytes < MINIMAL_MEGABYTES, f"{megabytes} MB")
    return f"{megabytes} MB"


def report(image):
    """CSV with Chinese headers → JSON, text and ZIP, standard library only"""
    run = image.run("minimal/report.py", inputs=[SALES])
    rows, total = sales()
    equal(run.stdout, f"完成 {len(rows)}\n", "stdout")
    made = json.loads(run.bytes("报告.json"))
    equal(made["行数"], len(rows), "rows")
    equal(sum(map(decimal.Decimal, made["销售额"].values())), total, "total")
    equal(made["备注"], sorted({r["备注"] for r in rows if r["备注"]}), "notes")
    text = run.bytes("报告.txt").decode()
    equal(sum(decimal.Decimal(line.split()[-1].split("\u3000")[-1].replace(",", "")) for line in text.splitlines()), total, "text")
    with zipfile.ZipFile(io.BytesIO(run.bytes("按地区.zip"))) as archive:
        equal(archive.testzip(), None, "ZIP")
        back = [row for name in archive.namelist() for row in csv.DictReader(io.StringIO(archive.read(name).decode()))]
        equal(sorted(archive.namelist()), sorted({f"按地区/{r['地区']}.csv" for r in rows}), "names in the ZIP")
    equal(sorted(back, key=str), sorted(rows, key=str), "rows in the ZIP")


PROOFS = [surroundings, bytecode, small, report]
