"""What is printed: tables of medians, and the verdict."""

import statistics
import sys


def machine(report):
    m = report["machine"]
    virtual = ", virtual machine" if m["hypervisor"] else ""
    print(f"{m['cpu']}, {m['cpus']} CPUs{virtual}; Linux {m['kernel']}; cgroups: {m['cgroup_layout']}; {m['mounts']} mounts")
    print(f"load before: {' '.join(f'{x:.2f}' for x in report['load_before'])}; seed {report['seed']}")
    print("\nWhat holds in each, seen from the host:")
    head = ["", "namespaces", "host uid", "no caps", "no_new_privs", "seccomp", "memory", "pids", "cpu", "version"]
    rows = []
    for name, version in report["versions"].items():
        holds = report["holds"][name]
        if holds is None:
            rows.append([name, "could not be looked at", *[""] * 7, version])
            continue
        yes = lambda key, holds=holds: "yes" if holds[key] else "-"
        limits = holds["limits"]
        memory = f"{int(limits['memory']) >> 20} MiB" if "memory" in limits else "-"
        rows.append(
            [name, " ".join(holds["namespaces"]) or "-", str(holds["host_uid"]), yes("no_capabilities"), yes("no_new_privs")]
            + [yes("seccomp"), memory, limits.get("pids", "-"), limits.get("cpu", "-"), version]
        )
    print_rows(head, rows, left={0, 1, 9})
    sys.stdout.flush()


def median(values):
    return statistics.median(values)


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))]


def series(report, work, name):
    return [sample["ms"] for sample in report[work]["samples"].get(name, [])]


def paired(report, work, name, base):
    """Median over the rounds of time / time of `base` in the same round."""
    ours, theirs = series(report, work, name), series(report, work, base)
    return median([a / b for a, b in zip(ours, theirs)]) if ours and theirs else None


def times(report, work, command):
    data = report[work]
    print(f"\n{' '.join(command)}: {data['rounds']} rounds, milliseconds")
    head = ["", "median", "p95", "min", "x bare", "x bubblewrap"]
    rows = []
    ratio = lambda value: "-" if value is None else f"{value:.2f}"
    for name in sorted(data["samples"], key=lambda n: median(series(report, work, n))):
        values = series(report, work, name)
        rows.append(
            [name, f"{median(values):.2f}", f"{percentile(values, 0.95):.2f}", f"{min(values):.2f}"]
            + [ratio(paired(report, work, name, base)) for base in ("bare", "bubblewrap")]
        )
    print_rows(head, rows, left={0})
    for name, reason in {**report["absent"], **data["failed"]}.items():
        print(f"  {name}: not measured: {reason}")
    if data["rounds"] < 30:
        print(f"  only {data['rounds']} rounds: too few for a verdict")
    sys.stdout.flush()


def split(report):
    rows = report["split"]
    part = lambda key: median([row[key] for row in rows])
    known = ("launch", "run", "harvest", "clean")
    lines = [
        ("process start and end", "wall clock less total", median([r["wall"] - r["total"] for r in rows])),
        ("prepare", "arguments known, before the launcher is forked", median([r["total"] - sum(r[k] for k in known) for r in rows])),
        ("launch", "fork of the launcher until the program is executed", part("launch")),
        ("  of it stage", "inputs", part("stage")),
        ("run", "execve until everything in the sandbox is dead", part("run")),
        ("harvest", "", part("harvest")),
        ("clean", "", part("clean")),
        ("total", "", part("total")),
        ("wall clock", "", part("wall")),
    ]
    print(f"\nHow creel's time splits, python, {len(rows)} runs with --json, medians in ms")
    print_rows(["", "", ""], [[name, f"{value:.2f}", what] for name, what, value in lines], left={0, 2})
    bare = median(series(report, "python", "bare"))
    print(f"  (bare python takes {bare:.2f}, so {part('run') - bare:.2f} of run is the sandbox, its end and its limits)")


def idle(report):
    idle = report["idle"]
    print("\nMemory around one idle sandbox, KiB")
    rows = [[name, *(str(idle[name][key]) for key in ("pss", "private", "rss"))] for name in ("launcher", "init")]
    rows.append(["sum", *(str(idle["launcher"][k] + idle["init"][k]) for k in ("pss", "private", "rss"))])
    rows.append(["creel run itself", *(str(idle["cli"][key]) for key in ("pss", "private", "rss"))])
    print_rows(["", "PSS", "private", "RSS"], rows, left={0})


def verdict(report):
    word = lambda yes: "-" if yes is None else "yes" if yes else "no"
    ours = median(series(report, "python", "creel"))
    crun = series(report, "python", "crun")
    ratio = paired(report, "python", "creel", "bare")
    bubblewrap = paired(report, "python", "creel", "bubblewrap")
    pss = report["idle"]["launcher"]["pss"] + report["idle"]["init"]["pss"]
    beats_crun = ours < median(crun) if crun else None
    report["verdict"] = {
        "below_crun": beats_crun,
        "ratio_to_bare": ratio,
        "ratio_to_bubblewrap": bubblewrap,
        "pss_kib": pss,
    }
    print()
    print(f"reach: creel < crun: {word(beats_crun)}" + (f" ({ours:.2f} and {median(crun):.2f} ms)" if crun else ""))
    print(f"reach: creel < 2.0x bare: {word(ratio < 2.0)} ({ratio:.2f})")
    print(f"aim: < 1.4x bare: {word(ratio < 1.4)} ({ratio:.2f})")
    shown = "" if bubblewrap is None else f" ({bubblewrap:.2f}x)"
    print(f"aim: creel < bubblewrap: {word(None if bubblewrap is None else bubblewrap < 1.0)}{shown}")
    print(f"reach: PSS < 3 MiB: {word(pss < 3 * 1024)} ({pss} KiB)")
    print(f"load after: {' '.join(f'{x:.2f}' for x in report['load_after'])}")
    if report["load_before"][0] > report["machine"]["cpus"] / 2:
        print("  the machine was busy before this began: every hand-over between processes waited for a CPU; measure again when it is idle")


def print_rows(head, rows, left):
    table = [head, *rows] if any(head) else rows
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = [c.ljust(w) if n in left else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths))]
        print(("  " + "  ".join(cells)).rstrip())
