#!/bin/bash
# leftovers.sh snapshot FILE [DIR]: writes down what there is of creel on this host.
# leftovers.sh compare FILE [DIR]: prints what has come since and stays, and fails if there is anything.
#
# DIR: a directory for temporary files that the tests had for themselves (their TMPDIR): all in it counts.
# LEFTOVERS_MARK: a word; every process that has it as CREEL_TEST_MARK in its environment counts.
# LEFTOVERS_WAIT: seconds until what stays is left behind (default 15: the kernel takes down a sandbox in its own
# time, and somebody else on this host may be running creel just now).
#
# It only looks: it ends nothing and removes nothing. As root it sees everything, else what the user may see. Paths are
# taken from the top of the repository. A sandbox that somebody else starts meanwhile and that outlives the wait counts
# too: nothing tells it from ours.
set -euo pipefail
name=leftovers
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mode=${1:-} file=${2:-} dir=${3:-}
[ -n "$file" ] || die 'usage: leftovers.sh snapshot|compare FILE [DIR]'
built=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
mark=${LEFTOVERS_MARK:-}

# process PID WHY: one line, the same for as long as this process lives
process() {
  local stat start command
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # shellcheck disable=SC2086 # fields
  set -- "$1" "$2" ${stat##*) }
  # the state: a zombie waits for its parent, and holds nothing
  [ "$3" != Z ] || return 0
  start=${22}
  command=$(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | cut -c 1-200) || return 0
  echo "process $1 (started at $start; $2): ${command:-a kernel thread}"
}

# Processes of ours: the built program or a copy of it, one in a cgroup of ours, one that a test started, one in a
# user namespace (a sandbox has one always).
processes() {
  local p exe userns own cgroup
  own=$(readlink /proc/self/ns/user || :)
  for p in /proc/[0-9]*; do
    exe=$(readlink "$p/exe" 2>/dev/null) || continue
    exe=${exe% (deleted)}
    userns=$(readlink "$p/ns/user" 2>/dev/null || echo "$own")
    cgroup=$(cat "$p/cgroup" 2>/dev/null || :)
    case $exe in
      "$built"/*) process "${p#/proc/}" "program $exe"; continue ;;
      */creel-user-*/creel) process "${p#/proc/}" "program $exe"; continue ;;
    esac
    if [[ $cgroup == *:/creel/* || $cgroup == */creel/* ]]; then
      process "${p#/proc/}" 'in a cgroup of ours'
    elif [ "$userns" != "$own" ]; then
      process "${p#/proc/}" "in the user namespace $userns"
    elif [ -n "$mark" ] && tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qxF "CREEL_TEST_MARK=$mark"; then
      process "${p#/proc/}" 'started by a test'
    fi
  done
}

# Everything below a creel/ in any cgroup hierarchy.
cgroups() {
  local point
  awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/self/mounts | while read -r point; do
    find "$point" -type d -path '*/creel/*' 2>/dev/null | sed 's/^/cgroup /' || :
  done
}

# Mounts with our name in root, place or source (a mount in a namespace of its own goes with the last process there).
mounts() { awk '/creel/ { print "mount " $3 " " $4 " on " $5 }' /proc/self/mountinfo; }

# Namespaces that live without a process: bound to a file.
named_namespaces() {
  awk '$4 ~ /^(net|mnt|pid|user|ipc|uts|cgroup|time):\[/ { print "namespace " $4 " at " $5 }' /proc/self/mountinfo
  list '/run/netns'
}

# list DIR: what is in it
list() { [ ! -d "$1" ] || find "$1" -mindepth 1 -maxdepth 1 -printf 'path %p\n' 2>/dev/null || :; }

directories() {
  local state
  for state in /var/lib/creel "${XDG_STATE_HOME:-$HOME/.local/state}/creel"; do
    list "$state/runs"
    # Runs that are in the ledger.
    [ ! -r "$state/ledger" ] || tr '\0' '\n' < "$state/ledger" | sed -n "s|^run_|run of $state: &|p"
  done
  find /tmp -mindepth 1 -maxdepth 1 -name 'creel-*' ! -name 'creel-vm.*' -printf 'path %p\n'
  # A guest's directory has its runner's process id; while that lives (and is not ours: see above) it is in use.
  local guest pid
  for guest in /tmp/creel-vm.*; do
    pid=${guest#/tmp/creel-vm.}
    [ ! -d "$guest" ] || [ -d "/proc/${pid%%.*}" ] || echo "path $guest"
  done
  find /dev/shm -mindepth 1 -maxdepth 1 -name '*creel*' -printf 'path %p\n' 2>/dev/null || :
  [ -z "$dir" ] || list "$dir"
}

devices() {
  local b
  for b in /sys/block/loop*/loop/backing_file; do
    [ ! -r "$b" ] || sed "s|^|loop device ${b%/loop/*}: |" "$b" 2>/dev/null || :
  done
  awk 'FNR > 1 { print "System V " FILENAME ": id " $2 ", key " $1 }' /proc/sysvipc/{shm,msg,sem} 2>/dev/null || :
}

all() {
  {
    processes; cgroups; mounts; named_namespaces; directories; devices
  } | LC_ALL=C sort -u
}

case $mode in
  snapshot) all > "$file" ;;
  compare)
    # Left is what is there at every look until the wait is over.
    export LC_ALL=C
    deadline=$((SECONDS + ${LEFTOVERS_WAIT:-15}))
    left=$(comm -13 "$file" <(all))
    while [ -n "$left" ] && [ "$SECONDS" -lt "$deadline" ]; do
      sleep 0.5
      left=$(comm -12 <(echo "$left") <(all))
    done
    [ -n "$left" ] || { say 'nothing of ours was left behind'; exit 0; }
    say 'left behind:'
    printf '%s\n' "$left" | sed 's/^/  /' >&2
    exit 1
    ;;
  *) die "no such mode: $mode" ;;
esac
