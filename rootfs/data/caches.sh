#!/bin/bash
# Runs in the build sandbox, as 0, without network: what would else be made anew in every sandbox.
set -euo pipefail
export MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1

# fontconfig's cache, for pdftoppm, vl-convert and (in office) LibreOffice and Chromium
fc-cache --system-only --force
python3 /usr/lib/creel/matplotlib-fonts.py
