#!/bin/bash
# run-example.sh: installs what is missing, builds creel and runs examples/report.py on examples/sales.csv in a sandbox.
# The files it makes go to outputs/example.
set -euo pipefail
name='make run'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/build.sh
creel=$(creel_binary release)
out=outputs/example
mkdir -p "$out"
prefix=()
if [ "$(id -u)" != 0 ] && ! "$creel" doctor >/dev/null 2>&1; then
  # Not every host lets an ordinary user set limits; root always may.
  if command -v sudo >/dev/null; then
    say 'this host lets no ordinary user enforce all limits (see creel doctor): creel is run with sudo'
    prefix=(sudo --)
  fi
fi
status=0
python3 scripts/show-run.py "${prefix[@]}" "$creel" run --json \
  --input examples/sales.csv --output "$out" examples/report.py || status=$?
if [ ${#prefix[@]} -gt 0 ]; then
  sudo chown -R -- "$(id -u):$(id -g)" "$out"
fi
exit "$status"
