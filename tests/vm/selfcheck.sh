#!/bin/bash
# selfcheck.sh [LANE...]: checks the guests of this directory; a lane is uml,
# 6.1 or 6.12 (all of them unless told). Prints one line a check.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -gt 0 ] || set -- uml 6.1 6.12
passed=0 failed=0
export VM_CHECK=$$.$RANDOM$RANDOM   # marks every process that we start
t=$(mktemp -d /tmp/vm-selfcheck.XXXXXX)
trap 'rm -rf "$t"' EXIT
trap 'exit 130' INT; trap 'exit 143' TERM
mkdir "$t/share" "$t/scratch"
cp "$here/selfcheck-guest.sh" "$t/share/"
unset VM_SHARE VM_SCRATCH VM_CWD VM_APPEND VM_CONSOLE VM_TIMEOUT

check() {
  local what=$1 started=${EPOCHREALTIME/./} result='FAILED'
  shift
  if "$@"; then result=ok; passed=$((passed + 1)); else failed=$((failed + 1)); fi
  echo "  $result: $what ($(((${EPOCHREALTIME/./} - started) / 1000)) ms)"
}
run() {
  case $lane in
    uml) exec "$here/run-in-uml.sh" "$@" ;;
    *)   exec "$here/run-in-qemu.sh" "$lane" "$@" ;;
  esac
}
code() { local want=$1 got=0; shift; (run "$@") >/dev/null 2>"$t/err" || got=$?; [ $got = "$want" ] || { cat "$t/err"; false; }; }

# nothing_left PID: no directory, mount or process of the run with this PID
nothing_left() {
  ! compgen -G "/tmp/creel-vm.$1.*" &&
    ! grep -ls "/creel-vm\.$1\." /proc/[0-9]*/mountinfo &&
    ! grep -lsz "^VM_CHECK=$VM_CHECK.$lane.run$" /proc/[0-9]*/environ
}
ended_by() {
  local signal=$1 pid want=$2 got=0
  : > "$t/out"
  # job control, or bash would start it with SIGINT ignored
  set -m
  VM_CHECK=$VM_CHECK.$lane.run run sh -c 'echo up; sleep 1000' >"$t/out" 2>/dev/null & pid=$!
  set +m
  until [ -s "$t/out" ] || [ ! -d /proc/$pid ]; do sleep 0.05; done
  kill -"$signal" "$pid"
  wait "$pid" 2>/dev/null || got=$?
  if [ "$signal" = KILL ]; then
    sleep 0.5
    (run true)   # which also removes the directory of the one before
  fi
  [ $got = "$want" ] && nothing_left "$pid"
}
intact() {
  # more than any buffer holds, all bytes, and a reader that is slow to start
  (run python3 -I -c 'import os, sys
data = bytes(range(256)) * 8192
sys.stdout.buffer.write(data); sys.stderr.buffer.write(data[::-1]); sys.stdout.flush()') \
    2> >(sleep 3; sha256sum > "$t/sum2") > >(sleep 2; sha256sum > "$t/sum1")
  local sum n=0
  while [ ! -s "$t/sum1" ] || [ ! -s "$t/sum2" ]; do sleep 0.1; n=$((n + 1)); [ $n -lt 100 ] || return 1; done
  sum=$(python3 -c 'import hashlib
d = bytes(range(256)) * 8192
print(hashlib.sha256(d).hexdigest(), hashlib.sha256(d[::-1]).hexdigest())')
  [ "$(cut -c1-64 "$t/sum1") $(cut -c1-64 "$t/sum2")" = "$sum" ]
}
arguments() {
  local a=("it's" '' 'a  b' $'two\nlines' '$HOME "x" \ *' $'\xff\xc3') got
  got=$(run bash -c 'printf "<%s>" "$@"; echo .' x "${a[@]}")
  [ "$got" = "$(printf '<%s>' "${a[@]}"; echo .)" ]
}
shared() {
  VM_CWD=$t VM_SHARE=$t/share VM_SCRATCH=$t/scratch code 0 sh -c \
    '[ "$PWD" = / ] && test -x /run/share/selfcheck-guest.sh && ! touch /run/share/x 2>/dev/null && echo hello > /run/scratch/f' &&
    [ "$(cat "$t/scratch/f")" = hello ] && rm "$t/scratch/f"
}
inherited_cwd() { VM_SHARE=$t/share; export VM_SHARE; [ "$(run pwd)" = /run/share ]; }
reader_gone() {
  local got started=$SECONDS
  (run sh -c 'echo up; exec yes') 2>/dev/null | head -n 1 >/dev/null
  got=${PIPESTATUS[0]}
  [ "$got" = 141 ] && [ $((SECONDS - started)) -lt 30 ]
}
# killed while it starts, at ten moments
early() {
  local i pid
  for i in 0 1 2 3 4 5 6 7 8 9; do
    set -m
    VM_CHECK=$VM_CHECK.$lane.run run sleep 1000 >/dev/null 2>&1 & pid=$!
    set +m
    sleep "$(printf 0.%02d $((i * 6)))"
    kill "$pid"; wait "$pid" 2>/dev/null
    nothing_left "$pid" || return
  done
}
parallel() {
  local i pids=() bad=0
  for i in 1 2 3 4; do (run sh -c "echo $i; exit $i") >"$t/p$i" 2>"$t/e$i" & pids+=($!); done
  for i in 1 2 3 4; do wait "${pids[i - 1]}"; [ $? = $i ] && [ "$(cat "$t/p$i")" = $i ] || { cat "$t/e$i"; bad=1; }; done
  return $bad
}
lingering() {
  local started=$SECONDS
  [ "$(run sh -c 'sleep 1000 & echo done')" = done ] && [ $((SECONDS - started)) -lt 20 ]
}
inside() { (VM_SHARE=$t/share; export VM_SHARE; run bash /run/share/selfcheck-guest.sh); }
timed_out() { VM_TIMEOUT=5 code 125 sleep 1000 && grep -q VM_TIMEOUT "$t/err"; }
guest_fails() { VM_APPEND='rootfstype=nothing rdinit=/nothing init=/nothing' code 125 true && grep -q 'no exit code\|did not end' "$t/err"; }

for lane; do
  echo "$lane:"
  check 'exit code 0' code 0 true
  check 'exit code 7' code 7 sh -c 'exit 7'
  check 'killed by a signal: 137' code 137 sh -c 'kill -9 $$'
  check 'no such command: 127' code 127 no-such-command
  check 'the guest itself' inside
  check 'stdout and stderr intact' intact
  check 'arguments intact' arguments
  check 'VM_SHARE and VM_SCRATCH under /tmp' shared
  check 'working directory in VM_SHARE' eval '(cd "$t/share" && inherited_cwd)'
  check 'four at a time' parallel
  check 'a process left behind does not hold it up' lingering
  check 'a guest that hangs: 125' timed_out
  check 'a guest that does not start: 125' guest_fails
  check 'a reader that goes away ends it' reader_gone
  check 'nothing left after SIGTERM while it starts' early
  check 'nothing left after SIGTERM' ended_by TERM 143
  check 'nothing left after SIGINT' ended_by INT 130
  check 'nothing left after SIGKILL' ended_by KILL 137
  VM_CHECK=$VM_CHECK.$lane.run run true & pid=$!
  wait $pid
  check 'nothing left after success' nothing_left $pid
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
