#!/bin/bash
# image-test.sh [--image-prefix PREFIX] [minimal|data|office]...: proves with real files that the images do their work
# (tests/proofs/prove.py says how); without a name, minimal. PREFIX is put before the names: empty for the images of the
# store, /some/where/ for bundle directories. CREEL is the program; IMAGES is another way to give PREFIX.
set -euo pipefail
name='make image-test'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

images=()
while [ $# -gt 0 ]; do
  case $1 in
    --image-prefix) IMAGES=${2?which prefix?}; shift 2 ;;
    --image-prefix=*) IMAGES=${1#*=}; shift ;;
    -*) die "unknown option $1" ;;
    *) images+=("$1"); shift ;;
  esac
done
command -v python3 >/dev/null || die 'python3 is missing'
[ -n "${CREEL:-}" ] || CREEL=$(creel_binary release)
export CREEL IMAGES=${IMAGES:-}
exec python3 -B tests/proofs/prove.py "${images[@]}"
