"""A workbook of several sheets to Parquet, by Polars and by DuckDB; both read back and compared by pyarrow."""

import datetime
import json

import duckdb
import openpyxl
import pandas as pd
import polars as pl
import pyarrow.parquet as pq

book = openpyxl.Workbook()
book.remove(book.active)
sheets = {
    "销售": [("日期", "地区", "数量", "单价")] + [
        (datetime.date(2024, 1 + i % 12, 1 + i % 28), ["北京", "上海", "四川"][i % 3], i, i * 1.25) for i in range(500)
    ],
    "库存": [("产品", "数量", "有效")] + [(f"产品{i}", i * 7, i % 2 == 0) for i in range(40)],
    "人员": [("姓名", "部门")] + [("王小明", "销售部"), ("李雷", None), ("欧阳娜娜", "财务部")],
}
for name, rows in sheets.items():
    sheet = book.create_sheet(name)
    for row in rows:
        sheet.append(row)
book.save("/outputs/台账.xlsx")

connection = duckdb.connect()
result = {}
for name, frame in pd.read_excel("/outputs/台账.xlsx", sheet_name=None).items():
    pl.from_pandas(frame).write_parquet(f"/outputs/{name}-polars.parquet", compression="zstd")
    connection.register("frame", frame)
    connection.execute(f"COPY (SELECT * FROM frame) TO '/outputs/{name}-duckdb.parquet' (FORMAT parquet)").fetchall()
    connection.unregister("frame")
    polars_table = pq.read_table(f"/outputs/{name}-polars.parquet")
    duckdb_table = pq.read_table(f"/outputs/{name}-duckdb.parquet")
    header, *rows = sheets[name]
    expected = [dict(zip(header, row)) for row in rows]

    def plain(table):
        values = table.to_pylist()
        for row in values:
            for key, value in row.items():
                if isinstance(value, datetime.datetime):
                    row[key] = value.date()
        return values

    assert plain(polars_table) == expected, name
    assert plain(duckdb_table) == expected, name
    assert polars_table.column_names == duckdb_table.column_names == list(header)
    # and across: each reads what the other wrote
    both = connection.execute(
        f"SELECT count(*) FROM (SELECT * FROM '/outputs/{name}-polars.parquet' EXCEPT SELECT * FROM '/outputs/{name}-duckdb.parquet')"
    ).fetchall()[0][0]
    assert both == 0 and pl.read_parquet(f"/outputs/{name}-duckdb.parquet").height == len(rows)
    result[name] = len(rows)
print(json.dumps(result, ensure_ascii=False))
