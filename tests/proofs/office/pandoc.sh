#!/bin/bash
# Markdown → DOCX → Markdown, and → HTML.
set -euo pipefail
md=$(ls /inputs/*.md)
pandoc "$md" -o /outputs/公文.docx
pandoc "$md" -s --metadata title=通知 -o /outputs/公文.html
pandoc /outputs/公文.docx -t plain --columns=200
