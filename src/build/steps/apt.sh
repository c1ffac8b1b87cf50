# apt step: installs the Debian packages that are its arguments. Runs as 0 of a build sandbox.
set -euo pipefail

# Nothing here is a service: no maintainer script may start one.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
options=(
  -q -y
  -o APT::Install-Recommends=false
  -o APT::Sandbox::User=root        # the sandbox is this one
  -o Acquire::Retries=3
  -o Acquire::Languages=none
  -o Dpkg::Use-Pty=0
  -o DPkg::Options::=--force-unsafe-io
)
[ -z "${SSL_CERT_FILE:-}" ] || options+=(-o "Acquire::https::CAInfo=$SSL_CERT_FILE")
apt-get "${options[@]}" update
apt-get "${options[@]}" install "$@"

# As in the other layers: not checked at each import.
modules=/usr/lib/python3/dist-packages
if [ -n "$(find "$modules" -name '*.py' -print -quit 2>/dev/null)" ]; then
  python3 -m compileall -q -f -j 0 --invalidation-mode unchecked-hash "$modules"
fi

rm -f /usr/sbin/policy-rc.d
apt-get clean
# What differs from build to build, and nobody needs. An empty machine-id is one that is not yet made (machine-id(5)).
rm -rf /var/lib/apt/lists/* /var/log/apt /var/cache/ldconfig/aux-cache /var/cache/debconf/*
rm -f /var/cache/apt/*.bin /var/log/*.log /var/lib/dpkg/*-old /etc/{passwd,group,shadow,gshadow,subuid,subgid}-
rm -f /var/lib/dbus/machine-id
[ ! -s /etc/machine-id ] || : >/etc/machine-id
