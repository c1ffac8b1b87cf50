"""What the standard library alone can do: a report of a CSV with Chinese headers, as JSON, text and a ZIP of CSV files."""

import collections
import csv
import decimal
import json
import pathlib
import statistics
import zipfile

with open("/inputs/manifest.json", encoding="utf-8") as file:
    (item,) = json.load(file)
with open(item["path"], encoding="utf-8-sig", newline="") as file:
    rows = list(csv.DictReader(file))

sales = collections.defaultdict(decimal.Decimal)
by_region = collections.defaultdict(list)
for row in rows:
    amount = int(row["数量"]) * decimal.Decimal(row["单价"])
    sales[row["地区"], row["产品"]] += amount
    by_region[row["地区"]].append(row)
quantities = [int(row["数量"]) for row in rows]
report = {
    "行数": len(rows),
    "销售额": {f"{region}/{product}": str(amount) for (region, product), amount in sorted(sales.items())},
    "数量": {"平均": statistics.fmean(quantities), "中位数": statistics.median(quantities)},
    "备注": sorted({row["备注"] for row in rows if row["备注"]}),
}

out = pathlib.Path("/outputs")
(out / "报告.json").write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")
lines = [f"{region:\u3000<4}{product:\u3000<5}{amount:>14,.2f}" for (region, product), amount in sorted(sales.items())]
(out / "报告.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
with zipfile.ZipFile(out / "按地区.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for region, part in by_region.items():
        path = pathlib.Path("/tmp") / f"{region}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, part[0].keys())
            writer.writeheader()
            writer.writerows(part)
        archive.write(path, f"按地区/{region}.csv")
print("完成", len(rows))
