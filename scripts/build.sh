#!/bin/bash
# build.sh: installs what is missing and makes the release build.
set -euo pipefail
name='make build'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
started=$(now_ms)
scripts/packages.sh scripts/packages-run.txt
packages=$(took "$started")
started=$(now_ms)
cargo build --release --locked
say "packages $packages, build $(took "$started")"
