#!/bin/bash
# qemu-prepare.sh [SERIES...]: gets Debian's own kernels of these series (both
# 6.1 and 6.12 unless told) for the QEMU lane: downloaded and unpacked into the
# cache, never installed. Prints where each of them is. Half a minute each, and
# some 3 seconds of asking apt when they are there already.
#
# CREEL_VM_CACHE  where kernels are kept (default /var/cache/creel-vm)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=qemu-prepare
. "$here/lib.sh"

# kernel_package SERIES: the package with today's kernel of a series. Versions
# come and go in the archive, so it is looked up through the metapackages.
kernel_package() {
  local meta
  for meta in "linux-image-$1-amd64" linux-image-amd64; do
    apt-cache depends --important "$meta" 2>/dev/null
  done | sed -n 's/^ *Depends: //p' \
    | grep -E "^linux-image-${1//./\\.}[.+~-][^ ]*-amd64$" | sort -V | tail -n 1
}

# The modules a sandbox or its tests may want; what they need comes along.
modules='^kernel/(
drivers/virtio|drivers/char/virtio_console|drivers/char/hw_random/virtio-rng|
drivers/block/(virtio_blk|loop)\.|
drivers/net/(veth|tun|dummy|virtio_net|macvlan|ipvlan)|
net/(9p|bridge|netfilter|ipv4|ipv6|core|llc|802|8021q|packet|unix|sched)/|
fs/(9p|fuse|overlayfs|netfs|ext4|jbd2|quota|erofs|squashfs)/|fs/(mbcache|binfmt_misc)\.|
crypto/(crc32c|xxhash|ghash|gcm|ccm|cmac)|lib/)'
modules=${modules//$'\n'/}

prepare() {
  set -euo pipefail
  local series=$1 package=$2 tree=$work/tree out=$work/out initrd=$work/initrd version m
  mkdir -p "$tree" "$out/modules" "$initrd"/{bin,sbin,dev,proc,sys,newroot,modules,lib/modules}
  cd "$work"
  apt_download "$package" .
  dpkg -x "$package"_*.deb "$tree"
  rm "$package"_*.deb
  [ -e "$tree/lib" ] || ln -s usr/lib "$tree/lib"
  m=$(echo "$tree"/lib/modules/*)
  version=${m##*/}
  mkdir "$initrd/lib/modules/$version"

  # QEMU boots an uncompressed kernel directly, without firmware and without
  # unpacking it under emulation.
  python3 - "$tree/boot/vmlinuz-$version" "$out/vmlinux" <<'PY'
import lzma, struct, subprocess, sys, zlib
image = open(sys.argv[1], "rb").read()
assert image[0x202:0x206] == b"HdrS", "not a bzImage"
setup = ((image[0x1F1] or 4) + 1) * 512
offset, length = struct.unpack_from("<II", image, 0x248)
payload = image[setup + offset:][:length]
if payload.startswith(b"\xfd7zXZ\0"):
    kernel = lzma.LZMADecompressor().decompress(payload)
elif payload.startswith(b"\x1f\x8b"):
    kernel = zlib.decompressobj(31).decompress(payload)
elif payload.startswith(b"\x28\xb5\x2f\xfd"):  # its length follows the frame
    kernel = subprocess.run(["zstd", "-dc"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
else:
    sys.exit("kernel packed in an unknown way: %r" % payload[:8])
assert kernel.startswith(b"\x7fELF"), "no ELF kernel inside"
open(sys.argv[2], "wb").write(kernel)
PY

  # The modules that we want and what they depend on, plain and stripped: they
  # load much faster under emulation.
  depmod -b "$tree" "$version"
  awk -v want="$modules" '
    { file = $1; sub(/:$/, "", file); needs[file] = $0 }
    END { for (file in needs) if (file ~ want) {
            n = split(needs[file], all, /:? /)
            for (i = 1; i <= n; i++) if (all[i] != "") { sub(/:$/, "", all[i]); print all[i] } } }
  ' "$m/modules.dep" | sort -u > list
  local file to
  while read -r file; do
    to=$out/modules/${file%.[xz][zs]*}
    mkdir -p "${to%/*}"
    case $file in
      *.xz)  xz -dc "$m/$file" > "$to" ;;
      *.zst) zstd -qdc "$m/$file" > "$to" ;;
      *)     cp "$m/$file" "$to" ;;
    esac
  done < list
  find "$out/modules" -name '*.ko' -print0 \
    | xargs -0 strip --strip-debug -R .BTF -R .note.gnu.build-id -R .comment
  cp "$m/modules.order" "$m"/modules.builtin* "$out/modules/"
  # depmod wants the usual place
  mv "$out/modules" "$initrd/lib/modules/$version/m"
  mkdir -p "$work/dep/lib/modules"
  mv "$initrd/lib/modules/$version/m" "$work/dep/lib/modules/$version"
  depmod -b "$work/dep" "$version"
  mv "$work/dep/lib/modules/$version" "$out/modules"
  rm -f "$out"/modules/*.bin

  # The initramfs holds only what it takes to mount the host's root; the rest
  # of init is the checkout's.
  cp "$(PATH=/bin:/usr/bin type -P busybox)" "$initrd/bin/busybox"
  ln -s ../bin/busybox "$initrd/sbin/modprobe"
  local wanted=0
  for m in virtio_pci virtio_console 9pnet_virtio 9p; do
    awk -v name="/$m.ko:" 'index($0, name) { n = split($0, all, " "); sub(/:$/, "", all[1])
      for (i = n; i > 0; i--) print all[i] }' "$out/modules/modules.dep"
  done | awk '!seen[$0]++' > boot-list
  while read -r file; do
    wanted=$((wanted + 1))
    to=$(printf '%02d-%s' $wanted "${file##*/}")
    cp "$out/modules/$file" "$initrd/modules/$to"
  done < boot-list
  cat > "$initrd/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
N=/newroot
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
for m in /modules/*; do $b insmod $m; done
if ! $b mount -t 9p -o ro,cache=loose,trans=virtio,version=9p2000.L,msize=512000 root $N; then
  echo 'init: cannot mount the root'
  $b poweroff -f
fi
$b mount --bind $N/tmp/modules /lib/modules/$($b uname -r)
. $N/tmp/init
INIT
  chmod 755 "$initrd/init"
  (cd "$initrd" && find . | LC_ALL=C sort | cpio -o -H newc --quiet --owner=0:0) > "$out/initrd"
  echo "$package" > "$out/package"
}

[ $# -gt 0 ] || set -- 6.1 6.12
cache_open qemu
for series; do
  link=$(qemu_link "$series")
  package=$(kernel_package "$series" || :)
  version=${package:+$(apt_version "$package")}
  out=$link-$version
  if [ -z "$version" ] || [ ! -s "$out/initrd" ]; then
    apt_refresh || :
    package=$(kernel_package "$series" || :)
    version=${package:+$(apt_version "$package")}
    out=$link-$version
  fi
  if [ -z "$version" ]; then
    [ -s "$link/initrd" ] || die 1 "apt has no kernel of series $series"
    say "apt has no kernel of series $series; using the one from before"
    echo "$link"
    continue
  fi
  if [ ! -s "$out/initrd" ]; then
    say "getting $package"
    rm -rf "$work"; mkdir "$work"
    run_group prepare "$series" "$package"
    [ "$group_status" = 0 ] || die 1 "could not prepare $package"
    rm -rf "$out"
    mv -T "$work/out" "$out"
  fi
  cache_link "$out" "$link"
  echo "$link"
done
