#!/bin/bash
# packages.sh LIST...: installs those Debian packages of the lists that are missing. A list is a file with one name a
# line; # starts a comment. Asks nothing of apt, and needs no right, when all of them are there.
set -euo pipefail
name=packages
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ $# -gt 0 ] || die 'which list?'

wanted=$(sed 's/#.*//' -- "$@" | tr -s ' \t' '\n' | sed '/^$/d' | sort -u)
if ! command -v dpkg-query >/dev/null; then
  say "this is no Debian: nothing is installed by itself. These Debian packages, under whatever name, are needed:"
  # shellcheck disable=SC2086 # one line
  echo $wanted >&2
  exit 0
fi

missing=()
for package in $wanted; do
  dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

need_root "these Debian packages are missing: ${missing[*]}"
say "installing ${missing[*]}"
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
install=("${apt[@]}" -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${missing[@]}")
# Another apt-get may hold the package lists just now: try again.
for try in 1 2 3 4 5 6; do
  ! "${root[@]}" "${apt[@]}" update >&2 || break
  [ "$try" = 6 ] || sleep 5
done
"${root[@]}" "${install[@]}" >&2 || die "could not install ${missing[*]}"
