"""XLSX and PPTX → PDF by LibreOffice; the formula is calculated by it, the text is extracted."""

import json
import subprocess

import openpyxl
from pptx import Presentation

book = openpyxl.Workbook()
sheet = book.active
sheet.title = "汇总"
for row in (("地区", "金额"), ("北京", 1200), ("上海", 34), ("合计", "=SUM(B2:B3)")):
    sheet.append(row)
book.save("/outputs/表格.xlsx")

deck = Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[1])
slide.shapes.title.text = "季度总结"
slide.placeholders[1].text = "销售额同比增长"
deck.save("/outputs/演示.pptx")

result = {}
for name in ("表格.xlsx", "演示.pptx"):
    subprocess.run(
        ["soffice", "--headless", "--convert-to", "pdf", "--outdir", "/outputs", f"/outputs/{name}"],
        check=True, capture_output=True,
    )
    pdf = f"/outputs/{name.split('.')[0]}.pdf"
    text = subprocess.run(["pdftotext", pdf, "-"], capture_output=True, text=True, check=True).stdout
    result[name] = text.split()
# and back: what LibreOffice calculated
subprocess.run(
    ["soffice", "--headless", "--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76", "--outdir", "/outputs", "/outputs/表格.xlsx"],
    check=True, capture_output=True,
)
with open("/outputs/表格.csv", encoding="utf-8") as file:
    result["csv"] = file.read().splitlines()
print(json.dumps(result, ensure_ascii=False))
