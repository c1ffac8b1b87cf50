"""Prints {name: version} of all Python packages of the image, as JSON; names as PEP 503 normalises them."""
import importlib.metadata
import json
import re

found = {}
for dist in importlib.metadata.distributions():
    name = dist.metadata["Name"]
    if name:
        # The first on sys.path is the one that is imported.
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), dist.version)
print(json.dumps(dict(sorted(found.items())), indent=1))
