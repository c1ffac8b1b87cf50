#!/usr/bin/env python3
"""show-run.py COMMAND...: runs `creel run --json ...` and shows its report to a person.

Exits with creel's exit code.
"""

import json
import os
import subprocess
import sys

PHASES = {
    "queue": "wait for a free place",
    "stage": "put program and inputs in place",
    "launch": "build the sandbox",
    "run": "the program, from its first instruction to its end",
    "harvest": "check and copy what it left in /outputs",
    "clean": "take the sandbox away",
    "total": "all of it",
}


def size(n):
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            break
        n /= 1024
    return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"


def indented(text):
    for line in text.rstrip("\n").split("\n"):
        print("   ", line)


def show(report, directory):
    how = f"{report['error_category']}, exit code {report['exit_code']}, {report['start']} start"
    print(f"\nThe program ended: {how}")
    for stream in ("stdout", "stderr"):
        if report[stream]:
            print(f"\nIts {stream}:")
            indented(report[stream])
    if report["error"]:
        print(f"\nError: {report['error']['code']}: {report['error']['message']}")
    for note in report.get("notes", []):
        print(f"note: {note}")

    print("\nHow long each phase took, in ms:")
    for phase, ms in report["timings_ms"].items():
        print(f"    {phase:8}{ms:10.2f}   {PHASES.get(phase, '')}")

    peak = report["memory_peak_bytes"]
    used = f"{report['cpu_ms']:.0f} ms of CPU" if report["cpu_ms"] is not None else "CPU time unknown"
    used += f", {size(peak)} of memory at most" if peak is not None else ""
    print(f"\nIt used {used}. What held it:")
    for what, how in report["enforced"].items():
        print(f"    {what:12}{how}")

    for skipped in report["skipped"]:
        print(f"not kept: {skipped['name']}: {skipped['reason']}")
    print(f"\nWhat it made, in {os.path.abspath(directory)}:")
    for made in report["produced"]:
        print(f"    {made['path']:16}{size(made['size']):>12}   {made['mime_type']}")


def main():
    command = sys.argv[1:]
    ran = subprocess.run(command, stdout=subprocess.PIPE)
    try:
        report = json.loads(ran.stdout)
    except ValueError:
        # Refused before there was anything to report: creel said why on stderr.
        sys.stdout.flush()
        sys.stdout.buffer.write(ran.stdout)
        return ran.returncode or 1
    show(report, command[command.index("--output") + 1])
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
