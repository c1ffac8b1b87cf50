#!/bin/bash
# soak.sh: a storm of good and hostile programs, cancels and killed launchers, inits and zygotes against one daemon's executor, for
# CREEL_SOAK_MINUTES (10) or CREEL_SOAK_RUNS; then whether anything of it is left on the host. CREEL_SOAK_SEED repeats the choices of a
# storm, which prints it first. CREEL_SOAK_IMAGE (host, or the path of a bundle) and CREEL_SOAK_PRELOAD (modules, with commas) say what
# the sandboxes are made of.
set -euo pipefail
name='make soak'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
need_root 'the storm drives creel as root'
scripts/packages.sh scripts/packages-run.txt
[ -n "${CREEL_SOAK_RUNS:-}" ] || export CREEL_SOAK_MINUTES=${CREEL_SOAK_MINUTES:-10}

work=$(mktemp -d /tmp/creel-make-soak.XXXXXX)
# Another one than the storm's: what is left in it is found.
chmod 755 "$work"
mkdir -m 1777 "$work/tmp"
trap '"${root[@]}" rm -rf --one-file-system -- "$work"' EXIT
mark=$(cat /proc/sys/kernel/random/uuid)
look() {
  "${root[@]}" env LEFTOVERS_MARK="$mark" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}" \
    scripts/leftovers.sh "$1" "$work/before" "$work/tmp"
}

cargo test --locked --no-run --test soak
if [ "$(id -u)" != 0 ]; then
  triple=$(host_triple | tr 'a-z-' 'A-Z_')
  export "CARGO_TARGET_${triple}_RUNNER=sudo -E --"
fi
look snapshot
status=0
CREEL_TEST_MARK=$mark TMPDIR=$work/tmp cargo test --locked --test soak || status=1
look compare || status=1
[ "$status" = 0 ] || say 'FAILED'
exit "$status"
