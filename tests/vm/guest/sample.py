"""A sample for real older kernels, in software emulation: each run takes seconds here. Argument: the landlock ABI that the kernel has."""

import hashlib
import json
import os
import pathlib
import sys

from checks import (
    FORKS, OUT, check, children, counter, finish, gc_when_all_are_dead, kill, nothing_left, ready, run, same, start, the_leaf, until,
)

ABI = sys.argv[1]
UID = 1000


@check
def inputs_outputs_and_the_report():
    source = pathlib.Path("/tmp/numbers.csv")
    source.write_text("1\n2\n39\n")
    code = (
        "import os\ntotal = sum(int(l) for l in open('/inputs/00-numbers.csv'))\nos.mkdir('/outputs/sub')\n"
        "open('/outputs/sub/total.txt', 'w').write(str(total))\n"
        "print(os.getuid(), open('/proc/self/cgroup').read().strip(), os.listdir('/dev'))"
    )
    report = run("--input", str(source), "-c", code).ok().enforces_all()
    same(report["enforced"]["landlock"], f"abi {ABI}")
    assert report["stdout"].startswith("10001 0::/ ['"), report
    (made,) = report["produced"]
    same((made["path"], made["sha256"]), ("sub/total.txt", hashlib.sha256(b"42").hexdigest()))
    same((OUT / "sub/total.txt").read_text(), "42")
    assert report["memory_peak_bytes"] > 0 and report["pids_peak"] >= 1 and report["cpu_ms"] > 0, report
    nothing_left()


@check
def mounts_are_read_only():
    code = r"""
import errno, json, os
tried = {}
def attempt(path, flags=os.O_WRONLY | os.O_CREAT):
    try:
        os.close(os.open(path, flags, 0o644))
        tried[path] = "written"
    except OSError as e:
        tried[path] = errno.errorcode[e.errno]
for d in ("/", "/usr", "/etc", "/inputs", "/dev", "/proc/sys/kernel", "/work", "/outputs", "/tmp", "/run", "/dev/shm"):
    attempt(d + "/probe")
attempt("/proc/sys/kernel/hostname", os.O_WRONLY)
options = {l.split()[4]: l.split()[5].split(",") for l in open("/proc/self/mountinfo")}
print(json.dumps([tried, options]))
"""
    tried, options = json.loads(run("-c", code).ok()["stdout"])
    written = sorted(path for path, how in tried.items() if how == "written")
    same(written, [f"{dir}/probe" for dir in ("/dev/shm", "/outputs", "/run", "/tmp", "/work")], tried)
    for point in ("/", "/usr", "/inputs", "/dev", "/proc/sys"):
        assert "ro" in options[point], (point, options)
    for point in options:
        assert "nosuid" in options[point], (point, options)
        assert "nodev" in options[point] or point == "/dev" or point.startswith(("/dev/", "/proc/")), (point, options)


@check
def memory_limit_bites():
    code = "import os\nif os.fork() == 0:\n    x = bytearray(300 << 20)\n    os._exit(0)\nos.wait()\nprint('went on')"
    report = run("--memory", "40m", "--cpus", "1", "-c", code).expect("oom", 137, -2)
    # memory.oom.group took the parent along
    assert report["oom_kills"] >= 2 and report["stdout"] == "", report
    nothing_left()


@check
def death_by_sigkill_is_no_oom():
    report = run("--lang", "bash", "-c", "kill -9 $$").expect("script_error", 137, 137)
    same((report["signal"], report["oom_kills"]), (9, 0), report)


@check
def pids_limit_bites():
    report = run("--pids", "10", "-c", FORKS).ok()
    # init has a leaf of its own, so all ten are the program's
    same((report["stdout"], report["pids_peak"]), ("9\n", 10), report)
    nothing_left()


@check
def cpu_quota_throttles_and_the_timeout_ends_stubborn_children():
    code = "trap '' TERM; (trap '' TERM; setsid sleep 1000 & sleep 1000) & while :; do :; done"
    process = start("--cpus", "0.1", "--timeout", "3", "--lang", "bash", "-c", code)
    stat = the_leaf() / "cpu.stat"
    until(lambda: counter(stat, "nr_throttled") >= 1, "throttled")
    finish(process).expect("timeout", 124, -1)
    nothing_left()


@check
def a_fork_bomb_ends():
    code = "while :; do (while :; do :; done) & done"
    run("--timeout", "2", "--pids", "32", "--lang", "bash", "-c", code).expect("timeout", 124, -1)
    nothing_left()


@check
def disk_by_tmpfs():
    code = "echo done > /outputs/t; head -c 9M /dev/zero > /outputs/big || echo full; rm /outputs/big"
    report = run("--memory", "1500m", "--output-max", "4m", "--lang", "bash", "-c", code).ok()
    same((report["enforced"]["disk"], report["stdout"]), ("tmpfs", "full\n"), report)
    same([p["path"] for p in report["produced"]], ["t"])
    nothing_left()


@check
def killed_and_cleaned():
    for chosen in ((1,), (2,), (1, 0)):
        process = start("--lang", "bash", "-c", "sleep 1000")
        assert ready(process)
        (launcher,) = children(process.pid)
        tree = (process.pid, launcher, *children(launcher))
        for n in chosen:
            kill(tree[n])
        process.communicate()
        same(process.returncode, -9 if 0 in chosen else 125, chosen)
    gc_when_all_are_dead()
    nothing_left()


@check
def an_ordinary_user_with_a_delegated_cgroup():
    cgroup = pathlib.Path("/sys/fs/cgroup/user")
    leaf = cgroup / "leaf"
    leaf.mkdir(parents=True)
    for path in (cgroup, cgroup / "cgroup.procs", cgroup / "cgroup.subtree_control", leaf, leaf / "cgroup.procs"):
        os.chown(path, UID, UID)
    me = {"uid": UID, "cgroup": leaf}
    run("--lang", "bash", "-c", "echo x > /outputs/x", **me).ok().enforces_all()
    code = "x = bytearray(300 << 20)"
    run("--memory", "40m", "--cpus", "1", "-c", code, **me).expect("oom", 137, -2)
    nothing_left(ours=cgroup / "creel", state=pathlib.Path("/tmp/home-1000/.local/state/creel"))
