#!/bin/bash
# Runs in the build sandbox, as 0, without network: what would else be made anew in every sandbox.
set -euo pipefail
export MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1

# Again, for the fonts of this image. (A ready profile for LibreOffice would gain nothing: a first start takes as long as a second.)
fc-cache --system-only --force
python3 /usr/lib/creel/matplotlib-fonts.py

# Node looks for a module in each node_modules from the program's directory up to the root, for `require` and for `import`
# (NODE_PATH serves `require` only): so programs in /work find the global ones.
[ -L /node_modules ] || ln -s usr/lib/node_modules /node_modules

node --version
pnpm --version
