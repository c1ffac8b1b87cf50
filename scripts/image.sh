#!/bin/bash
# image.sh NAME...: builds images from their recipes in rootfs/ with the release build, and installs them in creel's state
# directory. Installs first what the build needs.
set -euo pipefail
name='make image'
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ $# -gt 0 ] || die 'which image?'

need_root 'images are built by root'
scripts/packages.sh scripts/packages-run.txt scripts/packages-image.txt
creel=$(creel_binary release)
[ -x "$creel" ] || die "$creel is not built yet: make build"
for image in "$@"; do
  started=$(now_ms)
  # What tells where packages come from goes with it, sudo or not.
  "${root[@]}" env ${CREEL_STATE_DIR:+"CREEL_STATE_DIR=$CREEL_STATE_DIR"} \
    ${PIP_INDEX_URL:+"PIP_INDEX_URL=$PIP_INDEX_URL"} ${UV_DEFAULT_INDEX:+"UV_DEFAULT_INDEX=$UV_DEFAULT_INDEX"} \
    ${NPM_CONFIG_REGISTRY:+"NPM_CONFIG_REGISTRY=$NPM_CONFIG_REGISTRY"} ${SSL_CERT_FILE:+"SSL_CERT_FILE=$SSL_CERT_FILE"} \
    ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} ${no_proxy:+"no_proxy=$no_proxy"} \
    "$creel" image build "$image" --recipes rootfs
  say "$image: $(took "$started")"
done
