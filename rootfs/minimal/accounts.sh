#!/bin/bash
# Runs in the build sandbox, as 0: the user that programs run as, and host-independent files of /etc.
set -euo pipefail

# Written out: the base has no useradd. Debian's base has no shadow file unless the package passwd made one: then the
# password field is here, and no password fits "*". The day of the last change is fixed, so that the file is the same every day.
if ! grep -q '^sandbox:' /etc/passwd; then
  password='*'
  if [ -e /etc/shadow ]; then
    password=x
    echo 'sandbox:!:20254:0:99999:7:::' >>/etc/shadow
  fi
  echo "sandbox:$password:10001:10001:sandbox:/work:/bin/bash" >>/etc/passwd
  echo 'sandbox:x:10001:' >>/etc/group
fi

printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >/etc/hosts
# The base layer has none of the building host's; glibc takes a missing one for a name server on the loopback.
: >/etc/resolv.conf
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-

python --version
