"""What every image promises of its surroundings. Prints one JSON object; the host judges it."""

import datetime
import errno
import grp
import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import sys
import zoneinfo


def refusal(action):
    try:
        action()
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    return None


def connect():
    with socket.socket() as s:
        s.settimeout(2)
        s.connect(("192.0.2.1", 80))


print(json.dumps({
    "python": list(sys.version_info[:2]),
    "uid": os.getuid(),
    "gid": os.getgid(),
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "group": grp.getgrgid(os.getgid()).gr_name,
    "write_usr": refusal(lambda: open("/usr/x", "w")),
    "write_root": refusal(lambda: os.mkdir("/x")),
    "network": refusal(connect),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "python_program": subprocess.run(
        ["python", "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
    ).stdout.split(),
    "which": {name: shutil.which(name) for name in ("python", "python3", "bash")},
    "timezone": str(zoneinfo.ZoneInfo("Asia/Shanghai").utcoffset(datetime.datetime(2024, 6, 1))),
    "port_of_https": socket.getservbyname("https"),
    "certificates": len(ssl.create_default_context().get_ca_certs()) > 100,
    "encoding": [sys.getfilesystemencoding(), sys.stdout.encoding],
    "resolv_conf": open("/etc/resolv.conf").read() if os.path.exists("/etc/resolv.conf") else "",
    "logs": [
        path for path, _, names in os.walk("/var/log") for name in names if os.path.exists(os.path.join(path, name)) and os.path.getsize(os.path.join(path, name))
    ],
    "apt_lists": [name for _, _, names in os.walk("/var/lib/apt/lists") for name in names if name != "lock"],
    "caches": [
        os.path.join(path, name) for top in ("/var/cache/apt", "/var/cache/debconf") for path, _, names in os.walk(top) for name in names if name != "lock"
    ],
    "setuid": subprocess.run(
        ["find", "/", "-path", "/proc", "-prune", "-o", "-type", "f", "-perm", "/6000", "-print"], capture_output=True, text=True
    ).stdout.split(),
}, ensure_ascii=False))
