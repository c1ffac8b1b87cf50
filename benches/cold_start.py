"""Cold start side by side: `make bench`. See README.md beside this file."""

import argparse
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time

import facts
import peers
import tables
import worker

PYTHON = ["/usr/bin/python3", "-I", "-S", "-c", "pass"]
TRUE = ["/bin/true"]
WORK = {"python": PYTHON, "true": TRUE}
# creel's own split and the reasons for absences must fit in the time left after the rounds.
RESERVE_SECONDS = 15
SPLIT_RUNS = 30


class CreelFailed(Exception):
    pass


def main():
    args = arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    deadline = time.monotonic() + args.budget
    report = {"machine": facts.machine(), "load_before": os.getloadavg(), "seed": args.seed, "rounds": args.rounds, "warm_up": args.warm_up}
    with Bench(args) as bench:
        try:
            bench.check_creel(report)
            bench.gather(report)
            tables.machine(report)
            share = (deadline - time.monotonic() - RESERVE_SECONDS) / len(WORK)
            for name, command in WORK.items():
                report[name] = bench.measure(command, share)
                tables.times(report, name, command)
            report["split"] = bench.split()
            tables.split(report)
            report["idle"] = bench.idle()
            tables.idle(report)
            code = 0
        except CreelFailed as failure:
            print(f"creel failed: {failure}", file=sys.stderr)
            report["creel_failed"] = str(failure)
            code = 1
    report["left_behind"] = bench.left
    report["load_after"] = os.getloadavg()
    if code == 0:
        tables.verdict(report)
    for line in bench.left:
        print(f"left behind: {line}", file=sys.stderr)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    return code


def arguments():
    parser = argparse.ArgumentParser(prog="run.sh", description="Compares the cold start of creel with its peers, in one run.")
    parser.add_argument("--creel", required=True, help="the creel binary (run.sh sets it)")
    parser.add_argument("--nsjail", help="an nsjail binary (run.sh sets it)")
    parser.add_argument("--profile", required=True, help="creel's seccomp profile, for the peers (run.sh sets it)")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="counted rounds (60)")
    parser.add_argument("--warm-up", type=int, default=5, metavar="N", help="rounds that are run first and dropped (5)")
    parser.add_argument("--pause", type=float, default=10, metavar="MS", help="rest before each run, for the last one's teardown (10)")
    parser.add_argument("--budget", type=float, default=170, metavar="S", help="stop early after so many seconds in all (170)")
    parser.add_argument("--only", metavar="NAMES", help="these contestants only, comma-separated; bare and creel always")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"), help="for the order in each round")
    parser.add_argument("--json", metavar="FILE", help="write all samples and facts there")
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("run me as root: limits and the peers need it")
    if args.rounds < 1 or args.warm_up < 0:
        parser.error("--rounds must be at least 1, --warm-up at least 0")
    return args


class Bench:
    """Everything that must be taken away again."""

    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.left = []
        self.workers = {}
        self.started = []

    def __enter__(self):
        # Readable for the ids that the peers map to.
        self.directory = tempfile.mkdtemp(prefix="creel-bench-")
        os.chmod(self.directory, 0o755)
        self.group = peers.Group(f"creel-bench-{os.getpid()}", facts.cgroup_mounts())
        try:
            self.workers[False] = worker.Worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for pid in self.started:
            stop(pid, signal.SIGKILL)
        for each in self.workers.values():
            each.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        if os.path.exists(self.directory):
            self.left.append(self.directory)
        self.left += self.group.remove()

    def check_creel(self, report):
        """One run with --json: everything must really be enforced before anything is timed."""
        try:
            self.creel = peers.Creel(self.args.creel)
        except peers.Absent as reason:
            raise CreelFailed(reason) from reason
        done = self.creel_json(PYTHON)
        report["creel_report"] = done
        missing = [key for key, by in done["enforced"].items() if by == "unenforced"]
        if missing:
            raise CreelFailed(f"not everything is enforced on this host: {', '.join(missing)}")

    def gather(self, report):
        """Sets up the contestants; each runs both commands once, and one more time under observation."""
        with open(self.args.profile, encoding="utf-8") as file:
            profile = json.load(file)
        hybrid = facts.hybrid_points()
        mounts = facts.cgroup_mounts()
        oci = lambda tool, private: peers.Oci(tool, self.directory, self.group, profile, private)
        made = {
            "bare": peers.Bare,
            "bubblewrap": peers.Bubblewrap,
            "nsjail": lambda: peers.Nsjail(self.args.nsjail, self.group, mounts, profile),
            "crun": lambda: oci("crun", bool(hybrid)),
            "runc": lambda: oci("runc", False),
            "creel": lambda: self.creel,
        }
        wanted = set(self.args.only.split(",")) | {"bare", "creel"} if self.args.only else set(made)
        self.contestants, self.absent = {}, {}
        for name, make in made.items():
            try:
                if name not in wanted:
                    raise peers.Absent("not asked for (--only)")
                peer = make()
                if peer.private and True not in self.workers:
                    try:
                        self.workers[True] = worker.Worker(hybrid)
                    except OSError as error:
                        raise peers.Absent(f"needs a private mount namespace without {hybrid[0]}: {error}") from error
                for command in WORK.values():
                    self.try_out(peer, command)
                self.contestants[name] = peer
            except peers.Absent as reason:
                if name == "creel":
                    raise CreelFailed(reason) from reason
                self.absent[name] = str(reason)
        report["versions"] = {name: peer.version for name, peer in self.contestants.items()}
        report["absent"] = self.absent
        report["commands"] = {name: peer.argv(PYTHON) for name, peer in self.contestants.items()}
        report["holds"] = {name: self.observe(peer) for name, peer in self.contestants.items()}

    def run(self, peer, command, stderr=None):
        return self.workers[peer.private].run(peer.argv(command), stderr=stderr)

    def try_out(self, peer, command):
        log = os.path.join(self.directory, "stderr")
        try:
            done = self.run(peer, command, stderr=log)
        except OSError as error:
            raise peers.Absent(f"does not start: {error}") from error
        if done["code"] != 0:
            reason = "hung" if done["code"] is None else f"exit code {done['code']}"
            raise peers.Absent(f"{reason}: {peers.explain(facts.read(log))}")

    def observe(self, peer):
        """What holds in a running sandbox of this contestant, seen from outside."""
        if peer.private:
            # Its set-up is only possible where the worker is; it is looked at from there.
            return self.observe_in(peer)
        return self.observe_here(peer)

    def observe_in(self, peer):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                worker.leave_mounts(facts.hybrid_points())
                os.write(write, json.dumps(self.observe_here(peer)).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        return json.loads(text) if text else None

    def observe_here(self, peer):
        cookie = f"creel-bench-{os.getpid()}-{os.urandom(4).hex()}"
        command = [*PYTHON[:-1], f"import time; print(1, flush=True); time.sleep(60) # {cookie}"]
        with Running(self, peer.argv(command)) as running:
            if not running.wait_for_output(10):
                return None
            inside = [pid for pid in (running.pid, *facts.descendants(running.pid)) if cookie in command_line(pid)]
            # The innermost: the contestant itself has the command in its own arguments.
            return facts.what_holds(inside[-1]) if inside else None

    def measure(self, command, seconds):
        """Rounds of one run each, in another order each time: {name: [sample]}."""
        until = time.monotonic() + seconds
        samples = {name: [] for name in self.contestants}
        failed = {}
        rounds = 0
        for number in range(-self.args.warm_up, self.args.rounds):
            order = list(samples)
            self.random.shuffle(order)
            for name in order:
                time.sleep(self.args.pause / 1000)
                done = self.run(self.contestants[name], command)
                if done["code"] != 0:
                    if name == "creel":
                        raise CreelFailed(f"run {number} of {' '.join(command)} ended with {done['code']}")
                    failed[name] = f"round {number}: exit code {done['code']}"
                    del samples[name]
                    continue
                if number >= 0:
                    samples[name].append({"ms": done["ns"] / 1e6, "cpu_ms": done["cpu_us"] / 1e3})
            rounds += number >= 0
            if time.monotonic() > until:
                break
        return {"rounds": rounds, "samples": samples, "failed": failed}

    def split(self):
        """creel's own account of its time, beside the wall clock of the same runs."""
        rows = []
        for _ in range(min(SPLIT_RUNS, self.args.rounds)):
            time.sleep(self.args.pause / 1000)
            done = self.creel_json(PYTHON)
            rows.append({"wall": done["wall_ms"], **done["timings_ms"]})
        return rows

    def creel_json(self, command):
        out, err = (os.path.join(self.directory, name) for name in ("stdout", "stderr"))
        argv = [self.creel.binary, "run", "--json", "--", *command]
        done = self.workers[False].run(argv, stdout=out, stderr=err)
        text = facts.read(out)
        try:
            found = json.loads(text)
        except ValueError as error:
            raise CreelFailed(f"no report (exit code {done['code']}): {facts.read(err).strip()}") from error
        if done["code"] != 0 or found["error_category"] != "ok":
            raise CreelFailed(f"{found['error_category']}: {(found['error'] or {}).get('message', '')}")
        found["wall_ms"] = done["ns"] / 1e6
        return found

    def idle(self):
        """Memory of the processes around one sandbox that waits."""
        argv = [self.creel.binary, "run", "-c", "import time; print(1, flush=True); time.sleep(60)"]
        with Running(self, argv) as running:
            if not running.wait_for_output(20):
                raise CreelFailed("the idle sandbox did not start")
            # Until the last page of the start-up has been touched.
            time.sleep(0.3)
            launcher = only(facts.children(running.pid), "launcher")
            init = only(facts.children(launcher), "init")
            found = {"launcher": facts.pss(launcher), "init": facts.pss(init), "cli": facts.pss(running.pid)}
        if not all(found.values()):
            raise CreelFailed("cannot read smaps_rollup of the launcher or init")
        return found


class Running:
    """A contestant in the background; ended with SIGTERM, and by SIGKILL if that does not help."""

    def __init__(self, bench, argv):
        self.bench = bench
        self.output, write = os.pipe()
        self.pid = worker.start(argv, worker.ENVIRONMENT, stdout=write)
        bench.started.append(self.pid)
        os.close(write)

    def __enter__(self):
        return self

    def wait_for_output(self, seconds):
        ready, _, _ = select.select([self.output], [], [], seconds)
        return bool(ready and os.read(self.output, 100))

    def __exit__(self, *_):
        below = facts.descendants(self.pid)
        if os.path.basename(command_line(self.pid).split("\0")[0]) in ("crun", "runc", "bwrap"):
            # These pass a SIGTERM on to a program that is PID 1 and ignores it, or die and leave it: end the program, they follow.
            for pid in reversed(below):
                send(pid, signal.SIGKILL)
        else:
            send(self.pid, signal.SIGTERM)
        stop(self.pid, signal.SIGKILL, patience=10)
        self.bench.started.remove(self.pid)
        os.close(self.output)


def command_line(pid):
    return facts.read(f"/proc/{pid}/cmdline")


def only(pids, what):
    if len(pids) != 1:
        raise CreelFailed(f"expected one {what} process, found {len(pids)}")
    return pids[0]


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop(pid, number, patience=0.0):
    """Waits for a child of ours to end, then makes it."""
    until = time.monotonic() + patience
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() >= until:
            send(pid, number)
            os.waitpid(pid, 0)
            return
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
