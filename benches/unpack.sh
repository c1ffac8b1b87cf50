#!/bin/bash
# unpack.sh: how long creel takes to unpack a layer, compared with `tar -x` of the same file on the same disk.
#
#   benches/unpack.sh LAYER [ROUNDS] [DIR]
#
# LAYER   a layer as a tar file: plain, .gz or .zst (a blob of the store: /var/lib/creel/images/blobs/sha256/…)
# ROUNDS  how often each of the two runs (default 7); they take turns, in an order that changes with each round
# DIR     where it is unpacked, an absolute path (default: beside LAYER); the disk that is measured
#
# Both run as root, so that tar keeps owners as it would for an image; the layer is read once before, so that it is in the
# page cache. Each run unpacks into a new directory; the last one's is removed and the disk synced before the clock starts,
# so that neither pays for the other. tar is GNU tar, with gzip or zstd as a process of its own where the
# layer is compressed. creel reads, decompresses, hashes (sha256) and writes in one process with two threads. Printed are both
# medians in seconds, their ratio (the promise is at most 1.5), and creel's memory at its peak. Needs root and a Rust tool chain.
set -euo pipefail
layer=${1:+$(realpath -- "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -lt 1 ] || [ $# -gt 3 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "benches/unpack.sh" >&2
  exit 2
fi
rounds=${2:-7} dir=${3:-$(dirname -- "$layer")}
[ "$(id -u)" = 0 ] || { echo 'unpack.sh: run it as root: tar keeps owners only then' >&2; exit 1; }

work=$(mktemp -d "$dir/creel-bench-unpack-XXXXXX")
trap 'rm -rf -- "$work"' EXIT
program=$(cargo test --release --test unpack_speed --no-run --message-format json |
  python3 -c 'import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and m["target"]["name"] == "unpack_speed":
        print(m["executable"])')

clear_up() {
  rm -rf -- "$work/into"
  sync -f "$work"
}

run_tar() {
  local start end
  clear_up
  mkdir "$work/into"
  start=$(date +%s%N)
  tar -C "$work/into" -xf "$layer"
  end=$(date +%s%N)
  echo $(((end - start) / 1000)) >>"$work/tar"
}

run_creel() {
  clear_up
  CREEL_BENCH_LAYER=$layer CREEL_BENCH_INTO=$work/into "$program" --ignored --nocapture >"$work/out"
  awk '$1 == "seconds" { printf "%d\n", $2 * 1000000 }' "$work/out" >>"$work/creel"
  awk '$1 == "memory_mib" { print $2 }' "$work/out" >>"$work/memory"
}

cat -- "$layer" >/dev/null
for ((round = 1; round <= rounds; round++)); do
  if ((round % 2)); then run_tar; run_creel; else run_creel; run_tar; fi
done
grep '^entries' "$work/out"
python3 - "$work" <<'PY'
import statistics, sys
def numbers(name):
    return [int(line) for line in open(f"{sys.argv[1]}/{name}")]
tar, creel = numbers("tar"), numbers("creel")
t, c = statistics.median(tar) / 1e6, statistics.median(creel) / 1e6
print(f"tar   {t:.2f} s  (min {min(tar) / 1e6:.2f}, max {max(tar) / 1e6:.2f})")
print(f"creel {c:.2f} s  (min {min(creel) / 1e6:.2f}, max {max(creel) / 1e6:.2f}), {max(numbers('memory'))} MiB at the peak")
print(f"ratio {c / t:.2f}")
PY
