# Shared by run-in-uml.sh and run-in-qemu.sh; sourced after lib.sh.

# what both lanes understand; README.md describes it
VM_MEM=${VM_MEM:-1024}
VM_TIMEOUT=${VM_TIMEOUT:-300}
VM_PATH=${VM_PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}

guest='' out='' err=''

guest_clean_up() {
  trap '' INT TERM HUP
  local init=
  if [ -n "$guest" ]; then
    # With its init killed the PID namespace is empty before unshare returns.
    [ ! -s "$work/init" ] || read -r init _ <"$work/init" || :
    kill -KILL ${init:-$guest} 2>/dev/null || :
    wait "$guest" 2>/dev/null || :
  fi
  [ -z "$out$err" ] || kill $out $err 2>/dev/null || :
  clean_up
}

# guest_directory NAME VALUE: the directory that VALUE names, absolute
guest_directory() {
  [ -d "$2" ] || die 125 "$1 is not a directory: $2"
  realpath -- "$2"
}

# guest_prepare LANE RW COMMAND...: makes $work with all that the guest reads
guest_prepare() {
  local lane=$1 rw=$2 d p c
  shift 2
  [ "$(id -u)" = 0 ] || die 125 'must run as root'
  [ $# -gt 0 ] || die 125 'no command given'
  share=${VM_SHARE:+$(guest_directory VM_SHARE "$VM_SHARE")} || exit 125
  scratch=${VM_SCRATCH:+$(guest_directory VM_SCRATCH "$VM_SCRATCH")} || exit 125

  # what runs that were killed outright have left
  for d in /tmp/creel-vm.*; do
    p=${d#/tmp/creel-vm.}; p=${p%%.*}
    [ ! -d "$d" ] || [ -d "/proc/$p" ] || rm -rf --one-file-system "$d"
  done
  trap guest_clean_up EXIT
  trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM
  work=$(mktemp -d "/tmp/creel-vm.$$.XXXXXX")
  mkdir "$work/root" "$work/ro" "$work/rw"
  [ -z "$share" ] || mkdir "$work/ro/share"
  [ -z "$scratch" ] || mkdir "$work/rw/scratch"
  cp "$here/guest-init.sh" "$work/ro/init"
  chmod 755 "$work/ro/init"
  [ -n "$rw" ] || rw=$work/rw
  printf '%s\n' "lane=$lane" "rw=$(quote "$rw")" "p9=${p9:-}" > "$work/ro/env"

  # The working directory, if the guest has it.
  local cwd=${VM_CWD:-$PWD}
  if [ -n "$share" ]; then
    case $cwd/ in "$share"/*) cwd=/run/share${cwd#"$share"} ;; esac
  fi
  # An absolute path, since busybox would prefer its own tools to the host's.
  c=$(PATH=$VM_PATH type -P -- "$1") || c=$1
  shift
  {
    echo "export PATH=$(quote "$VM_PATH") HOME=/root TERM=dumb LANG=C.UTF-8 CREEL_VM=$lane"
    echo "export VM_SHARE=/run/share VM_SCRATCH=/run/scratch"
    echo "cd $(quote "$cwd") 2>/dev/null || cd /"
    echo 'unset OLDPWD SHLVL'
    printf 'exec'
    for c in "$c" "$@"; do printf ' '; quote "$c"; done
    echo
  } > "$work/ro/cmd"
}

# guest_run COMMAND...: runs the virtual machine and passes on its output, then
# ends this script with the exit code of what ran inside. COMMAND finds stdout
# and stderr as 3 and 4, its files in $work, the root to show in $work/root.
guest_run() {
  local rc='' status=0 ended
  # Pipes, because the virtual machines change the mode of what they write to
  # or open it anew, which is wrong for a file.
  mkfifo "$work/out" "$work/err"
  cat <"$work/out" & out=$!
  cat <"$work/err" >&2 & err=$!
  exec 3>"$work/out" 4>"$work/err"
  # All in a PID namespace that dies with us, even by SIGKILL, and in a mount
  # namespace, so that no mount is ever seen outside. The bind of / is not
  # recursive: the guest must not see the host's /proc, /sys and cgroups.
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child=KILL sh -c '
    set -e
    work=$1 share=$2 scratch=$3 time=$4 modules=$5
    shift 5
    read -r line </proc/self/stat   # our process id as seen from outside
    echo "${line%% *}" > "$work/init"
    mount --bind -o ro / "$work/root"
    mount --bind -o ro "$work/ro" "$work/root/tmp"
    [ -z "$share" ] || mount --bind -o ro "$share" "$work/root/tmp/share"
    [ -z "$modules" ] || mount --bind -o ro "$modules" "$work/root/tmp/modules"
    [ -z "$scratch" ] || mount --bind "$scratch" "$work/rw/scratch"
    unset TMPDIR
    status=0
    timeout -k 2 "$time" "$@" || status=$?
    exit $status' \
    sh "$work" "$share" "$scratch" "$VM_TIMEOUT" "${modules:-}" "$@" \
    </dev/null >"$work/vm.log" 2>&1 5>"$work/console" &
  guest=$!
  wait -n -p ended "$guest" "$out" "$err" || status=$?
  # 128 + SIGPIPE: whoever read our output has gone
  [ "$ended" = "$guest" ] || exit 141
  guest=''
  exec 3>&- 4>&-
  wait "$out" "$err" || :
  out='' err=''
  [ -z "${VM_CONSOLE:-}" ] || cat "$work/vm.log" "$work/console" > "$VM_CONSOLE"
  [ ! -s "$work/rw/rc" ] || read -r rc < "$work/rw/rc"
  [ -z "$rc" ] || exit "$rc"
  case $status in
    124|137) say "the guest did not end within $VM_TIMEOUT s (VM_TIMEOUT)" ;;
    *)       say "the guest left no exit code (its own: $status)" ;;
  esac
  tail -q -n 40 "$work/vm.log" "$work/console" >&2
  exit 125
}
