#!/bin/bash
# run-in-qemu.sh KERNEL COMMAND [ARG...]: runs COMMAND as root in a QEMU guest
# (software emulation) with Debian's own kernel of series KERNEL, 6.1 or 6.12,
# pure cgroup v2, and the host's / as its own, read-only. Exits with its code,
# or with 125 if the guest itself failed. README.md has the rest.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=run-in-qemu
. "$here/lib.sh"
. "$here/guest.sh"

[ $# -ge 2 ] || die 125 'usage: run-in-qemu.sh KERNEL COMMAND [ARG...]'
series=$1; shift
kernel=$(qemu_link "$series")
[ -s "$kernel/initrd" ] || die 125 "there is no kernel $series for this checkout yet; get it with $here/qemu-prepare.sh $series"
kernel=$(realpath "$kernel")
modules=$kernel/modules
p9=trans=virtio,version=9p2000.L,msize=512000
guest_prepare "qemu-$series" rw "$@"
mkdir "$work/ro/modules"

# One CPU and one thread: with more, the kernel sometimes dies while it patches
# its own code. q35 without firmware, booted through PVH, is as fast as microvm,
# which hangs now and then. The CPU must have RDRAND, or boot waits for entropy.
# What is blacklisted below only costs time: self-tests, hardware we don't have.
skip=jent_mod_init,load_system_certificate_list,init_encrypted,crypto_kdf108_init,cmos_init
skip=$skip,i8042_init,hpet_late_init,vga_arb_device_init,init_trace_printk_function_export
append="console=ttyS0 quiet panic=-1 nokaslr mitigations=off noreplace-smp rodata=off"
append="$append cryptomgr.notests random.trust_cpu=on tsc=reliable no_timer_check"
append="$append 8250.nr_uarts=1 rcupdate.rcu_expedited=1 initcall_blacklist=$skip ${VM_APPEND:-}"

guest_run qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
  -accel tcg,thread=single,tb-size=512 -cpu max,-la57 -smp 1 -m "$VM_MEM" \
  -M q35,sata=off,smbus=off,usb=off,smm=off,hpet=off \
  -kernel "$kernel/vmlinux" -initrd "$kernel/initrd" -append "$append" \
  -serial file:"$work/console" -device virtio-serial-pci \
  -chardev file,id=out,path=/dev/fd/3 -device virtserialport,chardev=out,nr=1 \
  -chardev file,id=err,path=/dev/fd/4 -device virtserialport,chardev=err,nr=2 \
  -fsdev local,id=root,path="$work/root",security_model=none,readonly=on,multidevs=remap \
  -device virtio-9p-pci,fsdev=root,mount_tag=root \
  -fsdev local,id=rw,path="$work/rw",security_model=none,multidevs=remap \
  -device virtio-9p-pci,fsdev=rw,mount_tag=rw
