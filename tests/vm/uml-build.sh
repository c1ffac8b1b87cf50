#!/bin/bash
# uml-build.sh: builds the User-Mode Linux kernel of the daily test lane from
# Debian's linux-source-6.12, once for each version of that package, of
# uml.config and of uml.patch. Prints the path of the binary. Some five minutes
# on two idle cores and 2 GB of disk while it builds; after that, less than a
# second.
#
# CREEL_VM_CACHE  where kernels are kept (default /var/cache/creel-vm)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=uml-build
. "$here/lib.sh"
source=linux-source-6.12

wanted_options() {
  local word
  for word in $(sed 's/#.*//' "$here/uml.config"); do
    case $word in
      *=n) echo "# CONFIG_${word%=n} is not set" ;;
      *=*) echo "CONFIG_$word" ;;
      *)   echo "CONFIG_$word=y" ;;
    esac
  done
}

build() {
  set -euo pipefail
  cd "$work"
  apt_download "$source" .
  dpkg -x "$source"_*.deb .
  tar xf "usr/src/$source.tar.xz"
  rm -r "$source"_*.deb usr
  wanted_options > wanted
  cd "$source"
  patch -s -p1 < "$here/uml.patch"
  local lost mk=(nice -n 5 make ARCH=um SUBARCH=x86_64)
  "${mk[@]}" allnoconfig KCONFIG_ALLCONFIG=../wanted >/dev/null
  lost=$(grep '^CONFIG_' ../wanted | grep -vxFf .config || :)
  if [ -n "$lost" ]; then say "the kernel does not take these options:" $lost; return 1; fi
  "${mk[@]}" -j"$(nproc)" linux > ../log 2>&1 || { tail -n 40 ../log >&2; return 1; }
  mkdir ../out
  strip -o ../out/linux linux
  cp .config ../out/config
}

cache_open uml
link=$(uml_link)
version=$(apt_version "$source")
if [ -z "$version" ] || [ ! -x "$link-$version/linux" ]; then
  # a list that is out of date names files that are gone
  apt_refresh || :
  version=$(apt_version "$source")
fi
if [ -z "$version" ]; then
  [ -x "$link/linux" ] || die 1 "apt has no package $source"
  say "apt has no package $source; using the kernel built before"
  echo "$link/linux"
  exit
fi

out=$link-$version
if [ ! -x "$out/linux" ]; then
  say "building $source $version in $CREEL_VM_CACHE (some five minutes)"
  run_group build
  [ "$group_status" = 0 ] || die 1 "the build failed"
  rm -rf "$out"
  mv -T "$work/out" "$out"
  say "done in $SECONDS s"
fi
cache_link "$out" "$link"
echo "$link/linux"
