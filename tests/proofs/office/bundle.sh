#!/bin/bash
# A page of TypeScript and CSS, with a path alias, to one HTML file by parcel and html-inline; then Chromium runs it.
set -euo pipefail
cp -r /skill/page/. .
parcel build src/index.html --no-source-maps --dist-dir dist --log-level warn
html-inline -i dist/index.html -o /outputs/bundle.html
chromium --headless --dump-dom file:///outputs/bundle.html 2>/dev/null >/outputs/dom.html
pnpm --version
npm --version
