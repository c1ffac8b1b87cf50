# shellcheck shell=bash
# Shared by the scripts of this directory; sourced, not run.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo" || exit
name=${name:-creel}

say() { echo "$name: $*" >&2; }
die() { say "$*"; exit 1; }

# The scripts call make, and may be called by it: its job server is not for the kernel's.
unset MAKEFLAGS MFLAGS MAKELEVEL

# rustup's place, if the shell that called us was not told of it yet
if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
  PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi

need_rust() {
  command -v cargo >/dev/null || die 'Rust is missing: install Rust 1.90 or newer with rustup (https://rustup.rs), then try again'
}

# need_root WHY: sets `root` to what makes a command run as root: "${root[@]}" COMMAND...
# shellcheck disable=SC2034 # for those who source this
need_root() {
  root=()
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null || die "$1, and there is neither root nor sudo here: run this as root"
  root=(sudo --)
  # asks for the password now, if it must
  sudo true
}

# The triple that cargo builds for (.cargo/config.toml names the host's).
host_triple() { echo "${CARGO_BUILD_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}"; }

# creel_binary PROFILE: where cargo puts the program; PROFILE is debug or release
creel_binary() { echo "$(realpath -m -- "${CARGO_TARGET_DIR:-target}")/$(host_triple)/$1/creel"; }

# now_ms: the time in milliseconds; took MS: what has gone since, as text
now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
took() {
  local ms=$(($(now_ms) - $1))
  printf '%d.%d s\n' $((ms / 1000)) $((ms % 1000 / 100))
}
