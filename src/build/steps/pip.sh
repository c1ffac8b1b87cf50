# pip step: /inputs/requirements.txt into the image's own Python; arguments are globs of what is not kept of the packages.
set -euo pipefail

python=$(command -v python3)
# On the overlay, so that uv can link files instead of copying them.
export UV_CACHE_DIR=/var/cache/creel-build UV_LINK_MODE=hardlink UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never UV_NO_CONFIG=1
hashes=()
grep -q -- '--hash=' /inputs/requirements.txt && hashes=(--require-hashes)
/build/uv pip install --python "$python" --system --break-system-packages --only-binary :all: "${hashes[@]}" \
  -r /inputs/requirements.txt
/build/uv pip check --python "$python" --system
rm -rf "$UV_CACHE_DIR"

site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib", "posix_local"))')
"$python" - "$site" "$@" <<'PY'
import pathlib, shutil, sys
site = pathlib.Path(sys.argv[1])
for pattern in sys.argv[2:]:
    for path in sorted(site.glob(pattern), reverse=True):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.exists() or path.is_symlink():
            path.unlink()
PY
# Unchecked: a read-only image has no other source than the one compiled here, and no time is spent on looking.
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$site" || true
