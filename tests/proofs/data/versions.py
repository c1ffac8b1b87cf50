"""All packages of requirements.txt are there in exactly that version, nothing else is, and what requirements.in names can be
imported. Prints one JSON object."""

import importlib
import importlib.metadata
import json
import re

MODULES = {
    "scikit-learn": "sklearn", "python-docx": "docx", "python-pptx": "pptx", "pillow": "PIL",
    "vl-convert-python": "vl_convert",
}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


with open("/inputs/manifest.json", encoding="utf-8") as file:
    files = {item["displayName"]: item["path"] for item in json.load(file)}
with open(files["requirements.txt"], encoding="utf-8") as file:
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", file.read(), re.M))
pins = {normal(name): version for name, version in pins.items()}
installed = {normal(d.metadata["Name"]): d.version for d in importlib.metadata.distributions()}
with open(files["requirements.in"], encoding="utf-8") as file:
    wanted = [normal(line) for line in re.findall(r"^([A-Za-z][A-Za-z0-9._-]*)", file.read(), re.M)]
imported = {}
for name in wanted:
    importlib.import_module(MODULES.get(name, name))
    imported[name] = installed[name]
print(json.dumps({
    "pinned": len(pins),
    "differ": {n: [v, installed.get(n)] for n, v in pins.items() if installed.get(n) != v},
    "extra": sorted(set(installed) - set(pins)),
    "imported": imported,
}))
