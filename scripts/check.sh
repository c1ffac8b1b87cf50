#!/bin/bash
# check.sh: what must hold of the source before a test is run: its form, clippy without a warning, and clean scripts.
set -euo pipefail
name='make check'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
scripts/packages.sh scripts/packages-run.txt scripts/packages-test.txt
for tool in fmt clippy; do
  cargo "$tool" --version >/dev/null 2>&1 ||
    die "cargo $tool is missing: rustup component add rustfmt clippy"
done
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
shellcheck -x scripts/*.sh .ci/run
python3 - scripts/*.py examples/*.py <<'PY'
import ast, sys
for path in sys.argv[1:]:
    ast.parse(open(path, encoding="utf-8").read(), path)
PY
say 'all is well'
