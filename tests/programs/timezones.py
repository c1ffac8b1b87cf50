import datetime
import time
import zoneinfo

moment = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
for zone in ("Asia/Shanghai", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"):
    print(moment.astimezone(zoneinfo.ZoneInfo(zone)).isoformat())
print(len(zoneinfo.available_timezones()) > 400)
print(time.strftime("%Y-%m-%d %H:%M:%S %Z", time.gmtime(86400)), time.tzname, time.localtime(0)[:6])
print(datetime.datetime.fromtimestamp(1e9).isoformat())
zoneinfo.ZoneInfo("Mars/Olympus")
