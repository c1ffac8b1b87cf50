#!/bin/bash
# HTML to PNG and to PDF by Chromium. Inputs: pages. What a person would type: no flags but these.
set -euo pipefail
for page in /inputs/*.html; do
  name=$(basename "$page" .html)
  chromium --headless --screenshot="/outputs/${name#??-}.png" --window-size=900,120 "file://$page" 2>>/work/err
done
chromium --headless --dump-dom "file://$(ls /inputs/*strip.html)" 2>>/work/err >/outputs/dom.html
chromium --headless --no-pdf-header-footer --print-to-pdf=/outputs/page.pdf "file://$(ls /inputs/*strip.html)" 2>>/work/err
pdftotext /outputs/page.pdf - | tr -d ' \n\f'
grep -v 'bytes written to file' /work/err >&2 || true
