"""The report of the issue: pandas and matplotlib from a CSV with Chinese headers; a chart as PNG, a workbook with two sheets.

A warning is an error here: matplotlib warns of each glyph that no font has.
"""

import json
import logging
import os
import warnings

warnings.simplefilter("error")

import matplotlib as mpl
import matplotlib.font_manager as fonts
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib import ft2font

problems = []


class Collect(logging.Handler):
    def emit(self, record):
        problems.append(record.getMessage())


logging.getLogger("matplotlib").addHandler(Collect(logging.WARNING))

with open("/inputs/manifest.json", encoding="utf-8") as file:
    (item,) = json.load(file)
table = pd.read_csv(item["path"], encoding="utf-8-sig", parse_dates=["日期"])
table["销售额"] = table["数量"] * table["单价"]
by_month = table.pivot_table(index=table["日期"].dt.month, columns="地区", values="销售额", aggfunc="sum")
by_month.index.name = "月份"
by_product = table.groupby("产品", as_index=False)["销售额"].sum().sort_values("销售额", ascending=False)

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
by_month.plot(ax=left, marker="o")
left.set(title="各地区月度销售额", xlabel="月份", ylabel="销售额（元）")
right.bar(by_product["产品"], by_product["销售额"])
right.set_title("产品销售额 Sales by product", fontweight="bold")
fig.savefig("/outputs/图表.png", dpi=100)

with pd.ExcelWriter("/outputs/报告.xlsx", engine="xlsxwriter") as book:
    table.to_excel(book, sheet_name="明细", index=False)
    by_month.to_excel(book, sheet_name="月度汇总")
    chart = book.book.add_chart({"type": "column"})
    chart.add_series({"name": "北京", "values": "=月度汇总!$B$2:$B$13"})
    book.sheets["月度汇总"].insert_chart("G2", chart)

# Which fonts matplotlib takes for the title's text, and whether they have its characters.
paths = fonts.fontManager._find_fonts_by_props(fonts.FontProperties())
have = set()
for path in paths:
    have |= set(ft2font.FT2Font(str(path), face_index=path.face_index).get_charmap())
text = "".join(t.get_text() for t in fig.findobj(mpl.text.Text))
print(json.dumps({
    "fonts": [str(p) for p in paths],
    "missing": sorted({c for c in text if ord(c) not in have and c != "\n"}),
    "problems": problems,
    "total": round(float(table["销售额"].sum()), 2),
    "own_list": [p for p in os.listdir(mpl.get_cachedir()) if p.startswith("fontlist")],
}, ensure_ascii=False))
