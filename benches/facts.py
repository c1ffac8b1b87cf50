"""What this machine is, and what really holds in a running sandbox, as /proc shows both."""

import glob
import os
import platform

NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def cgroup_mounts():
    """[(mount point, set of v1 controllers, or None for v2)], as seen by this process."""
    found = []
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append((left.split(" ")[4], None if kind == "cgroup2" else set(options.split(","))))
    return found


def hybrid_points():
    """cgroup v2 mounts beside v1 ones: what crun does not want to see."""
    mounts = cgroup_mounts()
    if all(controllers is None for _, controllers in mounts):
        return []
    return [point for point, controllers in mounts if controllers is None]


def machine():
    cpu = [line.split(":", 1)[1].strip() for line in read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory = [int(line.split()[1]) for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    layout = {point: "v2" if c is None else "v1:" + ",".join(sorted(c - {"rw"})) for point, c in cgroup_mounts()}
    return {
        "kernel": platform.release(),
        "cpu": cpu[0] if cpu else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mib": memory[0] // 1024 if memory else None,
        "hypervisor": "hypervisor" in read("/proc/cpuinfo"),
        "cgroups": layout,
        "cgroup_layout": "hybrid" if hybrid_points() else "v2" if "v2" in layout.values() else "v1" if layout else "none",
        "mounts": len(read("/proc/self/mountinfo").splitlines()),
    }


def status(pid):
    """Fields of /proc/PID/status."""
    return dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)


def parent(pid):
    return int(status(pid).get("PPid", 0))


def children(pid):
    pids = [int(p) for path in glob.glob(f"/proc/{pid}/task/*/children") for p in read(path).split()]
    if pids or os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return pids
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and parent(p) == pid]


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def what_holds(pid):
    """How process `pid` is confined, seen from the host."""
    fields = status(pid)
    other = []
    for name in NAMESPACES:
        try:
            if os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"):
                other.append(name)
        except OSError:
            pass
    capabilities = {key: fields[key] for key in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb") if key in fields}
    return {
        "namespaces": other,
        "host_uid": int(fields.get("Uid", "0").split()[0]),
        "no_capabilities": all(int(value, 16) == 0 for value in capabilities.values()),
        "no_new_privs": fields.get("NoNewPrivs") == "1",
        "seccomp": fields.get("Seccomp") == "2",
        "limits": limits(pid),
    }


def limits(pid):
    """The memory, pids and cpu limits of `pid`'s cgroups that are not the host's own: those set by nobody above this process."""
    ours = _limits("self")
    return {key: value for key, value in _limits(pid).items() if ours.get(key) != value}


def _limits(pid):
    found = {}
    groups = {}
    for line in read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            groups[name] = path
    for point, controllers in cgroup_mounts():
        if controllers is None:
            here = point + groups.get("", "/")
            _note(found, "memory", read(here + "/memory.max"))
            _note(found, "pids", read(here + "/pids.max"))
            quota = read(here + "/cpu.max").split()
            _note(found, "cpu", _share(*quota) if quota else "")
            continue
        for name in controllers & {"memory", "pids", "cpu"}:
            here = point + groups.get(name, "/")
            if name == "memory":
                _note(found, name, read(here + "/memory.limit_in_bytes"))
            elif name == "pids":
                _note(found, name, read(here + "/pids.max"))
            else:
                _note(found, name, _share(read(here + "/cpu.cfs_quota_us"), read(here + "/cpu.cfs_period_us")))
    return found


def _share(quota, period):
    try:
        return str(int(quota) / int(period)) if int(quota) > 0 else ""
    except ValueError:
        return ""


def _note(found, key, text):
    text = text.strip()
    # v1 says "no memory limit" with a number near 2**63.
    if text and text != "max" and not (key == "memory" and int(text) > 1 << 60):
        found[key] = text


def pss(pid):
    """{"pss", "rss", "private"} in KiB."""
    fields = {}
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]:
        name, value = line.split(":")
        fields[name] = int(value.split()[0])
    if "Pss" not in fields:
        return None
    private = fields.get("Private_Clean", 0) + fields.get("Private_Dirty", 0)
    return {"pss": fields["Pss"], "rss": fields["Rss"], "private": private}
