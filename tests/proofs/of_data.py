"""Proofs on `data`."""

import decimal
import io
import re
import xml.etree.ElementTree as ET
import zipfile

import glyphs
from of_minimal import SALES, bytecode, sales, surroundings
from prove import ROOT, check, equal

REQUIREMENTS = ROOT / "rootfs" / "data"


def office_file(data, member):
    """The text of an XML member of a DOCX, XLSX or PPTX file, by paragraph or cell."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        equal(archive.testzip(), None, "ZIP")
        check("[Content_Types].xml" in archive.namelist(), "no office file")
        root = ET.fromstring(archive.read(member))
    groups = [e for e in root.iter() if e.tag.rsplit("}", 1)[-1] in ("p", "si")]
    texts = ("".join(t.text or "" for t in g.iter() if t.tag.rsplit("}", 1)[-1] == "t") for g in groups)
    return [t for t in texts if t]


def characters(run, names, boxes, gap):
    """The strips `names` are characters; the strip `boxes` is seen as boxes, which shows that this check can fail."""
    for name in names:
        wrong = glyphs.judge(run.bytes(f"{name}.png"), len(glyphs.TEXT), gap)
        check(wrong is None, f"{name}.png: {wrong}")
    if boxes:
        wrong = glyphs.judge(run.bytes(f"{boxes}.png"), len(glyphs.UNASSIGNED), gap)
        check(wrong and "boxes" in wrong, f"{boxes}.png has none, but was judged: {wrong}")


def packages(image):
    """All packages in their pinned versions, nothing else; each import works"""
    inputs = [REQUIREMENTS / "requirements.txt", REQUIREMENTS / "requirements.in"]
    found = image.run("data/versions.py", inputs=inputs).json
    pins = re.findall(r"^[A-Za-z0-9._-]+==", inputs[0].read_text(encoding="utf-8"), re.M)
    equal(found["pinned"], len(pins), "pins read")
    equal(found["differ"], {}, "versions that differ")
    equal(found["extra"], [], "packages that are not pinned")
    check(len(found["imported"]) >= 25, f"imported only {found['imported']}")
    return f"{len(pins)} packages, {len(found['imported'])} imported"


def report(image):
    """CSV with Chinese headers → chart PNG and XLSX by pandas and matplotlib"""
    run = image.run("data/report.py", inputs=[SALES])
    rows, total = sales()
    said = run.json
    equal(said["missing"], [], "characters that the fonts lack")
    equal(said["problems"], [], "warnings of matplotlib")
    equal(decimal.Decimal(str(said["total"])), total, "total")
    equal(said["own_list"], [], "font lists made in this run")
    picture = glyphs.read_png(run.bytes("图表.png"))
    equal((len(picture[0]), len(picture)), (1100, 420), "size of the chart")
    check(sum(map(sum, picture)) > 0, "the chart is blank")
    texts = set(office_file(run.bytes("报告.xlsx"), "xl/sharedStrings.xml"))
    check(set(rows[0]) | {r["地区"] for r in rows} | {"月份", "销售额"} <= texts, f"texts of the workbook: {sorted(texts)[:20]}")
    with zipfile.ZipFile(io.BytesIO(run.bytes("报告.xlsx"))) as book:
        names = [e.get("name") for e in ET.fromstring(book.read("xl/workbook.xml")).iter() if e.tag.endswith("}sheet")]
        sheet = ET.fromstring(book.read("xl/worksheets/sheet1.xml"))
        check("xl/charts/chart1.xml" in book.namelist(), "no chart in the workbook")
    equal(names, ["明细", "月度汇总"], "sheets")
    equal(sum(e.tag.endswith("}row") for e in sheet.iter()), len(rows) + 1, "rows of 明细")


def no_boxes(image):
    """Chinese glyphs, however fonts are asked for: matplotlib, seaborn, altair"""
    run = image.run("data/strips.py", args=[glyphs.TEXT, glyphs.UNASSIGNED])
    names = [p.stem for p in run.out.glob("*.png") if not p.stem.startswith("boxes")]
    check(len(names) >= 8, f"only {names}")
    characters(run, names, "boxes-matplotlib", 14)
    return f"{len(names)} ways"


def word(image):
    """DOCX with Chinese by python-docx"""
    texts = ["会议纪要", "经研究，决定如下：同意。", "部门", "销售部", "日期", "2024年6月30日"]
    run = image.run("data/word.py", args=texts)
    equal(office_file(run.bytes("会议纪要.docx"), "word/document.xml"), texts, "texts of the document")


def parquet(image):
    """XLSX of three sheets → Parquet by Polars and DuckDB, compared by pyarrow"""
    run = image.run("data/parquet.py")
    equal(run.json, {"销售": 500, "库存": 40, "人员": 3}, "rows")
    for name in run.json:
        for writer in ("polars", "duckdb"):
            data = run.bytes(f"{name}-{writer}.parquet")
            check(data[:4] == data[-4:] == b"PAR1" and len(data) > 100, f"{name}-{writer}: no Parquet file")


def pdf(image):
    """PDF with Chinese, read by pypdf, pdfplumber and poppler; PDF → PNG by pdf2image"""
    text = "合同编号 2024-001 甲方：北京某某公司"
    run = image.run("data/pdf.py", args=[text])
    for reader in ("pypdf", "pdfplumber", "poppler"):
        equal(run.json[reader], text, f"text by {reader}")
    check(run.bytes("文字.pdf").startswith(b"%PDF-"), "no PDF")
    picture = glyphs.read_png(run.bytes("文字.png"))
    check(sum(map(sum, picture)) > 0, "the picture is blank")


def caches(image):
    """Font caches of the image are valid: none is made anew in a run"""
    found = image.run("data/caches.py").json
    check(found["directories"] > 3, f"fontconfig looked at {found['directories']} directories only")
    equal(found["stale"], [], "stale caches")
    equal(found["written"] + found["matplotlib_written"], [], "caches written in the run")
    check(found["matplotlib_fonts"] > 60, "matplotlib's list is short")


PROOFS = [surroundings, bytecode, packages, report, no_boxes, word, parquet, pdf, caches]
