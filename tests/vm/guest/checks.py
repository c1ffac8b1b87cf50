"""What the guest-side scripts share: `creel` is beside this file, the machine is a guest of tests/vm with pure cgroup v2.

Each check prints one line, `ok NAME` or `not ok NAME: why`; the Rust test knows the names that must come.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import traceback

CREEL = str(pathlib.Path(__file__).with_name("creel"))
ROOT = pathlib.Path("/sys/fs/cgroup")
OURS = ROOT / "creel"
STATE = pathlib.Path("/var/lib/creel")
OUT = pathlib.Path("/tmp/out")
LIMITS = ("memory", "pids", "cpu")
# A program that prints how many children it could have at once.
FORKS = """
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            time.sleep(1000)
        n += 1
except BlockingIOError:
    print(n)
"""
# Nothing here takes so many seconds, in software emulation on a loaded machine either.
WAIT = 120

os.chdir("/tmp")


def check(test):
    """Runs a function now, as the check that its name says."""
    name = test.__name__.replace("_", "-")
    began = time.monotonic()
    try:
        test()
        print(f"ok {name} ({time.monotonic() - began:.2f} s)", flush=True)
    except BaseException:
        print(f"not ok {name}: {json.dumps(traceback.format_exc(limit=-4))}", flush=True)


def same(got, want, context=None):
    assert got == want, f"got {got!r}, not {want!r}; {context}"


def until(condition, what):
    """Polls what nothing announces, such as the end of somebody else's process; returns what came true."""
    end = time.monotonic() + WAIT
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what}: not within {WAIT} s"
        time.sleep(0.002)


def become(command, uid, cgroup):
    """The same command as an ordinary user, in a cgroup; without one of the two: as root, where we are."""
    if uid is not None:
        env = ["env", "-i", f"PATH={os.environ['PATH']}", f"HOME={home(uid)}"]
        user = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        command = [*user, *env, *command]
    if cgroup is not None:
        command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), *command]
    return command


def home(uid):
    path = pathlib.Path(f"/tmp/home-{uid}")
    if not path.is_dir():
        path.mkdir()
        os.chown(path, uid, uid)
    return path


def start(*args, uid=None, cgroup=None, stdin=subprocess.DEVNULL):
    """Starts `creel run --json ARGS…`."""
    out = OUT if uid is None else home(uid) / "out"
    # what is not about time must not end by it on a loaded machine
    patience = [] if "--timeout" in args else ["--timeout", "100"]
    command = become([CREEL, "run", "--json", "--output", str(out), *patience, *args], uid, cgroup)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True)


class Report(dict):
    """A run's report, with creel's exit code and the seconds that the whole took."""

    code = seconds = stderr = None

    def expect(self, category, code, exit_code):
        got = (self["error_category"], self.code, self["exit_code"])
        same(got, (category, code, exit_code), dict(self))
        return self

    def ok(self):
        return self.expect("ok", 0, 0)

    def enforces_all(self):
        same({k: self["enforced"][k] for k in LIMITS}, dict.fromkeys(LIMITS, "cgroup2"))
        return self


def finish(process):
    began = time.monotonic()
    stdout, stderr = process.communicate(timeout=WAIT)
    assert stdout.strip(), f"no report, exit {process.returncode}: {stderr}"
    report = Report(json.loads(stdout))
    report.code, report.stderr, report.seconds = process.returncode, stderr, time.monotonic() - began
    return report


def run(*args, **how):
    return finish(start(*args, **how))


def refused(*args, **how):
    """`creel run` must refuse: exit code 125, nothing on stdout, and the one line that is returned."""
    command = become([CREEL, "run", "--output", "/tmp/none", *args], **how)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT)
    same((done.returncode, done.stdout), (125, ""), done.stderr)
    lines = done.stderr.splitlines()
    same(len(lines), 1, done.stderr)
    return lines[0]


# --- looking at a live run -------------------------------------------------------


def leaves(ours=OURS):
    return [p for p in ours.iterdir() if p.is_dir() and p.name != "init"] if ours.is_dir() else []


def the_leaf(ours=OURS):
    """The payload's cgroup of the one live run, once a process is in it."""

    def populated():
        found = [p for p in leaves(ours) if pids_in(p)]
        return found[0] if found else None

    return until(populated, "a run's cgroup with a process in it")


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def pids_in(cgroup):
    return [int(p) for p in read(cgroup / "cgroup.procs").split()]


def counter(path, key):
    return int(dict(line.split() for line in read(path).splitlines() if len(line.split()) == 2).get(key, 0))


def children(pid):
    return [int(p) for p in read(f"/proc/{pid}/task/{pid}/children").split()]


def kill(pid, how=signal.SIGKILL):
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass


def ready(process):
    """Waits until the program of the run runs; false when the run ended before."""
    until(lambda: process.poll() is not None or executed(process.pid), "the program")
    return process.poll() is None


def executed(creel):
    """Process id of the payload of `creel`, if that has executed its program."""
    for launcher in children(creel):
        for init in children(launcher):
            for payload in children(init):
                try:
                    if os.path.basename(os.readlink(f"/proc/{payload}/exe")) != "creel":
                        return payload
                except OSError:
                    pass
    return None


# --- the proof that nothing is left --------------------------------------------------


def processes():
    found = {}
    for entry in os.listdir("/proc"):
        status = read(f"/proc/{entry}/status") if entry.isdigit() else ""
        if status and "\nState:\tZ" not in status:
            found[int(entry)] = status.split("\n", 1)[0]
    return found


def mounts():
    return {line.split(" ", 1)[0] for line in read("/proc/self/mountinfo").splitlines()}


BEFORE = processes(), mounts()


def left_alive():
    found = [f"process {pid} {name}" for pid, name in processes().items() if pid not in BEFORE[0]]
    # kernel threads come and go as they please
    return [text for text in found if re.search(r"creel|init|python|bash|sleep|\bsh\b", text)]


def left(ours=OURS, state=STATE):
    """What runs have left on this machine, as text; empty when there is nothing."""
    found = left_alive()
    found += [f"cgroup {leaf}" for leaf in leaves(ours)]
    found += [f"process {pid} in init" for pid in pids_in(ours / "init")]
    found += [f"mount {line}" for line in mounts() - BEFORE[1]]
    found += [f"directory {path}" for path in (state / "runs").glob("*")]
    ledger = state / "ledger"
    if ledger.exists() and (lines := ledger.read_bytes().strip(b"\0")):
        found.append(f"ledger {lines}")
    return found


def nothing_left(**where):
    """What the kernel finishes by itself after creel's end takes a moment; nothing else may be needed."""
    seen = []

    def clean():
        seen[:] = left(**where)
        return not seen

    try:
        until(clean, "clean")
    except AssertionError:
        raise AssertionError(f"left behind: {seen}") from None


def gc_when_all_are_dead(**how):
    """A launcher that is about to end holds its run's lock still, and `creel gc` would leave that run alone."""
    until(lambda: not left_alive(), "the end of all processes")
    return gc(**how)


def gc(**how):
    command = become([CREEL, "gc"], **{"uid": None, "cgroup": None} | how)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    same(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout
