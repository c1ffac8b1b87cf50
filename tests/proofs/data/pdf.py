"""PDF files with Chinese, made by matplotlib, read by pypdf, pdfplumber and poppler; a page as a picture by pdf2image."""

import json
import subprocess
import sys

import matplotlib.pyplot as plt
import pdf2image
import pdfplumber
import pypdf

(text,) = sys.argv[1:]
plt.rcParams["pdf.fonttype"] = 42
fig = plt.figure(figsize=(8, 2))
fig.text(0.05, 0.5, text, fontsize=20)
fig.savefig("/outputs/文字.pdf")
page = pypdf.PdfReader("/outputs/文字.pdf").pages[0].extract_text().strip()
with pdfplumber.open("/outputs/文字.pdf") as pdf:
    plumbed = pdf.pages[0].extract_text().strip()
poppler = subprocess.run(["pdftotext", "/outputs/文字.pdf", "-"], capture_output=True, text=True, check=True).stdout.strip()
(image,) = pdf2image.convert_from_path("/outputs/文字.pdf", dpi=50)
image.save("/outputs/文字.png")
print(json.dumps({"pypdf": page, "pdfplumber": plumbed, "poppler": poppler, "size": image.size}, ensure_ascii=False))
