"""As root on pure cgroup v2: the limits of memory, tasks, CPU and disk hold, and the report tells the truth about them."""

import json
import os
import pathlib
import signal
import subprocess
import time

from checks import (
    FORKS, OURS, OUT, check, children, counter, executed, finish, kill, nothing_left, pids_in, read, run, same, start, the_leaf, until,
)

EAT = "x = bytearray(300 << 20)\n"
# one CPU, or the quota makes the eating slow
SMALL = ("--memory", "40m", "--cpus", "1")


@check
def cgroup2_holds_all_three():
    report = run("-c", "print(open('/proc/self/cgroup').read())").ok().enforces_all()
    # its own cgroup namespace hides where it is
    same(report["stdout"], "0::/\n\n")
    assert report["memory_peak_bytes"] > 1 << 20 and report["pids_peak"] >= 1, report
    nothing_left()


@check
def values_are_written_and_init_has_its_own_leaf():
    args = ("--memory", "100m", "--pids", "33", "--cpus", "0.25", "-c", "input()")
    process = start("--stdin", "-", *args, stdin=subprocess.PIPE)
    leaf = the_leaf()
    until(lambda: executed(process.pid), "the program")
    values = ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"]
    got = [read(leaf / name).strip() for name in values]
    same(got, [str(100 << 20), "0", "1", "33", "25000 100000"])
    (launcher,) = children(process.pid)
    (init,) = children(launcher)
    same(pids_in(OURS / "init"), [init])
    same(pids_in(leaf), children(init))
    # neither creel nor its launcher is under the limits
    for pid in (process.pid, launcher):
        same(read(f"/proc/{pid}/cgroup"), read("/proc/self/cgroup"))
    process.stdin.write("\n")
    process.stdin.flush()
    finish(process).ok()
    nothing_left()


@check
def memory_limit_bites():
    report = run(*SMALL, "-c", EAT).expect("oom", 137, -2)
    assert report["oom_kills"] >= 1, report
    assert 30 << 20 < report["memory_peak_bytes"] < 42 << 20, report
    same(report["error"]["code"], "run.oom")
    nothing_left()


@check
def a_childs_oom_ends_the_run():
    code = f"import os\nif os.fork() == 0:\n    {EAT}    os._exit(0)\nos.wait()\nprint('went on')"
    report = run(*SMALL, "-c", code).expect("oom", 137, -2)
    same(report["stdout"], "")
    nothing_left()


@check
def oom_kills_the_whole_leaf_and_init_tells():
    code = (
        "import os, time\nopen('/outputs/before', 'w').write('x')\n"
        f"for n in range(5):\n    if os.fork() == 0:\n        time.sleep(1000)\n{EAT}"
    )
    report = run(*SMALL, "-c", code).expect("oom", 137, -2)
    # memory.oom.group: the kernel itself kills and counts every process of the leaf (the first victim twice, if it still dies)
    assert report["oom_kills"] in (6, 7), report
    same([p["path"] for p in report["produced"]], ["before"])
    same(report["partial"], True)
    nothing_left()


@check
def an_oom_above_the_run_is_told_too():
    # somebody limits all of creel, as MemoryMax= on its service does
    (OURS / "memory.max").write_text(str(50 << 20))
    try:
        report = run("--memory", "300m", "--cpus", "1", "-c", EAT).expect("oom", 137, -2)
    finally:
        (OURS / "memory.max").write_text("max")
    # more or less: each CPU charges the levels in batches
    assert report["memory_peak_bytes"] < 60 << 20, report
    nothing_left()


@check
def dev_shm_is_memory_of_the_run():
    code = "open('/dev/shm/x', 'wb').write(bytes(6 << 20))\nprint('written', flush=True)\nx = bytearray(37 << 20)"
    report = run(*SMALL, "-c", code).expect("oom", 137, -2)
    same(report["stdout"], "written\n")
    report = run(*SMALL, "-c", code.replace("37", "20")).ok()
    nothing_left()


@check
def death_by_sigkill_is_no_oom():
    report = run("-c", "import os\nos.kill(os.getpid(), 9)").expect("script_error", 137, 137)
    same((report["signal"], report["oom_kills"], report["error"]), (9, 0, None), report)
    code = "import os, sys\nif os.fork() == 0:\n    os.kill(os.getpid(), 9)\nos.wait()\nsys.exit(137)"
    report = run("-c", code).expect("script_error", 137, 137)
    same((report["signal"], report["oom_kills"]), (None, 0), report)


@check
def tmp_is_full_before_memory_is():
    code = (
        "try:\n    open('/tmp/x', 'wb').write(bytes(100 << 20))\nexcept OSError as e:\n    print(e.strerror)"
    )
    report = run("--memory", "256m", "--tmp", "32m", "-c", code).ok()
    same(report["stdout"], "No space left on device\n")


@check
def pids_limit_bites():
    report = run("--pids", "20", "-c", FORKS).ok()
    # init has a leaf of its own, so all twenty are the program's
    same(report["stdout"], "19\n")
    same(report["pids_peak"], 20)
    nothing_left()


@check
def cpu_quota_throttles():
    code = "import os\nos.fork()\nwhile True: pass"
    process = start("--cpus", "0.1", "-c", code)
    stat = the_leaf() / "cpu.stat"
    until(lambda: counter(stat, "nr_throttled") >= 5, "throttled five times")
    kill(process.pid, signal.SIGTERM)
    report = finish(process).expect("cancelled", 130, None)
    assert 20 < report["cpu_ms"] < 0.2 * report["walltime_ms"] + 250, report
    nothing_left()


@check
def the_launcher_sleeps():
    # memory.events is readable for ever until somebody reads it: the launcher once turned round and round beside each run
    code = "import os\nprint(os.read(0, 1))\n"
    process = start("--stdin", "-", "-c", code, stdin=subprocess.PIPE)
    until(lambda: executed(process.pid), "the program")
    (launcher,) = children(process.pid)

    def spent():
        fields = read(f"/proc/{launcher}/stat").rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = spent()
    time.sleep(1)  # an interval to measure in, not a wait
    ticks = spent() - before
    process.stdin.write("x")
    process.stdin.flush()
    finish(process).ok()
    assert ticks < os.sysconf("SC_CLK_TCK") / 4, f"{ticks} ticks of CPU in one second"


@check
def disk_by_tmpfs():
    code = (
        "open('/outputs/r', 'w').write('result')\n"
        "try:\n    with open('/work/big', 'wb') as f:\n        for n in range(400): f.write(bytes(1 << 20))\n"
        "except OSError as e:\n    print(e.strerror)"
    )
    report = run("--memory", "1500m", "-c", code).ok().enforces_all()
    same((report["enforced"]["disk"], report["stdout"]), ("tmpfs", "No space left on device\n"), report)
    # files on it count as the run's memory
    assert report["memory_peak_bytes"] > 200 << 20, report
    same((OUT / "r").read_text(), "result")
    nothing_left()


@check
def disk_by_watcher():
    code = "import time\nwith open('/work/big', 'wb') as f:\n    for n in range(270): f.write(bytes(1 << 20))\ntime.sleep(1000)"
    # too little memory for a tmpfs of that size; the state directory is one here, so the file itself counts as the run's memory
    report = run("--memory", "300m", "-c", code).expect("output_limit", 126, None).enforces_all()
    same(report["enforced"]["disk"], "watcher", report)
    nothing_left()


@check
def disk_by_project_quota():
    disk, state = pathlib.Path("/tmp/disk"), pathlib.Path("/tmp/quota")
    with open(disk, "wb") as f:
        f.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", disk], check=True)
    state.mkdir()
    subprocess.run(["mount", "-o", "loop,prjquota", disk, state], check=True)
    profile = pathlib.Path("/tmp/quota.toml")
    profile.write_text('[limits]\nmemory = "100m"\nwork = "64m"\nwork_files = 100\noutput = "16m"\n')
    os.environ["CREEL_STATE_DIR"] = str(state / "creel")
    try:
        code = """if True:
            import errno, json, os
            def fill(path, unlink):
                n, f = 0, open(path, 'wb', buffering=0)
                if unlink: os.unlink(path)
                try:
                    while n < 200: n += f.write(bytes(1 << 20)) >> 20
                except OSError as e: return n, errno.errorcode[e.errno]
                finally:
                    f.close()
                    if not unlink: os.unlink(path)
            found = [fill('/work/f', False), fill('/work/f', True), fill('/outputs/f', True)]
            try:
                for n in range(200): open(f'/work/{n}', 'w').close()
            except OSError as e: found.append([n < 100, errno.errorcode[e.errno]])
            open('/outputs/o', 'w').write('x')
            print(json.dumps(found))
        """
        report = run("--profile", str(profile), "-c", code).ok().enforces_all()
        same(report["enforced"]["disk"], "quota", report)
        work, deleted, outputs, files = json.loads(report["stdout"])
        for (mb, why), least, most in ((work, 60, 64), (deleted, 60, 64), (outputs, 14, 18)):
            assert least <= mb <= most and why == "EDQUOT", report["stdout"]
        same(files, [True, "EDQUOT"])
        same([p["path"] for p in report["produced"]], ["o"])
        same(list((state / "creel/runs").iterdir()), [])
    finally:
        del os.environ["CREEL_STATE_DIR"]
        subprocess.run(["umount", state], check=True)
    nothing_left()


@check
def office_profile():
    report = run("--profile", "office", "-c", "open('/outputs/o', 'w').write('x')").ok().enforces_all()
    same([p["path"] for p in report["produced"]], ["o"], report)
    nothing_left()


@check
def an_unlimited_outsider_is_left_alone():
    other = OURS.parent / "somebody-else"
    other.mkdir()
    sleeper = subprocess.Popen(["sh", "-c", f"echo $$ > {other}/cgroup.procs; exec sleep 1000"])
    until(lambda: pids_in(other), "the outsider")
    run("-c", "pass").ok()
    same(pids_in(other), [sleeper.pid])
    kill(sleeper.pid)
    sleeper.wait()
    until(lambda: not pids_in(other), "the outsider's end")
    other.rmdir()
