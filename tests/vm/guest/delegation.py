"""As an ordinary user on pure cgroup v2: with a cgroup delegated the limits hold, without one creel refuses and says what to do."""

import os
import signal
import subprocess

from checks import (
    CREEL, FORKS, LIMITS, ROOT, WAIT, check, children, counter, finish, gc_when_all_are_dead, home, kill, leaves,
    nothing_left, pids_in, ready, refused, run, same, start, the_leaf, until,
)

UID = 1000
ALLOW = ("--allow-unenforced", ",".join(LIMITS))
STATE = home(UID) / ".local/state/creel"


def delegate(name, *files, parent=ROOT):
    """A cgroup that belongs to the user, as cgroup-v2.rst ("Model of Delegation") has it."""
    cgroup = parent / name
    cgroup.mkdir()
    for path in (cgroup, *(cgroup / f for f in files or ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"))):
        os.chown(path, UID, UID)
    return cgroup


def leaf_of(cgroup):
    leaf = cgroup / "leaf"
    if not leaf.is_dir():
        leaf.mkdir()
        for path in (leaf, leaf / "cgroup.procs"):
            os.chown(path, UID, UID)
    return leaf


def remove(cgroup):
    """Removes a cgroup and those below it; they must be empty."""
    for child in [p for p in cgroup.iterdir() if p.is_dir()]:
        remove(child)
    until(lambda: not pids_in(cgroup), f"the end of processes in {cgroup}")
    cgroup.rmdir()


def clean(cgroup):
    nothing_left(ours=cgroup / "creel", state=STATE)


def names_both_ways(line, limits=",".join(LIMITS)):
    assert "Delegate" in line and f"--allow-unenforced {limits}" in line, line


@check
def without_delegation_a_refusal_names_both_ways():
    line = refused("-c", "print(1)", uid=UID, cgroup=ROOT)
    names_both_ways(line)
    # a part is not enough
    names_both_ways(refused("--allow-unenforced", "cpu", "-c", "print(1)", uid=UID, cgroup=ROOT), "memory,pids")
    assert not list((STATE / "runs").glob("*")), "a run was begun"


@check
def without_delegation_the_rest_holds_when_allowed():
    report = run(*ALLOW, "-c", "import os\nprint(os.getuid())", uid=UID, cgroup=ROOT).ok()
    same(report["stdout"], "10001\n")
    same({k: report["enforced"][k] for k in LIMITS}, dict.fromkeys(LIMITS, "unenforced"))
    clean(ROOT)


USER = delegate("user")
ME = {"uid": UID, "cgroup": leaf_of(USER)}


@check
def delegated_limits_hold():
    code = "print(open('/proc/self/cgroup').read())\nopen('/outputs/o', 'w').write('x')"
    report = run("-c", code, **ME).ok().enforces_all()
    same((report["stdout"], report["enforced"]["user"]), ("0::/\n\n", "the caller's uid 1000"), report)
    out = home(UID) / "out/o"
    same((out.read_text(), out.stat().st_uid), ("x", UID))
    clean(USER)


@check
def delegated_memory():
    args = ("--memory", "40m", "--cpus", "1", "-c")
    code = "import os\nif os.fork() == 0:\n    x = bytearray(300 << 20)\n    os._exit(0)\nos.wait()\nprint('went on')"
    report = run(*args, code, **ME).expect("oom", 137, -2)
    assert report["oom_kills"] >= 1 and report["stdout"] == "", report
    report = run("-c", "import os\nos.kill(os.getpid(), 9)", **ME).expect("script_error", 137, 137)
    same(report["oom_kills"], 0)
    clean(USER)


@check
def delegated_pids():
    same(run("--pids", "10", "-c", FORKS, **ME).ok()["stdout"], "9\n")
    clean(USER)


@check
def delegated_cpu():
    process = start("--cpus", "0.1", "-c", "while True: pass", **ME)
    stat = the_leaf(USER / "creel") / "cpu.stat"
    until(lambda: counter(stat, "nr_throttled") >= 2, "throttled twice")
    kill(process.pid, signal.SIGTERM)
    finish(process).expect("cancelled", 130, None)
    clean(USER)


@check
def delegated_disk_by_tmpfs():
    report = run("--memory", "1500m", "-c", "open('/outputs/t', 'w').write('x')", **ME).ok()
    same((report["enforced"]["disk"], [p["path"] for p in report["produced"]]), ("tmpfs", ["t"]), report)
    clean(USER)


@check
def delegated_timeout_and_stubborn_children():
    code = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nif os.fork() == 0: os.setsid()\ntime.sleep(1000)"
    run("--timeout", "1", "-c", code, **ME).expect("timeout", 124, -1)
    clean(USER)


@check
def delegated_and_killed():
    for chosen in ((0,), (1,), (2,), (1, 0)):
        process = start("-c", "import time\ntime.sleep(1000)", **ME)
        assert ready(process)
        (launcher,) = children(process.pid)
        tree = (process.pid, launcher, *children(launcher))
        for n in chosen:
            kill(tree[n])
        process.communicate(timeout=WAIT)
        same(process.returncode, -9 if 0 in chosen else 125, chosen)
    gc_when_all_are_dead(**ME)
    clean(USER)


@check
def delegated_ten_at_once():
    for process in [start("-c", "print('x')", **ME) for _ in range(10)]:
        same(finish(process).ok().enforces_all()["stdout"], "x\n")
    clean(USER)


@check
def nothing_but_our_directory_in_the_users_cgroup():
    same(sorted(p.name for p in USER.iterdir() if p.is_dir()), ["creel", "leaf"])
    same([p.name for p in (USER / "creel").iterdir() if p.is_dir()], ["init"])
    remove(USER)


@check
def alone_in_a_delegated_scope():
    # systemd-run --scope -p Delegate=yes: the process itself stands in the cgroup that it was given, which then can't hand on controllers
    scope = delegate("scope")
    report = run("--memory", "40m", "--cpus", "1", "-c", "x = bytearray(300 << 20)", uid=UID, cgroup=scope)
    report.expect("oom", 137, -2).enforces_all()
    clean(scope)
    remove(scope)


@check
def alone_in_a_scope_below_a_delegated_one():
    # user@1000.service with app.slice/x.scope in it: the topmost is taken
    service = delegate("service")
    (service / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    scope = delegate("x.scope", parent=service)
    run("-c", "print(1)", uid=UID, cgroup=scope).ok().enforces_all()
    same(sorted(p.name for p in service.iterdir() if p.is_dir()), ["creel", "x.scope"])
    clean(service)
    remove(service)


@check
def a_shared_scope_is_not_divided():
    scope = delegate("shared")
    other = subprocess.Popen(["sh", "-c", f"echo $$ > {scope}/cgroup.procs; exec sleep 1000"])
    until(lambda: other.pid in pids_in(scope), "the other process")
    line = refused("-c", "print(1)", uid=UID, cgroup=scope)
    names_both_ways(line)
    assert "other processes" in line, line
    same(pids_in(scope), [other.pid])
    same([p.name for p in scope.iterdir() if p.is_dir()], [])
    kill(other.pid)
    other.wait()
    remove(scope)


@check
def a_missing_controller_is_named():
    part = ROOT / "part"
    part.mkdir()
    (part / "cgroup.subtree_control").write_text("+memory +pids")
    cgroup = delegate("user", parent=part)
    me = {"uid": UID, "cgroup": leaf_of(cgroup)}
    names_both_ways(refused("-c", "print(1)", **me), "cpu")
    report = run("--allow-unenforced", "cpu", "-c", "print(1)", **me).ok()
    same({k: report["enforced"][k] for k in LIMITS}, {"memory": "cgroup2", "pids": "cgroup2", "cpu": "unenforced"})
    clean(cgroup)
    remove(part)


@check
def half_a_delegation_is_none():
    # only cgroup.procs: no cgroup could be made there
    half = delegate("half", "cgroup.procs")
    os.chown(half, 0, 0)
    names_both_ways(refused("-c", "print(1)", uid=UID, cgroup=half))
    remove(half)


@check
def a_read_only_cgroup_mount_is_refused_as_root_too():
    # as in most containers
    script = "mount --make-rprivate / && mount -o remount,bind,ro /sys/fs/cgroup && exec \"$@\""
    command = ["unshare", "-m", "sh", "-c", script, "sh", CREEL, "run", "--output", "/tmp/none", "-c", "print(1)"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT)
    same((done.returncode, done.stdout), (125, ""), done.stderr)
    names_both_ways(done.stderr)


@check
def no_cgroup_mount_is_refused():
    script = "mount --make-rprivate / && umount -l /sys/fs/cgroup && exec \"$@\""
    command = ["unshare", "-m", "sh", "-c", script, "sh", CREEL, "run", "--output", "/tmp/none", "-c", "print(1)"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT)
    same((done.returncode, done.stdout), (125, ""), done.stderr)
    assert "mount -t cgroup2" in done.stderr and f"--allow-unenforced {','.join(LIMITS)}" in done.stderr, done.stderr


@check
def in_a_cgroup_namespace():
    # a container with a cgroup of its own: what it sees as the root is a cgroup with a process in it
    box = ROOT / "box"
    box.mkdir()
    script = (
        "echo $$ > /sys/fs/cgroup/box/cgroup.procs && exec unshare -C -m sh -c 'mount --make-rprivate / && "
        'umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"\' sh "$@"'
    )
    command = ["sh", "-c", script, "sh", CREEL, "run", "--output", "/tmp/none", "-c", "print(1)"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT)
    same((done.returncode, done.stdout), (0, "1\n"), done.stderr)
    same([p.name for p in leaves(box / "creel")], [])
    remove(box)
