"""Proofs on `office`: those of `data`, and its programs."""

import pathlib
import tempfile

import glyphs
import of_data
from of_data import characters, office_file
from prove import HERE, check, equal

PARAGRAPHS = {
    "通知": ["各部门：", "经研究决定，自2024年7月1日起执行新的报销办法。", "特此通知。"],
    "纪要": ["会议时间：2024年6月3日", "出席：王小明、欧阳娜娜", "议定事项：同意采购方案，金额为12,345.67元。"],
}


def together(image):
    """DOCX → PDF by LibreOffice → PNG by poppler, two sandboxes at once"""
    runs = image.together(*[
        {"script": "office/convert.py", "args": [title, glyphs.TEXT, glyphs.UNASSIGNED, *texts]}
        for title, texts in PARAGRAPHS.items()
    ])
    for run, (title, texts) in zip(runs, PARAGRAPHS.items()):
        expected = (title + "".join(texts)).replace(" ", "")
        equal(run.json["poppler"], expected, "text by poppler")
        equal(run.json["pypdf"], expected, "text by pypdf")
        check(all("NotoS" in f for f in run.json["fonts"]), f"fonts of the PDF: {run.json['fonts']}")
        check(run.bytes(f"{title}.pdf").startswith(b"%PDF-"), "no PDF")
        page = glyphs.read_png(run.bytes(f"{title}-1.png"))
        check(sum(map(sum, page)) > 0, "the page is blank")
        characters(run, ["strip"], "boxes", 20)
    (a, b), (c, d) = (run.json["conversion"] for run in runs)
    return f"both at work for {min(b, d) - max(a, c):.1f} s"


def sheets(image):
    """XLSX and PPTX → PDF, with formulas calculated; XLSX → CSV"""
    run = image.run("office/sheets.py")
    equal(sorted(run.json["表格.xlsx"]), sorted(["地区", "北京", "上海", "合计", "金额", "1200", "34", "1234"]), "cells in the PDF")
    check({"季度总结", "销售额同比增长"} <= set(run.json["演示.pptx"]), f"slide in the PDF: {run.json['演示.pptx']}")
    equal(run.json["csv"], ["地区,金额", "北京,1200", "上海,34", "合计,1234"], "CSV")


def page(image):
    """HTML → PNG and PDF by Chromium, Chinese in every generic family"""
    template = (HERE / "inputs" / "strip.html.in").read_text(encoding="utf-8")
    families = {"strip": "sans-serif", "serif": "serif", "monospace": "monospace", "yahei": '"Microsoft YaHei", Arial', "simsun": "SimSun"}
    with tempfile.TemporaryDirectory(prefix="creel-image-test-") as place:
        pages = []
        for name, family in families.items():
            pages.append(pathlib.Path(place) / f"{name}.html")
            pages[-1].write_text(template.replace("FAMILY", family).replace("TEXT", glyphs.TEXT), encoding="utf-8")
        pages.append(pathlib.Path(place) / "boxes.html")
        pages[-1].write_text(template.replace("FAMILY", "sans-serif").replace("TEXT", glyphs.UNASSIGNED), encoding="utf-8")
        run = image.run("office/page.sh", inputs=pages)
    equal(run.stdout.strip(), glyphs.TEXT, "text of the PDF")
    check(glyphs.TEXT in run.bytes("dom.html").decode(), "text not in the DOM")
    characters(run, families, "boxes", 14)
    return f"{len(families)} families"


def pandoc(image):
    """Markdown → DOCX and HTML by pandoc, and back"""
    run = image.run("office/pandoc.sh", inputs=[HERE / "inputs" / "公文.md"])
    words = ["关于开展数据质量检查的通知", "各部门：", "销售台账；", "王小明", "2024-07-15", "特此通知。"]
    texts = office_file(run.bytes("公文.docx"), "word/document.xml")
    html = run.bytes("公文.html").decode()
    for word in words:
        check(word in texts, f"{word} is not in the DOCX")
        check(word in html, f"{word} is not in the HTML")
        check(word in run.stdout, f"{word} did not come back")


def node(image):
    """DOCX and PPTX by Node's docx and pptxgenjs, with import and require"""
    run = image.run(command=["node", "/inputs/00-modules.mjs", "标题", "正文内容"], inputs=[HERE / "office" / "modules.mjs"])
    check(tuple(map(int, run.json["node"].split(".")[:2])) >= (20, 12), f"node {run.json['node']}")
    equal(run.json["required"], ["function"] * 3, "modules by require")
    equal(office_file(run.bytes("节点.docx"), "word/document.xml"), ["标题", "正文内容"], "DOCX")
    equal(office_file(run.bytes("节点.pptx"), "ppt/slides/slide1.xml"), ["标题", "正文内容"], "PPTX")


def bundle(image):
    """TypeScript page → one HTML file by parcel and html-inline, which Chromium runs"""
    run = image.run("office/bundle.sh", skill=HERE / "office" / "page")
    html = run.bytes("bundle.html").decode()
    check("<script src" not in html and 'rel="stylesheet"' not in html and "<style>" in html, "not all is inline")
    check("合计：1234" not in html, "calculated by the bundler: the next check shows nothing")
    check("合计：1234" in run.bytes("dom.html").decode(), "the page's script did not run")
    check(run.stdout.split()[0].startswith("9."), f"pnpm {run.stdout}")


def kaleido(image):
    """Plotly chart → PNG by kaleido and Chromium"""
    run = image.run("office/kaleido.py")
    picture = glyphs.read_png(run.bytes("图.png"))
    equal((len(picture[0]), len(picture)), (500, 300), "size")
    check(len({bytes(row) for row in picture}) > 20, "the chart is blank")


PROOFS = [*of_data.PROOFS, together, sheets, page, pandoc, node, bundle, kaleido]
