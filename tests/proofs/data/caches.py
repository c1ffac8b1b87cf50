"""The caches that were made with the image are taken as they are. Prints one JSON object.

fontconfig's are valid only while each directory of fonts has the time that it had when they were made: an image that is
unpacked with other times has stale ones, and each program scans all fonts anew.
"""

import json
import os
import re
import subprocess

debug = subprocess.run(["fc-match", "sans-serif"], env={**os.environ, "FC_DEBUG": "16"}, capture_output=True, text=True)
times = re.findall(r'FcCacheTimeValid dir "([^"]*)" cache checksum (\S+) dir checksum (\S+)', debug.stdout + debug.stderr)
import matplotlib
import matplotlib.font_manager

print(json.dumps({
    "directories": len(times),
    "stale": [directory for directory, cache, now in times if cache != now],
    "written": [name for _, _, names in os.walk("/tmp/.cache") for name in names],
    "matplotlib_written": os.listdir(matplotlib.get_cachedir()),
    "matplotlib_fonts": len(matplotlib.font_manager.fontManager.ttflist),
}))
