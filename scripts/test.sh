#!/bin/bash
# test.sh [full]: installs what the tests need, builds, runs all tests and looks whether anything of ours is left on
# the host. `full` adds what takes longer: ignored tests, the tests with the release build, the guests' self-check.
# The test runner's summary comes last.
#
# The tests drive creel as root: as an ordinary user, each test program is started with sudo; cargo never is.
set -euo pipefail
name='make test'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
full=${1:-}

need_rust
need_root 'the tests drive creel as root'
began=$(now_ms)
scripts/packages.sh scripts/packages-run.txt scripts/packages-image.txt scripts/packages-test.txt tests/vm/packages
say "packages: $(took "$began")"

# --- what is to be tidied up, whatever happens ---------------------------------------

work=$(mktemp -d /tmp/creel-make-test.XXXXXX)
background=()
# shellcheck disable=SC2317 # the trap calls it
tidy() {
  local pid
  trap '' INT TERM HUP
  for pid in "${background[@]}"; do
    "${root[@]}" kill -TERM "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
  done
  "${root[@]}" rm -rf --one-file-system -- "$work"
}
trap tidy EXIT
trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM

# --- the guests' kernels, beside the build ----------------------------------------------

# Built or fetched once and kept: seconds when they are there.
started=$(now_ms)
"${root[@]}" nice -n 10 tests/vm/uml-build.sh </dev/null >"$work/uml.log" 2>&1 & uml=$!
"${root[@]}" nice -n 10 tests/vm/qemu-prepare.sh </dev/null >"$work/qemu.log" 2>&1 & qemu=$!
background=("$uml" "$qemu")

# --- build ------------------------------------------------------------------------------

# nextest runs each test in a process of its own and ends those that hang. cargo's own runner will do where it can't
# be had.
runner=nextest
if ! cargo nextest --version >/dev/null 2>&1; then
  say 'cargo-nextest is missing: building it (some minutes, once)'
  # From / : this repository's settings for cargo are not for others' programs.
  if ! (cd / && cargo install cargo-nextest --locked --debug) >"$work/nextest.log" 2>&1; then
    tail -n 5 "$work/nextest.log" >&2
    say 'cargo-nextest could not be built: going on with cargo test'
    runner=plain
  fi
fi
kinds=(debug)
[ "$full" != full ] || kinds+=(release)

# tests KIND build|run: with the chosen runner
tests() {
  local command=()
  case $2.$runner in
    # .config/nextest.toml has the rest
    build.nextest) command=(cargo nextest run --locked --no-run) ;;
    run.nextest)   command=(cargo nextest run --locked) ;;
    build.plain)   command=(cargo test --locked --no-run) ;;
    run.plain)     command=(cargo test --locked --no-fail-fast) ;;
  esac
  [ "$1" = debug ] || command+=(--release)
  case $2.$runner.$full in
    run.nextest.full) command+=(--run-ignored all) ;;
    run.plain.full)   command+=(-- --include-ignored) ;;
  esac
  "${command[@]}"
}

built=$(now_ms)
for kind in "${kinds[@]}"; do tests "$kind" build; done
say "build: $(took "$built")"

kernels() {
  local lane=$1 pid=$2
  wait "$pid" || { cat "$work/$lane.log" >&2; die "no $lane kernel for the tests in tests/vm"; }
}
kernels uml "$uml"
kernels qemu "$qemu"
background=()
say "kernels for the guests: $(took "$started") beside the build"

# --- run --------------------------------------------------------------------------------

if [ "$(id -u)" != 0 ]; then
  triple=$(host_triple | tr 'a-z-' 'A-Z_')
  export "CARGO_TARGET_${triple}_RUNNER=sudo -E --"
fi
# A directory for temporary files that nobody else uses, so that whatever is left there is ours. Other users' tests
# reach it too.
temporary=$work/tmp
chmod 755 "$work"
mkdir -m 1777 "$temporary"
mark=$(cat /proc/sys/kernel/random/uuid)
look() {
  "${root[@]}" env LEFTOVERS_MARK="$mark" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}" \
    scripts/leftovers.sh "$1" "$work/before" "$temporary"
}
look snapshot

started=$(now_ms)
status=0
for kind in "${kinds[@]}"; do
  # The summary is said again at the end; what comes before it streams.
  CREEL_TEST_MARK=$mark TMPDIR=$temporary tests "$kind" run 2>&1 | tee "$work/$kind.log" || status=1
done
if [ "$full" = full ]; then
  "${root[@]}" tests/vm/selfcheck.sh || status=1
fi
say "tests: $(took "$started")"

look compare || status=1
say "all of it: $(took "$began")"
[ "$status" = 0 ] || say 'FAILED'

echo
for kind in "${kinds[@]}"; do
  if [ "$runner" = nextest ]; then
    sed -n '/Summary \[/,$p' "$work/$kind.log"
  else
    grep '^test result:' "$work/$kind.log" || :
  fi
done
exit "$status"
