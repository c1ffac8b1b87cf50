"""As root on pure cgroup v2: in a sandbox that was made ahead every limit holds as in one that starts cold. Argument: warm or zygote."""

import pathlib
import sys

import checks
from checks import FORKS, OUT, check, nothing_left, same

MODE = sys.argv[1]
EAT = "x = bytearray(300 << 20)\n"
SMALL = ("--memory", "40m", "--cpus", "1")


def run(*args):
    report = checks.run("--start", MODE, *args).enforces_all()
    same(report["start"], MODE, dict(report))
    return report


@check
def cgroup2_holds_all_three():
    report = run("-c", "print(open('/proc/self/cgroup').read())").ok()
    same(report["stdout"], "0::/\n\n")
    assert report["cpu_ms"] > 0 and report["pids_peak"] >= 1, report
    nothing_left()


@check
def memory_limit_bites():
    report = run(*SMALL, "-c", EAT).expect("oom", 137, -2)
    assert report["oom_kills"] >= 1 and report["memory_peak_bytes"] < 42 << 20, report
    nothing_left()


@check
def oom_kills_the_whole_leaf_and_init_tells():
    code = f"import os, time\nfor n in range(5):\n    if os.fork() == 0:\n        time.sleep(1000)\n{EAT}"
    report = run(*SMALL, "-c", code).expect("oom", 137, -2)
    assert report["oom_kills"] in (6, 7), report
    nothing_left()


@check
def death_by_sigkill_is_no_oom():
    report = run("-c", "import os\nos.kill(os.getpid(), 9)").expect("script_error", 137, 137)
    same((report["signal"], report["oom_kills"]), (9, 0), report)


@check
def pids_limit_bites():
    made = int(run("--pids", "20", "-c", FORKS).ok()["stdout"])
    assert 15 <= made <= 20, made
    nothing_left()


@check
def cpu_quota_throttles_and_the_timeout_ends_stubborn_children():
    code = "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.fork(); os.fork()\nwhile True: pass"
    report = run("--cpus", "0.2", "--timeout", "4", "-c", code).expect("timeout", 124, -1)
    assert 50 < report["cpu_ms"] <= 0.3 * report["walltime_ms"] + 250, report
    nothing_left()


@check
def disk_by_tmpfs():
    code = "try:\n    open('/tmp/x', 'wb').write(bytes(9 << 20))\nexcept OSError as e:\n    print(e.errno)"
    same(run("--tmp", "8m", "-c", code).ok()["stdout"], "28\n")


@check
def inputs_and_outputs():
    pathlib.Path("/tmp/数.csv").write_text("甲")
    report = run("--input", "/tmp/数.csv", "-c", "open('/outputs/果', 'w').write(open('/inputs/00-数.csv').read())").ok()
    same([p["path"] for p in report["produced"]], ["果"])
    same((OUT / "果").read_text(), "甲")
    nothing_left()
