# Runs with the new root as $1, before it is packed. Debian's packages compile the standard library when they are installed; with
# SOURCE_DATE_EPOCH set, into files that are checked against their source at each import. Nothing changes in a read-only image.
set -e
chroot "$1" python3 -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /usr/lib/python3.11 /usr/lib/python3
