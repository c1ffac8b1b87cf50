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
shellcheck -x scripts/*.sh benches/*.sh .ci/run
# These run in images, and have no first line of their own.
shellcheck -s bash src/build/steps/*.sh rootfs/*/*.sh tests/proofs/*/*.sh
python3 - scripts/*.py examples/*.py benches/*.py src/build/steps/*.py tests/proofs/*.py tests/proofs/*/*.py <<'PY'
import ast, sys
for path in sys.argv[1:]:
    ast.parse(open(path, encoding="utf-8").read(), path)
PY
say 'all is well'
