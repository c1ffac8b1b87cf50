#!/usr/bin/env python3
"""prove.py [minimal|data|office]...: real jobs in creel's images, judged from outside.

Each job runs with `creel run --json --profile office`: read-only root, uid 10001, no network, that profile's limits. What it made is
checked here, with Python's own standard library: nothing of the image has a say in that. One line a proof; exit code 1
when any fails.

Environment: CREEL, the program (default: creel in PATH); IMAGES, put before the names: empty for the store's images, or
`/some/where/` for bundle directories; KEEP, a directory for what the jobs made.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Failed(Exception):
    """A proof failed; says why."""


def check(holds, why):
    if not holds:
        raise Failed(why)


def equal(found, expected, what):
    if found != expected:
        raise Failed(f"{what}: {found!r} instead of {expected!r}")


class Run:
    """What one job left: its report, stdout as JSON, and the files in `out`."""

    def __init__(self, report, out):
        self.report, self.out = report, out
        self.stdout, self.stderr = report["stdout"], report["stderr"]

    @property
    def json(self):
        return json.loads(self.stdout)

    def bytes(self, name):
        path = self.out / name
        check(path.is_file(), f"{name} was not made; there are {sorted(p.name for p in self.out.iterdir())}")
        return path.read_bytes()


class Image:
    """One image under test."""

    def __init__(self, name, prefix, creel, place):
        self.name, self.prefix, self.creel, self.place = name, prefix, creel, place
        self.peak, self.count = 0, 0

    def run(self, script=None, *, args=(), command=(), inputs=(), skill=None, quiet=True, timeout=120):
        """Runs `script` (below tests/proofs) or `command`; fails unless it ended well, under all limits, with nothing on stderr."""
        self.count += 1
        out = self.place / self.name / f"{self.count:02}-{pathlib.Path(script or command[0]).stem}"
        out.mkdir(parents=True)
        line = [self.creel, "run", "--json", "--profile", "office", "--image", self.prefix + self.name]
        line += ["--output", str(out), "--timeout", str(timeout)]
        for item in inputs:
            line += ["--input", str(item)]
        if skill:
            line += ["--skill", str(skill)]
        line += [str(HERE / script)] if script else []
        line += ["--", *(command or args)] if command or args else []
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout + 60)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            raise Failed(f"no report, exit code {done.returncode}: {done.stderr.strip()[-500:]}") from None
        what = report["error_category"], report["exit_code"], report["error"]
        check(what == ("ok", 0, None), f"ended as {what}: {report['stderr'][-1500:]}")
        weak = {k: v for k, v in report["enforced"].items() if "unenforced" in str(v)}
        check(not weak, f"not enforced: {weak}")
        equal(report["enforced"]["root"], "read-only", "root")
        equal(report["skipped"], [], "skipped outputs")
        check(not quiet or not report["stderr"].strip(), f"wrote to stderr: {report['stderr'][:1500]}")
        self.peak = max(self.peak, report["memory_peak_bytes"] or 0)
        return Run(report, out)

    def together(self, *runs):
        """Several jobs at once; each a dict of run()'s arguments with `script`."""
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
            return [f.result() for f in [pool.submit(self.run, r.pop("script"), **r) for r in runs]]


def prove(image, proofs):
    passed = failed = 0
    for proof in proofs:
        started, image.peak = time.monotonic(), 0
        try:
            note, verdict = proof(image) or "", "ok  "
            passed += 1
        except Failed as e:
            note, verdict = str(e), "FAIL"
        except Exception:  # a proof that breaks has proved nothing
            note, verdict = traceback.format_exc(limit=-3), "FAIL"
        failed += verdict == "FAIL"
        took = time.monotonic() - started
        title = (proof.__doc__ or proof.__name__).split("\n")[0].rstrip(".")
        print(f"{verdict} {image.name:8}{title:66}{took:6.1f} s {image.peak >> 20:5} MiB  {note}", flush=True)
    return passed, failed


def main(names):
    import of_data
    import of_minimal
    import of_office

    sets = {"minimal": of_minimal.PROOFS, "data": of_data.PROOFS, "office": of_office.PROOFS}
    unknown = [n for n in names if n not in sets]
    if unknown:
        sys.exit(f"prove.py: no such image: {', '.join(unknown)}; there are {', '.join(sets)}")
    creel = os.environ.get("CREEL", "creel")
    if not shutil.which(creel):
        sys.exit(f"prove.py: {creel}: no such program; say where creel is with CREEL=")
    keep = os.environ.get("KEEP")
    place = pathlib.Path(keep or tempfile.mkdtemp(prefix="creel-image-test-"))
    passed = failed = 0
    try:
        for name in names or ["minimal"]:
            p, f = prove(Image(name, os.environ.get("IMAGES", ""), creel, place), sets[name])
            passed, failed = passed + p, failed + f
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    # Else the other modules would import a second copy of this one, with a Failed of its own.
    sys.modules["prove"] = sys.modules["__main__"]
    sys.path.insert(0, str(HERE))
    sys.exit(main(sys.argv[1:]))
