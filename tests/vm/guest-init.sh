#!/bin/busybox sh
# Runs as PID 1 of a guest, in busybox. $N is where the host's root is: nothing
# in UML, /newroot in QEMU, whose PID 1 stays on the initramfs so that the
# kernel can go on loading modules from there.
#
# /tmp of the root is a directory that run-in-*.sh made for us:
#   init (this file), env (lane, rw), cmd (what to run), share/ (VM_SHARE)
# and the file system "rw" is where the exit code goes; scratch/ in it is VM_SCRATCH.
b=/bin/busybox
N=${N:-}
export PATH=/none
. "$N/tmp/env"

[ -n "$N" ] || $b mount -t proc proc /proc
[ -z "$N" ] || $b mount -t proc proc "$N/proc"
$b mount -t sysfs sysfs "$N/sys"
$b mount -t securityfs securityfs "$N/sys/kernel/security"
$b mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 "$N/sys/fs/cgroup"

$b mount -t devtmpfs -o mode=755 dev "$N/dev"
# one at a time: a kernel without one of them would refuse them all
for c in cpu memory pids io cpuset; do
  echo "+$c" > "$N/sys/fs/cgroup/cgroup.subtree_control"
done 2>"$N/dev/null"
$b mkdir -p "$N/dev/pts" "$N/dev/shm" "$N/dev/mqueue" "$N/dev/net"
$b mount -t devpts -o mode=620,gid=5,ptmxmode=666 devpts "$N/dev/pts"
$b mount -t tmpfs -o nosuid,nodev,mode=1777 shm "$N/dev/shm"
$b mount -t mqueue mqueue "$N/dev/mqueue"
$b ln -sf pts/ptmx "$N/dev/ptmx"
$b ln -sf /proc/self/fd "$N/dev/fd"
$b ln -sf /proc/self/fd/0 "$N/dev/stdin"
$b ln -sf /proc/self/fd/1 "$N/dev/stdout"
$b ln -sf /proc/self/fd/2 "$N/dev/stderr"
[ -e "$N/dev/net/tun" ] || $b mknod -m 666 "$N/dev/net/tun" c 10 200
[ -e "$N/dev/fuse" ] || $b mknod -m 666 "$N/dev/fuse" c 10 229
[ -e "$N/dev/loop-control" ] || $b mknod -m 600 "$N/dev/loop-control" c 10 237
$b chmod 666 "$N/dev/net/tun" "$N/dev/fuse"

$b mount -t tmpfs -o nosuid,nodev,mode=755 run "$N/run"
$b mkdir "$N/run/lock" "$N/run/share" "$N/run/scratch" "$N/run/vm" "$N/run/vm/rw"
$b chmod 700 "$N/run/vm"
case $lane in
  uml) $b mount -t hostfs -o "$rw" none "$N/run/vm/rw" ;;
  *)   $b mount -t 9p -o "$p9,cache=none,access=client" "$rw" "$N/run/vm/rw" ;;
esac
[ ! -d "$N/run/vm/rw/scratch" ] || $b mount --bind "$N/run/vm/rw/scratch" "$N/run/scratch"
[ ! -d "$N/tmp/share" ] || $b mount --bind "$N/tmp/share" "$N/run/share"
$b cp "$N/tmp/cmd" "$b" "$N/run/vm/"

# /var/lib as on the host, but ours to write; creel's state on a tmpfs of its own
o=$N/run/vm/varlib
$b mkdir "$o"
$b mount -t tmpfs -o mode=755 varlib "$o"
$b mkdir "$o/upper" "$o/work"
$b mount -t overlay -o "lowerdir=$N/var/lib,upperdir=$o/upper,workdir=$o/work" overlay "$N/var/lib" \
  || $b mount -t tmpfs -o mode=755 varlib "$N/var/lib"
$b mkdir -p "$N/var/lib/creel"
$b mount -t tmpfs -o mode=755 creel "$N/var/lib/creel"
$b mount -t tmpfs -o mode=1777 tmp "$N/tmp"

$b hostname creel-vm
$b ip link set lo up
ulimit -Hn 524288

# The command's stdout and stderr go through pipes to two ports of the host.
case $lane in
  uml) out=/dev/tty1 err=/dev/tty2 ;;
  *)   out=$N/dev/vport0p1 err=$N/dev/vport0p2 ;;
esac
n=0
while [ ! -c $out ] || [ ! -c $err ]; do
  n=$((n + 1)); [ $n -le 500 ] || { echo "init: no output ports"; $b poweroff -f; }
  $b sleep 0.01
done
exec 5>$out 6>$err
if [ "$lane" = uml ]; then $b stty raw -echo <&5; $b stty raw -echo <&6; fi
$b mkfifo "$N/run/vm/out" "$N/run/vm/err"
$b cat <"$N/run/vm/out" >&5 5>&- 6>&- & c1=$!
$b cat <"$N/run/vm/err" >&6 5>&- 6>&- & c2=$!

# The root is shared, as systemd leaves it on a real host.
if [ -z "$N" ]; then
  $b mount --make-rshared /
  $b setsid $b sh /run/vm/cmd
else
  # A plain chroot would not do: user namespaces and pivot_root refuse to work
  # in one. So the root is moved onto / in a mount namespace of the command's.
  $b unshare -m $b sh -c 'cd /newroot && /bin/busybox mount --move . / &&
    exec /bin/busybox chroot . /run/vm/busybox sh -c "
      /run/vm/busybox mount --make-rshared / &&
      exec /run/vm/busybox setsid /run/vm/busybox sh /run/vm/cmd"'
fi <"$N/dev/null" >"$N/run/vm/out" 2>"$N/run/vm/err" 5>&- 6>&-
rc=$?

# What the command left running has a second to close its output.
(
  $b sleep 1
  read -r self rest </proc/self/stat
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    case " 1 $self $c1 $c2 " in *" $p "*) ;; *) kill -9 "$p" ;; esac
  done
) 2>"$N/dev/null" &
wait $c1 $c2
echo $rc > "$N/run/vm/rw/rc"
$b poweroff -f
