#!/usr/bin/env python3
"""rootfs.py LAYER...: how an image's layers should lie on disk, measured: plain directory, overlay of layers, EROFS.

    benches/rootfs.py --rounds 15 layers/0-base layers/1-accounts … layers/5-caches
    benches/rootfs.py … --second layers/6-office …      and the density of two images that share the first layers

Bottom layer first; each is a directory. Root only; Linux with file-backed EROFS (6.12) and erofs-utils for those rows. All
mounts are made in a mount namespace of its own. /proc/sys/vm/drop_caches is written before each cold sample: that is for the
whole host. It never judges a time: the exit code is 0 unless a contestant that works elsewhere breaks. benches/README.md says what each number is.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

libc = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
SYS_CACHESTAT = 451
PASS = "pass"
PANDAS = "import pandas"
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}


def mount(source, target, kind, flags, options=""):
    args = [os.fsencode(x) for x in (source, target, kind)]
    if libc.mount(*args, ctypes.c_ulong(flags), options.encode()) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"mount {kind} on {target} ({options}): {os.strerror(errno)}")


def umount(target):
    if libc.umount2(os.fsencode(target), 0) != 0:
        raise OSError(ctypes.get_errno(), f"umount {target}")


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def cached(paths):
    """Bytes of these files and trees that are in the page cache now: cachestat(2), Linux 6.5."""
    total, seen = 0, set()
    whole, stat = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    for top in paths:
        files = [top] if os.path.isfile(top) else (
            os.path.join(d, n) for d, _, names in os.walk(top) for n in names)
        for path in files:
            try:
                st = os.lstat(path)
                if st.st_mode & 0o170000 != 0o100000 or (st.st_dev, st.st_ino) in seen:
                    continue
                seen.add((st.st_dev, st.st_ino))
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                continue
            if libc.syscall(SYS_CACHESTAT, fd, whole, stat, 0) == 0:
                total += stat[0] * 4096
            os.close(fd)
    return total


class Way:
    """One way to keep an image: lowers() mounts what it needs and says which directories are stacked, bottom first."""

    def __init__(self, title, place, sources, kind, options=""):
        self.title, self.place, self.sources, self.kind, self.options = title, place, sources, kind, options
        self.root = os.path.join(place, "root")
        self.mounted = []
        os.makedirs(self.root, exist_ok=True)

    def up(self, below=None):
        """Mounts as creel does: what the image has, under a small top layer, read-only. Returns milliseconds.

        `below`: another way, mounted, whose files for each layer are the first of these; then its mounts are taken for them.
        """
        began = time.perf_counter()
        lowers = list(self.sources)
        if self.kind == "erofs":
            lowers = []
            shared = below.mounted[:-1] if below and self.sources[0] == below.sources[0] else []
            lowers += shared
            for i, image in enumerate(self.sources[len(shared):]):
                at = os.path.join(self.place, f"l{i}")
                os.makedirs(at, exist_ok=True)
                mount(image, at, "erofs", MS_RDONLY | MS_NOSUID | MS_NODEV, self.options)
                self.mounted.append(at)
                lowers.append(at)
        stack = [os.path.join(self.place, "top"), *reversed(lowers)]
        mount("overlay", self.root, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, "lowerdir=" + ":".join(stack))
        self.mounted.append(self.root)
        return (time.perf_counter() - began) * 1000

    def down(self):
        while self.mounted:
            umount(self.mounted.pop())

    def cache_places(self):
        return self.sources + [m for m in self.mounted if m != self.root]

    def start(self, code, out=None):
        pid = os.fork()
        if pid == 0:
            try:
                os.chroot(self.root)
                os.chdir("/")
                if out is not None:
                    os.dup2(out, 1)
                os.setgroups([])
                os.setresgid(10001, 10001, 10001)
                os.setresuid(10001, 10001, 10001)
                os.execve("/usr/bin/python3", ["python3", "-c", code], ENV)
            finally:
                os._exit(127)
        return pid

    def sample(self, code):
        """Milliseconds from fork to the end of `python3 -c code` in this root."""
        began = time.perf_counter()
        pid = self.start(code)
        _, status = os.waitpid(pid, 0)
        took = (time.perf_counter() - began) * 1000
        if status != 0:
            raise RuntimeError(f"{self.title}: {code!r} ended with {status}")
        return took


def size_of(sources):
    seen, total = set(), 0
    for top in sources:
        if os.path.isfile(top):
            total += os.stat(top).st_blocks * 512
            continue
        for d, dirs, names in os.walk(top):
            for n in names + dirs:
                st = os.lstat(os.path.join(d, n))
                if (st.st_dev, st.st_ino) not in seen:
                    seen.add((st.st_dev, st.st_ino))
                    total += st.st_blocks * 512
    return total


def merge(layers, into):
    """All layers as one tree: directories real, files hard links."""
    for layer in layers:
        for d, dirs, names in os.walk(layer):
            target = os.path.normpath(os.path.join(into, os.path.relpath(d, layer)))
            os.makedirs(target, exist_ok=True)
            shutil.copystat(d, target)
            for n in names + [x for x in dirs if os.path.islink(os.path.join(d, x))]:
                at = os.path.join(target, n)
                if os.path.lexists(at):
                    os.unlink(at)
                os.link(os.path.join(d, n), at, follow_symlinks=False)


def erofs(tree, image, *options):
    began = time.monotonic()
    subprocess.run(["mkfs.erofs", "--quiet", *options, image, tree], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def ways(place, layers, label, files=None):
    """All contestants that work here, and why the others don't. `files` keeps the EROFS file of each layer for the second image."""
    files = {} if files is None else files
    made, refused = [], []
    plain = os.path.join(place, f"{label}-plain")
    os.makedirs(plain)
    merge(layers, plain)
    candidates = [("directory (hard links)", [plain], "dir", ""), (f"overlay of {len(layers)} layers", list(layers), "dir", "")]
    if shutil.which("mkfs.erofs"):
        for name, options in (("", []), (" lz4hc", ["-zlz4hc"]), (" zstd", ["-zzstd"])):
            image = os.path.join(place, f"{label}{name.strip() or '-none'}.erofs")
            try:
                took = erofs(plain, image, *options)
            except subprocess.CalledProcessError:
                refused.append(f"EROFS{name}: this mkfs.erofs can't make it")
                continue
            print(f"  {label}: mkfs.erofs{name}: {took:.1f} s", file=sys.stderr)
            candidates += [(f"EROFS{name}", [image], "erofs", ""), (f"EROFS{name}, directio", [image], "erofs", "directio")]
        for i, layer in enumerate(layers):
            if layer not in files:
                files[layer] = os.path.join(place, f"{label}-{i}.erofs")
                erofs(layer, files[layer])
        candidates.append(("EROFS of each layer, directio", [files[x] for x in layers], "erofs", "directio"))
    else:
        refused.append("EROFS: mkfs.erofs is missing (Debian: erofs-utils)")
    for i, (title, sources, kind, options) in enumerate(candidates):
        at = os.path.join(place, f"{label}-way{i}")
        for d in ("proc", "work", "outputs", "inputs", "skill", "tmp"):
            os.makedirs(os.path.join(at, "top", d))
        way = Way(title, at, sources, kind, options)
        try:
            way.up()
            way.sample(PASS)
            made.append(way)
        except (OSError, RuntimeError) as e:
            refused.append(f"{title}: {e}")
        finally:
            way.down()
    return made, refused


def times(all_ways, rounds, seed):
    shuffle = random.Random(seed)
    samples = {w.title: {k: [] for k in ("mount", "pass cold", "pandas cold", "pass warm", "pandas warm", "cache")} for w in all_ways}
    for r in range(rounds + 1):
        shuffle.shuffle(all_ways)
        for w in all_ways:
            got = {}
            drop_caches()
            w.up()
            got["pass cold"] = w.sample(PASS)
            w.down()
            drop_caches()
            w.up()
            got["pandas cold"] = w.sample(PANDAS)
            got["cache"] = cached(w.cache_places())
            w.sample(PANDAS)
            got["pandas warm"] = w.sample(PANDAS)
            w.sample(PASS)
            got["pass warm"] = w.sample(PASS)
            w.down()
            got["mount"] = w.up()
            w.down()
            if r:  # the first round is for the caches of this program
                for k, v in got.items():
                    samples[w.title][k].append(v)
        print(f"  round {r} of {rounds}", file=sys.stderr)
    return samples


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        rows = dict(line.split(":", 1) for line in file.readlines()[1:])
    return tuple(int(rows[k].split()[0]) * 1024 for k in ("Pss", "Pss_File"))


def density(first, second, count):
    """`count` sandboxes that have imported pandas, half on each image: PSS of all, and the page cache of both images' files."""
    drop_caches()
    running, total, of_files = [], 0, 0
    first.up()
    second.up(below=first)
    ends = []
    for i in range(count):
        w = (first, second)[i % 2]
        read, write = os.pipe()
        hold, release = os.pipe()
        os.set_inheritable(hold, True)
        running.append(w.start(f"import pandas, os; os.write(1, b'x'); os.read({hold}, 1)", write))
        os.close(write)
        os.close(hold)
        ends.append(release)
        if os.read(read, 1) != b"x":
            raise RuntimeError(f"{w.title}: import pandas failed")
        os.close(read)
    for pid in running:
        a, b = pss(pid)
        total, of_files = total + a, of_files + b
    page_cache = cached(first.cache_places() + second.cache_places())
    for release in ends:
        os.close(release)
    for pid in running:
        os.waitpid(pid, 0)
    for w in (second, first):
        w.down()
    return total, of_files, page_cache


def p95(values):
    return sorted(values)[min(len(values) - 1, round(0.95 * (len(values) - 1)))]


def main():
    parser = argparse.ArgumentParser(description="how an image's layers should lie on disk")
    parser.add_argument("layers", nargs="+", help="directories, bottom first; the last image of them has pandas")
    parser.add_argument("--second", nargs="+", default=[], help="more layers: a second image on top of the first")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sandboxes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", default="/var/tmp", help="where trees and images are made: the file system of --layers")
    parser.add_argument("--json", help="all samples, to this file")
    args = parser.parse_args()
    if os.environ.get("CREEL_BENCH_NAMESPACE") != "1":
        os.environ["CREEL_BENCH_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    layers = [os.path.abspath(p) for p in args.layers]
    second = layers + [os.path.abspath(p) for p in args.second]
    place = tempfile.mkdtemp(prefix="creel-bench-rootfs-", dir=args.place)
    try:
        print(f"kernel {os.uname().release}, {os.cpu_count()} CPUs, load before {os.getloadavg()[0]:.1f}, {time.strftime('%F %H:%M')}")
        files = {}
        made, refused = ways(place, layers, "first", files)
        samples = times(list(made), args.rounds, args.seed)
        print(f"\n{'medians (p95) of ' + str(args.rounds) + ' rounds, ms':32}{'MB':>6}{'mount':>12}{'pass cold':>14}{'warm':>12}"
              f"{'pandas cold':>16}{'warm':>14}{'MB cached':>11}")
        for w in made:
            s = samples[w.title]
            row = f"{w.title:32}{size_of(w.sources) / 1e6:6.0f}"
            for key, width, digits in (("mount", 12, 2), ("pass cold", 14, 1), ("pass warm", 12, 1), ("pandas cold", 16, 0), ("pandas warm", 14, 0)):
                row += f"{f'{statistics.median(s[key]):.{digits}f} ({p95(s[key]):.{digits}f})':>{width}}"
            print(row + f"{statistics.median(s['cache']) / 1e6:11.0f}")
        if args.second:
            others, more = ways(place, second, "second", files)
            refused += more
            print(f"\n{args.sandboxes} sandboxes with pandas imported, half on each of two images, MB: PSS of all, of that files; page cache of the images' files")
            for a, b in zip(made, others):
                got = [density(a, b, args.sandboxes) for _ in range(3)]
                middle = [statistics.median(x) / 1e6 for x in zip(*got)]
                print(f"{a.title:32}{middle[0]:8.0f}{middle[1]:8.0f}{middle[2]:8.0f}")
                samples[a.title]["density"] = got
        for line in refused:
            print("not measured:", line)
        print(f"load after {os.getloadavg()[0]:.1f}")
        if args.json:
            with open(args.json, "w") as file:
                json.dump(samples, file)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
