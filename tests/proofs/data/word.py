"""A document by python-docx: heading, paragraph, table and picture; read back by itself."""

import io
import sys

import docx
from docx.shared import Cm
from PIL import Image

title, paragraph, *cells = sys.argv[1:]
document = docx.Document()
document.core_properties.title = title
document.add_heading(title, level=1)
document.add_paragraph(paragraph)
table = document.add_table(rows=0, cols=2, style="Table Grid")
for left, right in zip(cells[::2], cells[1::2]):
    row = table.add_row().cells
    row[0].text, row[1].text = left, right
picture = io.BytesIO()
Image.new("RGB", (60, 40), "#3366cc").save(picture, "PNG")
picture.seek(0)
document.add_picture(picture, width=Cm(2))
document.save(f"/outputs/{title}.docx")

again = docx.Document(f"/outputs/{title}.docx")
assert [p.text for p in again.paragraphs][:2] == [title, paragraph]
assert [c.text for r in again.tables[0].rows for c in r.cells] == cells
