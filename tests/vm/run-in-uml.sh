#!/bin/bash
# run-in-uml.sh COMMAND [ARG...]: runs COMMAND as root in a User-Mode Linux
# guest with pure cgroup v2 whose / is the host's, read-only. Exits with its
# code, or with 125 if the guest itself failed. README.md has the rest.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=run-in-uml
. "$here/lib.sh"
. "$here/guest.sh"

kernel=${VM_UML:-$(uml_link)/linux}
[ -x "$kernel" ] || die 125 "there is no kernel for this checkout yet; build it with $here/uml-build.sh"
guest_prepare uml '' "$@"
guest_run "$kernel" mem="${VM_MEM}M" rootfstype=hostfs rootflags="$work/root" ro init=/tmp/init \
  quiet panic=-1 random.trust_cpu=on umid=uml uml_dir="$work/" \
  con=null con0=null,fd:5 con1=null,fd:3 con2=null,fd:4 ${VM_APPEND:-}
