import sqlite3
import threading

db = sqlite3.connect("/work/data.db")
print(db.execute("pragma journal_mode=wal").fetchone())
db.execute("create table t (id integer primary key, name text, value real)")
with db:
    db.executemany("insert into t (name, value) values (?, ?)", ((f"名{n}", n / 3) for n in range(20000)))
db.execute("create index i on t (name)")
print(db.execute("select count(*), round(sum(value), 3), max(name) from t").fetchone())


def other():
    second = sqlite3.connect("/work/data.db", timeout=60)
    with second:
        second.execute("update t set value = 0 where id <= 10")
    second.close()


t = threading.Thread(target=other)
t.start()
t.join()
print(db.execute("select sum(value = 0) from t").fetchone(), db.execute("pragma integrity_check").fetchone())
db.execute("vacuum")
try:
    db.execute("insert into missing values (1)")
except sqlite3.OperationalError as e:
    print(e)
db.close()
