"""DOCX → PDF → PNG: python-docx writes, LibreOffice converts, poppler makes a picture; the PDF's text is extracted twice.

Arguments: a title, a strip of characters for the picture, code points without a character, then paragraphs.
"""

import json
import subprocess
import sys
import time

import docx
import pypdf
from docx.oxml.ns import qn
from docx.shared import Pt

title, strip, unassigned, *paragraphs = sys.argv[1:]


def convert(source):
    done = subprocess.run(
        ["soffice", "--headless", "--convert-to", "pdf", "--outdir", "/outputs", source], capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr.strip(), done
    return "/outputs/" + source.rsplit("/", 1)[1].replace(".docx", ".pdf")


def picture(name, characters):
    document = docx.Document()
    run = document.add_paragraph().add_run("\u3000".join(characters))
    run.font.size = Pt(14)
    document.save(f"/work/{name}.docx")
    subprocess.run(["pdftoppm", "-r", "150", "-png", "-singlefile", convert(f"/work/{name}.docx"), f"/outputs/{name}"], check=True)


started = time.monotonic()
document = docx.Document()
document.add_heading(title, level=1)
for text in paragraphs:
    # a font that is not installed here, as in most documents
    run = document.add_paragraph().add_run(text)
    run.font.name = "SimSun"
    run._element.rPr.rFonts.set(qn("w:eastAsia"), "宋体")
document.save(f"/outputs/{title}.docx")
pdf = convert(f"/outputs/{title}.docx")
converted = time.monotonic()
picture("strip", strip)
picture("boxes", unassigned)
subprocess.run(["pdftoppm", "-r", "80", "-png", pdf, f"/outputs/{title}"], check=True)
poppler = subprocess.run(["pdftotext", pdf, "-"], capture_output=True, text=True, check=True).stdout
print(json.dumps({
    "poppler": "".join(poppler.split()),
    "pypdf": "".join("".join(page.extract_text() for page in pypdf.PdfReader(pdf).pages).split()),
    "fonts": sorted({line.split()[0].split("+")[-1] for line in subprocess.run(
        ["pdffonts", pdf], capture_output=True, text=True, check=True).stdout.splitlines()[2:]}),
    "conversion": [started, converted],
}, ensure_ascii=False))
