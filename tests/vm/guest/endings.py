"""As root on pure cgroup v2: however a run ends, all of it is dead and gone, at the latest after `creel gc`."""

import itertools
import json
import signal
import subprocess
import time

from checks import (
    OUT, STATE, WAIT, check, children, finish, gc, gc_when_all_are_dead, kill, leaves, left_alive, nothing_left, pids_in, ready,
    run, same, start, the_leaf, until,
)

STUBBORN = """
import os, signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
for n in range(4):
    if os.fork() == 0:
        if n % 2: os.setsid()
        if n > 1 and os.fork(): os._exit(0)
        if n == 3: os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1000)
"""


@check
def a_timeout_ends_stubborn_children():
    report = run("--timeout", "1", "-c", f"{STUBBORN}\ntime.sleep(1000)").expect("timeout", 124, -1)
    assert 900 < report["walltime_ms"] < 20_000 and report.seconds < 30, report
    nothing_left()


@check
def a_good_end_ends_stubborn_children():
    same(run("-c", f"{STUBBORN}\nprint('done')").ok()["stdout"], "done\n")
    nothing_left()


@check
def a_fork_bomb_ends():
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    run("--timeout", "1", "--pids", "64", "-c", code).expect("timeout", 124, -1)
    nothing_left()


@check
def cgroup_kill_is_used():
    # A process that is in the leaf but not in the sandbox's pid namespace: only cgroup.kill reaches it.
    process = start("--stdin", "-", "-c", "input()", stdin=subprocess.PIPE)
    assert ready(process)
    leaf = the_leaf()
    outsider = subprocess.Popen(["sh", "-c", f"echo $$ > {leaf}/cgroup.procs; exec sleep 1000"])
    until(lambda: outsider.pid in pids_in(leaf), "the outsider")
    process.stdin.write("\n")
    process.stdin.flush()
    finish(process).ok()
    same(outsider.wait(timeout=WAIT), -signal.SIGKILL)
    nothing_left()


@check
def a_cancel_cleans():
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = start("-c", f"{STUBBORN}\ntime.sleep(1000)")
        assert ready(process)
        kill(process.pid, how)
        finish(process).expect("cancelled", 130, None)
        nothing_left()


def kill_both(creel, launcher):
    """Kills both before either can see that the other is dead, and clean up."""
    for how in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (creel, launcher):
            kill(pid, how)


SLEEP = ("-c", "import time\ntime.sleep(1000)")


@check
def init_killed_is_a_lost_end():
    process = start(*SLEEP)
    assert ready(process)
    (launcher,) = children(process.pid)
    kill(children(launcher)[0])
    report = finish(process).expect("sandbox_error", 125, None)
    same(report["error"]["code"], "sandbox.lost")
    nothing_left()


@check
def launcher_killed_is_a_lost_end():
    process = start(*SLEEP)
    assert ready(process)
    kill(children(process.pid)[0])
    report = finish(process).expect("sandbox_error", 125, None)
    same(report["error"]["code"], "sandbox.lost")
    nothing_left()


@check
def creel_killed_and_the_launcher_cleans():
    process = start(*SLEEP)
    assert ready(process)
    kill(process.pid)
    process.communicate(timeout=WAIT)
    # the launcher ends the sandbox and removes its cgroup
    until(lambda: not leaves(), "the end of the cgroup")
    gc_when_all_are_dead()
    nothing_left()


@check
def all_killed_and_gc_cleans():
    process = start("-c", f"{STUBBORN}\ntime.sleep(1000)")
    assert ready(process)
    leaf = the_leaf()
    (launcher,) = children(process.pid)
    outsider = subprocess.Popen(["sh", "-c", f"echo $$ > {leaf}/cgroup.procs; exec sleep 1000"])
    until(lambda: outsider.pid in pids_in(leaf), "the outsider")
    kill_both(process.pid, launcher)
    process.communicate(timeout=WAIT)
    # somebody is alive in the leaf, so nobody but gc can remove it
    until(lambda: pids_in(leaf) == [outsider.pid], "the end of the sandbox")
    assert (STATE / "ledger").read_bytes().strip(b"\0"), "no line in the ledger to find the leaf by"
    same(gc(), "removed 1 run\n")
    same(outsider.wait(timeout=WAIT), -signal.SIGKILL)
    nothing_left()


@check
def gc_leaves_the_living_alone():
    process = start("--stdin", "-", "-c", "print(input())", stdin=subprocess.PIPE)
    assert ready(process)
    same(gc(), "removed 0 runs\n")
    run("-c", "pass").ok()
    process.stdin.write("still here\n")
    process.stdin.flush()
    same(finish(process).ok()["stdout"], "still here\n")
    nothing_left()


def tree(creel):
    """Process ids of creel, its launcher and init, as far as they are there."""
    found = [creel]
    while len(found) < 3 and children(found[-1]):
        found.append(children(found[-1])[0])
    return found


@check
def killed_at_any_moment():
    # How long a run takes to start, to spread the moments over that time.
    began = time.monotonic()
    process = start(*SLEEP)
    assert ready(process)
    span = time.monotonic() - began
    kill(process.pid, signal.SIGTERM)
    finish(process)
    victims = [(0,), (1,), (2,), (0, 1), (1, 0), (0, 1, 2), (2, 1, 0)]
    moments = 6
    for which, n in itertools.product(victims, range(moments)):
        began = time.monotonic()
        process = start(*SLEEP)
        time.sleep(max(0, began + span * (n + 0.5) / moments - time.monotonic()))  # the moment is what is tested
        found = tree(process.pid)
        hit = [v for v in which if v < len(found)]
        for v in hit:
            kill(found[v])
        if hit and 0 not in hit:
            stdout, stderr = process.communicate(timeout=WAIT)
            same(process.returncode, 125, f"{which} at {n}: {stdout}{stderr}")
            same(json.loads(stdout)["error_category"], "sandbox_error", stdout)
        else:
            kill(process.pid)
            process.communicate(timeout=WAIT)
    gc_when_all_are_dead()
    nothing_left()


@check
def the_next_run_cleans_too():
    process = start(*SLEEP)
    assert ready(process)
    (launcher,) = children(process.pid)
    kill_both(process.pid, launcher)
    process.communicate(timeout=WAIT)
    until(lambda: not left_alive(), "the end of the sandbox")
    report = run("-c", "pass").ok()
    assert any("earlier runs that were killed: 1" in note for note in report["notes"]), report
    nothing_left()


@check
def fifty_at_once():
    code = "import os, sys\nprint(sys.argv[1])\nopen('/outputs/' + sys.argv[1], 'w').write(open('/proc/self/uid_map').read())"
    script = "/tmp/fifty.py"
    with open(script, "w") as f:
        f.write(code)
    runs = [start(script, "--", f"r{n}") for n in range(50)]
    users = set()
    for n, process in enumerate(runs):
        report = finish(process).ok().enforces_all()
        same((report["stdout"], [p["path"] for p in report["produced"]]), (f"r{n}\n", [f"r{n}"]), report)
        users.add(report["enforced"]["user"])
        assert (OUT / f"r{n}").read_text()
    assert len(users) > 1, users
    nothing_left()
