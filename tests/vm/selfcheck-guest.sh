#!/bin/bash
# The part of selfcheck.sh that runs inside a guest.
set -u
failed=0
ok() { echo "  ok: $*"; }
bad() { echo "  FAILED: $*"; failed=1; }
check() { local what=$1; shift; if "$@"; then ok "$what"; else bad "$what"; fi; }
cg=/sys/fs/cgroup/selfcheck
event() { sed -n "s/^$2 //p" "$cg/$1"; }
within() { echo "$BASHPID" > "$cg/cgroup.procs"; exec "$@"; }
new_cgroup() { until [ ! -d $cg ] || rmdir $cg 2>/dev/null; do sleep 0.01; done; mkdir $cg; }

echo "  kernel $(uname -r), controllers: $(cat /sys/fs/cgroup/cgroup.subtree_control)"
no_v1() { ! grep -q ' - cgroup ' /proc/self/mountinfo; }
check 'cgroup v2 only' no_v1
enabled() { local c; for c in cpu memory pids; do grep -qw $c /sys/fs/cgroup/cgroup.subtree_control || return 1; done; }
check 'cpu, memory and pids are enabled' enabled

new_cgroup
echo 24M > $cg/memory.max
[ ! -e $cg/memory.swap.max ] || echo 0 > $cg/memory.swap.max
{ (within tail /dev/zero); } 2>/dev/null
[ $? = 137 ] && [ "$(event memory.events oom_kill)" -ge 1 ] && ok 'memory.max kills, memory.events tells' || bad memory.max

new_cgroup
echo 4 > $cg/pids.max
(within bash -c 'for i in 1 2 3 4 5 6; do sleep 0.1 & done; wait') 2>/dev/null
check 'pids.max stops forks' [ "$(event pids.events max)" -ge 1 ]

new_cgroup
echo '5000 50000' > $cg/cpu.max
(within sh -c 'while :; do :; done') & spinner=$!
throttled() { local n; for ((n = 0; n < 200; n++)); do [ "$(event cpu.stat nr_throttled)" -lt 1 ] || return 0; sleep 0.05; done; false; }
check 'cpu.max throttles' throttled
echo 1 > $cg/cgroup.kill
wait $spinner 2>/dev/null

new_cgroup
(within sleep 1000) & sleeper=$!
until [ "$(event cgroup.events populated)" = 1 ]; do sleep 0.01; done
echo 1 > $cg/cgroup.kill
wait $sleeper 2>/dev/null
check 'cgroup.kill' [ $? = 137 ]
echo 1 > $cg/cgroup.freeze
check 'cgroup.freeze' [ "$(event cgroup.events frozen)" = 1 ]
rmdir $cg

abi=$(python3 -I -S -c 'import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))')
check "landlock ABI $abi" [ "$abi" -ge 2 ]
check 'seccomp filter' grep -qw errno /proc/sys/kernel/seccomp/actions_avail
check 'user namespace as root' unshare -Ur true
check 'user namespace as 1000' setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Ur true
check 'all namespaces as 1000' setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Urmnpiuf --mount-proc true

overlay() {
  mkdir -p /tmp/o && mount -t tmpfs o /tmp/o && mkdir /tmp/o/{upper,work,all} &&
    mount -t overlay -o lowerdir=/etc,upperdir=/tmp/o/upper,workdir=/tmp/o/work overlay /tmp/o/all &&
    echo x > /tmp/o/all/passwd && [ "$(cat /tmp/o/all/passwd)" = x ] && umount /tmp/o/all && umount /tmp/o
}
check 'overlay over a directory of the host' overlay

project_quota() {
  truncate -s 64M /tmp/quota.img
  mkfs.ext4 -q -O quota,project -E quotatype=prjquota /tmp/quota.img || return
  mkdir -p /tmp/q && mount -o loop,prjquota /tmp/quota.img /tmp/q || return
  mkdir -m 777 /tmp/q/d && chattr -p 7 +P /tmp/q/d || return
  python3 -I -S - "$(findmnt -no SOURCE /tmp/q)" <<'PY' || return
import ctypes, struct, sys
# quotactl(Q_SETQUOTA for project 7): at most 1 MiB
limits = struct.pack("=8QI4x", 1024, 1024, 0, 0, 0, 0, 0, 0, 1)
done = ctypes.CDLL(None, use_errno=True).syscall(179, 0x800008 << 8 | 2, sys.argv[1].encode(), 7, limits)
sys.exit(done and "quotactl: errno %d" % ctypes.get_errno())
PY
  setpriv --reuid 1000 --regid 1000 --clear-groups \
    sh -c '! head -c 2M /dev/zero 2>/dev/null > /tmp/q/d/big' 2>/dev/null || return
  [ "$(stat -c %s /tmp/q/d/big)" -le 1048576 ] && umount /tmp/q
}
check 'project quota on ext4 in a loop device' project_quota

writable() { local d; for d in /tmp /run /dev/shm /var/lib /var/lib/creel; do : > $d/.check || return 1; rm $d/.check; done; }
check '/tmp /run /dev/shm /var/lib and /var/lib/creel can be written to' writable
check '/var/lib/creel is a tmpfs' [ "$(findmnt -no FSTYPE /var/lib/creel)" = tmpfs ]
protected() { mount -o remount,rw / 2>/dev/null; ! { : > /etc/selfcheck; } 2>/dev/null; }
check 'the root cannot be written to, not even remounted' protected
check 'a terminal' python3 -I -c 'import os; os.openpty()'
check 'loopback' python3 -I -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname())'
exit $failed
