# Shared by the scripts of this directory; sourced, not run.

CREEL_VM_CACHE=${CREEL_VM_CACHE:-/var/cache/creel-vm}

say() { echo "$name: $*" >&2; }
die() { local rc=$1; shift; say "$*"; exit "$rc"; }

# quote TEXT: TEXT as one word for any POSIX shell
quote() {
  local q="'\\''"
  printf "'%s'" "${1//\'/"$q"}"
}

# The stable name of a built kernel: it depends on what it is made from, so a
# changed recipe is never run with an old kernel.
recipe() { cat "$@" | sha256sum | cut -c1-12; }
uml_link() { echo "$CREEL_VM_CACHE/uml-$(recipe "$here/uml.config" "$here/uml.patch")"; }
qemu_link() { echo "$CREEL_VM_CACHE/qemu-$1-$(recipe "$here/qemu-prepare.sh")"; }

# --- children and cleaning up -------------------------------------------------

group='' work=''

# run_group COMMAND...: in a process group of its own, which dies with this
# script; sets group_status. (Not for use after || or in an if: bash would then
# ignore "set -e" in COMMAND.)
run_group() {
  group_status=0
  set -m; "$@" 9>&- & group=$!; set +m
  wait "$group" || group_status=$?
  group=''
}

clean_up() {
  trap '' INT TERM HUP
  if [ -n "$group" ]; then
    kill -KILL -- "-$group" 2>/dev/null || :
    wait "$group" 2>/dev/null || :
  fi
  [ -z "$work" ] || rm -rf --one-file-system "$work"
}

clean_up_at_exit() {
  trap clean_up EXIT
  trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM
}

# --- the cache ----------------------------------------------------------------

# cache_open KIND: waits for our turn to build kernels of this kind, then makes
# $work, a temporary directory inside the cache. What a killed build has left
# goes first: nobody else can be using it.
cache_open() {
  mkdir -p "$CREEL_VM_CACHE"
  CREEL_VM_CACHE=$(realpath "$CREEL_VM_CACHE")
  exec 9>"$CREEL_VM_CACHE/.lock-$1"
  flock 9
  rm -rf "$CREEL_VM_CACHE"/.work-"$1".*
  clean_up_at_exit
  work=$(mktemp -d "$CREEL_VM_CACHE/.work-$1.XXXXXX")
}

# cache_link DIR LINK: makes LINK point to DIR, in one step
cache_link() {
  [ "$(readlink "$2" || :)" = "${1##*/}" ] && return
  ln -s "${1##*/}" "$work/link"
  mv -T "$work/link" "$2"
}

# --- apt ------------------------------------------------------------------------

apt_version() {
  apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -vxF '(none)' || :
}

# apt_refresh: apt-get update, even if another apt-get holds the lists just now
apt_refresh() {
  local try
  for try in 1 2 3 4 5 6; do
    ! apt-get update -qq >&2 || return 0
    sleep 5
  done
  return 1
}

# apt_download PACKAGE DIR: fetches the .deb, installs nothing
apt_download() {
  (cd "$2" && apt-get -qq -o APT::Sandbox::User=root download "$1" >&2)
}
