"""A sales report, as a language model might write it: Python's standard library and nothing else.

Reads the CSV file among /inputs (日期, 地区, 产品, 数量, 单价) and leaves in /outputs:
  summary.md    the figures, to read
  summary.xlsx  a spreadsheet: a table of months and regions with formulas, and all rows
  chart.svg     sales by month and region, and by product
  chart.png     sales by month, as a picture that every program shows
"""

import csv
import json
import struct
import zipfile
import zlib
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from xml.sax.saxutils import escape

OUTPUTS = Path("/outputs")
COLOURS = ["#2f6f9f", "#e08a3c", "#5aa469", "#b3576b", "#8a78b8", "#8d8d8d"]


# --- reading -------------------------------------------------------------------


def read_sales():
    """The file's name, and its rows with numbers for numbers and an amount."""
    manifest = json.loads(Path("/inputs/manifest.json").read_text(encoding="utf-8"))
    table = next(f for f in manifest if f["displayName"].lower().endswith(".csv"))
    rows = []
    with open(table["path"], encoding="utf-8-sig", newline="") as f:
        for row in csv.DictReader(f):
            row["数量"] = int(row["数量"])
            row["单价"] = Decimal(row["单价"])
            row["金额"] = row["数量"] * row["单价"]
            row["月份"] = row["日期"][:7]
            rows.append(row)
    return table["displayName"], rows


def total_by(rows, *keys):
    totals = defaultdict(Decimal)
    for row in rows:
        totals[tuple(row[k] for k in keys) if len(keys) > 1 else row[keys[0]]] += row["金额"]
    return totals


def largest_first(totals):
    return sorted(totals.items(), key=lambda item: -item[1])


# --- summary.md ------------------------------------------------------------------


def summary(name, rows):
    months, regions, products = (total_by(rows, k) for k in ("月份", "地区", "产品"))
    total = sum(months.values())
    best, best_amount = largest_first(months)[0]
    returned = sum(1 for r in rows if r["数量"] < 0)
    lines = [
        "# 销售汇总",
        "",
        f"数据：{name}，{len(rows)} 行，{rows[0]['日期']} 至 {rows[-1]['日期']}（其中退货 {returned} 笔）。",
        "",
        f"* 总销售额：**{total:,.2f} 元**",
        f"* 最好的月份：**{best}**，{best_amount:,.2f} 元",
        f"* 最大的地区：**{largest_first(regions)[0][0]}**",
        "",
    ]
    for title, totals in (("地区", regions), ("产品", products)):
        lines += [f"## 按{title}", "", f"| {title} | 销售额（元） | 占比 |", "|---|---:|---:|"]
        lines += [f"| {k} | {v:,.2f} | {v / total:.1%} |" for k, v in largest_first(totals)]
        lines.append("")
    lines += ["## 按月份", "", "| 月份 | 销售额（元） |", "|---|---:|"]
    lines += [f"| {k} | {v:,.2f} |" for k, v in sorted(months.items())]
    return "\n".join(lines) + "\n"


# --- charts ------------------------------------------------------------------------


def scale(largest):
    """A round step, and how many of them hold the largest value."""
    step = next(
        m * 10**e for e in range(12) for m in (1, 2, 5) if m * 10**e * 6 >= largest
    )
    return step, int(largest // step) + 1


def svg_chart(rows):
    cells, products = total_by(rows, "月份", "地区"), largest_first(total_by(rows, "产品"))
    months = sorted({r["月份"] for r in rows})
    regions = [k for k, _ in largest_first(total_by(rows, "地区"))]
    sums = total_by(rows, "月份")
    step, steps = scale(max(sums.values()))
    left, top, height, pitch = 80, 70, 300, 80
    bottom, right = top + height, left + pitch * len(months)
    out = [f'<text x="{left}" y="36" font-size="20" font-weight="600">月度销售额（元）</text>']
    for i in range(steps + 1):
        y = bottom - height * i / steps
        out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dde3e8"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{step * i:,}</text>')
    for m, month in enumerate(months):
        x, y = left + pitch * m + 16, float(bottom)
        for r, region in enumerate(regions):
            # Returned goods can make a month negative in a region: no bar then.
            h = height * float(max(cells.get((month, region), 0), 0)) / (step * steps)
            y -= h
            out.append(
                f'<rect x="{x}" y="{y:.1f}" width="{pitch - 32}" height="{h:.1f}" fill="{COLOURS[r % 6]}">'
                f"<title>{escape(month)} {escape(region)}</title></rect>"
            )
        out.append(f'<text x="{x + pitch / 2 - 16}" y="{bottom + 20}" text-anchor="middle">{escape(month)}</text>')
    for r, region in enumerate(regions):
        x = left + 90 * r
        out.append(f'<rect x="{x}" y="{bottom + 38}" width="14" height="14" fill="{COLOURS[r % 6]}"/>')
        out.append(f'<text x="{x + 20}" y="{bottom + 50}">{escape(region)}</text>')

    x0, span = right + 130, 240
    out.append(f'<text x="{x0 - 70}" y="36" font-size="20" font-weight="600">产品</text>')
    for p, (product, amount) in enumerate(products):
        y, w = top + 50 * p, span * float(max(amount, 0)) / float(products[0][1])
        out.append(f'<text x="{x0 - 10}" y="{y + 22}" text-anchor="end">{escape(product)}</text>')
        out.append(f'<rect x="{x0}" y="{y + 4}" width="{w:.1f}" height="28" rx="3" fill="{COLOURS[0]}"/>')
        out.append(f'<text x="{x0 + w + 8:.1f}" y="{y + 22}">{amount:,.0f}</text>')
    body = "\n".join(out)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x0 + span + 100} {bottom + 80}" '
        'font-family="Noto Sans CJK SC, Microsoft YaHei, PingFang SC, sans-serif" font-size="13" fill="#26323a">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


class Picture:
    """Rectangles and digits, written as a PNG file."""

    # Three columns and five rows a character, a row in three bits.
    GLYPHS = dict(zip("0123456789-", (
        (7, 5, 5, 5, 7), (2, 6, 2, 2, 7), (7, 1, 7, 4, 7), (7, 1, 7, 1, 7), (5, 5, 7, 1, 1), (7, 4, 7, 1, 7),
        (7, 4, 7, 5, 7), (7, 1, 1, 2, 2), (7, 5, 7, 5, 7), (7, 5, 7, 1, 7), (0, 0, 7, 0, 0),
    )))

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.rows = [bytearray(b"\xff" * (3 * width)) for _ in range(height)]

    def rectangle(self, x, y, width, height, colour):
        pixels = bytes.fromhex(colour[1:]) * width
        for row in self.rows[y:y + height]:
            row[3 * x:3 * (x + width)] = pixels

    def text(self, x, y, text, colour, anchor, dot=3):
        """Digits and dashes; x is where their middle is, or their end."""
        width = len(text) * 4 * dot - dot
        x -= width if anchor == "end" else width // 2
        for character in text:
            for line, bits in enumerate(self.GLYPHS[character]):
                for column in range(3):
                    if bits & 4 >> column:
                        self.rectangle(x + column * dot, y + line * dot, dot, dot, colour)
            x += 4 * dot

    def png(self):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + row for row in self.rows), 9)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def png_chart(rows):
    sums = sorted(total_by(rows, "月份").items())
    best = max(sums, key=lambda item: item[1])[0]
    step, steps = scale(max(amount for _, amount in sums))
    left, top, height, pitch = 130, 50, 400, 130
    bottom = top + height
    picture = Picture(left + pitch * len(sums) + 40, bottom + 60)
    for i in range(steps + 1):
        y = bottom - height * i // steps
        picture.rectangle(left, y, pitch * len(sums), 2 if i == 0 else 1, "#26323a" if i == 0 else "#dde3e8")
        picture.text(left - 14, y - 7, str(step * i), "#5b6973", "end")
    for m, (month, amount) in enumerate(sums):
        h = int(height * max(amount, 0) / (step * steps))
        x = left + pitch * m + 24
        picture.rectangle(x, bottom - h, pitch - 48, h, COLOURS[1] if month == best else COLOURS[0])
        middle = left + pitch * m + pitch // 2
        picture.text(middle, bottom - h - 22, f"{amount:.0f}", "#26323a", "middle")
        picture.text(middle, bottom + 18, month, "#5b6973", "middle")
    return picture.png()


# --- summary.xlsx --------------------------------------------------------------------

# Cell formats, by their place in styles.xml.
PLAIN, HEADER, MONEY, SUM = range(4)

STYLES = """<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">
<fonts count="2"><font><sz val="11"/><name val="Calibri"/></font><font><b/><sz val="11"/><name val="Calibri"/></font></fonts>
<fills count="3"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>
<fill><patternFill patternType="solid"><fgColor rgb="FFDCE8F0"/></patternFill></fill></fills>
<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>
<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>
<cellXfs count="4"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>
<xf numFmtId="0" fontId="1" fillId="2" borderId="0" xfId="0" applyFont="1" applyFill="1"/>
<xf numFmtId="4" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>
<xf numFmtId="4" fontId="1" fillId="0" borderId="0" xfId="0" applyNumberFormat="1" applyFont="1"/></cellXfs>
<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles>
</styleSheet>"""


class Formula:
    def __init__(self, text, value):
        self.text, self.value = text, value


def cell(reference, value, style):
    if isinstance(value, Formula):
        return f'<c r="{reference}" s="{style}"><f>{value.text}</f><v>{value.value}</v></c>'
    if isinstance(value, (int, Decimal)):
        return f'<c r="{reference}" s="{style}"><v>{value}</v></c>'
    return f'<c r="{reference}" s="{style}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'


def sheet(rows):
    """A worksheet; the first row is its header. Each row: (value, style) pairs; at most 26 of them."""
    lines = []
    for r, row in enumerate(rows, 1):
        cells = (cell(f"{chr(65 + c)}{r}", value, style) for c, (value, style) in enumerate(row))
        lines.append(f'<row r="{r}">{"".join(cells)}</row>')
    return (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" '
        'state="frozen"/></sheetView></sheetViews><sheetFormatPr defaultRowHeight="15"/>'
        f'<cols><col min="1" max="{len(rows[0])}" width="14" customWidth="1"/></cols>'
        f'<sheetData>{"".join(lines)}</sheetData></worksheet>'
    )


def month_sheet(rows):
    cells = total_by(rows, "月份", "地区")
    months = sorted({r["月份"] for r in rows})
    regions = [k for k, _ in largest_first(total_by(rows, "地区"))]
    end = chr(65 + len(regions))
    table = [[(v, HEADER) for v in ["月份", *regions, "合计"]]]
    for n, month in enumerate(months, 2):
        amounts = [cells.get((month, region), Decimal(0)) for region in regions]
        total = Formula(f"SUM(B{n}:{end}{n})", sum(amounts))
        table.append([(month, PLAIN), *((a, MONEY) for a in amounts), (total, SUM)])
    last, columns = len(months) + 1, [total_by(rows, "地区")[r] for r in regions]
    columns.append(sum(columns))
    sums = (Formula(f"SUM({chr(66 + c)}2:{chr(66 + c)}{last})", v) for c, v in enumerate(columns))
    table.append([("合计", HEADER), *((s, SUM) for s in sums)])
    return sheet(table)


def row_sheet(rows):
    table = [[(v, HEADER) for v in ["日期", "地区", "产品", "数量", "单价", "金额"]]]
    for n, r in enumerate(rows, 2):
        amount = Formula(f"D{n}*E{n}", r["金额"])
        table.append([*((r[k], PLAIN) for k in ("日期", "地区", "产品", "数量")), (r["单价"], MONEY), (amount, MONEY)])
    return sheet(table)


def write_workbook(path, sheets):
    main = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    numbers = range(1, len(sheets) + 1)
    relation = f'<Relationship Id="rId%s" Type="{office}/%s" Target="%s"/>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{main}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{main}.styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{main}.worksheet+xml"/>' for n in numbers
        )
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        + relation % (1, "officeDocument", "xl/workbook.xml")
        + "</Relationships>",
        "xl/workbook.xml": '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
        f'xmlns:r="{office}"><sheets>'
        + "".join(f'<sheet name="{escape(s)}" sheetId="{n}" r:id="rId{n}"/>' for n, s in zip(numbers, sheets))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        + "".join(relation % (n, "worksheet", f"worksheets/sheet{n}.xml") for n in numbers)
        + relation % (len(sheets) + 1, "styles", "styles.xml")
        + "</Relationships>",
        "xl/styles.xml": STYLES,
    }
    for n, content in zip(numbers, sheets.values()):
        parts[f"xl/worksheets/sheet{n}.xml"] = content
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for part, content in parts.items():
            z.writestr(part, '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n' + content)


def main():
    name, rows = read_sales()
    text = summary(name, rows)
    (OUTPUTS / "summary.md").write_text(text, encoding="utf-8")
    (OUTPUTS / "chart.svg").write_text(svg_chart(rows), encoding="utf-8")
    (OUTPUTS / "chart.png").write_bytes(png_chart(rows))
    write_workbook(OUTPUTS / "summary.xlsx", {"月度汇总": month_sheet(rows), "明细": row_sheet(rows)})
    print("\n".join(text.split("\n")[:7]))


main()
