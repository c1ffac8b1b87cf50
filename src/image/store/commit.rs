//! From blobs to an installed image.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::merge::Merge;
use super::plan::{Plan, PlannedLayer};
use super::{Facts, Installed, LayerFacts, Named, StoreError, Work};
use crate::image::oci::{Digest, HashingReader, LayerMedia, Reference};
use crate::image::runtime_config;
use crate::image::unpack::{self, LayerRecord, Limits};

/// How many notes of one kind an image keeps.
const NOTES: usize = 50;

/// A layer that is unpacked, here or in the store.
struct Ready {
    /// The directory with `fs/` and `layer.json`.
    dir: PathBuf,
    record: LayerRecord,
}

impl Work<'_> {
    /// Installs the image of `manifest` under `names`: checks manifest, configuration and layers, unpacks what is not yet
    /// unpacked (each diff_id is verified), makes the bundle, then names it. A name that stood for another image is moved.
    ///
    /// Either all of it is done or nothing: before the names are written everything is on the disk.
    ///
    /// # Errors
    /// What is wrong with the image, or [`StoreError::Io`].
    pub fn commit(&self, manifest: &Digest, names: &[Reference]) -> Result<Installed, StoreError> {
        names.iter().try_for_each(check_name)?;
        let plan = self.plan(manifest)?;
        let ready = self.unpack_all(&plan)?;
        let bundle = self.store.bundle(manifest);
        let built = self.dir.join(format!("bundle-{}", manifest.hex()));
        if !bundle.is_dir() && !built.is_dir() {
            self.observer.phase("putting the layers together");
            self.build_bundle(&plan, &ready, &built)?;
        }
        self.observer.phase("writing to the disk");
        self.publish(&plan, &ready, &built, &bundle)?;
        if !names.is_empty() {
            self.store.change_names(|index| {
                for name in names {
                    let name = name.to_string();
                    index.retain(|n| n.name() != name);
                    index.push(Named::new(&name, *manifest, plan.manifest_size, &plan.media_type));
                }
            })?;
            self.store.set_first_default(&names[0].to_string())?;
        }
        self.store.lock_bundle(manifest, names.first().map(ToString::to_string))?.ok_or_else(|| {
            let reason = "it vanished while it was installed".to_owned();
            StoreError::Damaged { path: bundle, reason }
        })
    }

    /// Prepares the tree of an image without installing it: the layers unpacked and merged, as they would be by
    /// [`commit`](Work::commit), which takes over what was prepared. The tree is this work's, and must not be changed.
    ///
    /// # Errors
    /// As of [`commit`](Work::commit).
    pub fn stage(&self, manifest: &Digest) -> Result<PathBuf, StoreError> {
        let plan = self.plan(manifest)?;
        let ready = self.unpack_all(&plan)?;
        let bundle = self.store.bundle(manifest);
        if bundle.is_dir() {
            return Ok(bundle.join("rootfs"));
        }
        let built = self.dir.join(format!("bundle-{}", manifest.hex()));
        if !built.is_dir() {
            self.build_bundle(&plan, &ready, &built)?;
        }
        Ok(built.join("rootfs"))
    }

    fn unpack_all(&self, plan: &Plan) -> Result<Vec<Ready>, StoreError> {
        let count = plan.layers.len();
        let mut ready = Vec::with_capacity(count);
        for (at, layer) in plan.layers.iter().enumerate() {
            let there = self.store.layer(&layer.diff_id);
            let here = self.dir.join(format!("layer-{}", layer.diff_id.hex()));
            let dir = match (there.is_dir(), here.is_dir()) {
                (true, _) => {
                    self.verify(layer, at + 1, count, &there)?;
                    there
                }
                (false, true) => {
                    self.verify(layer, at + 1, count, &here)?;
                    here
                }
                (false, false) => {
                    self.observer.phase(&format!("unpacking layer {}/{count}", at + 1));
                    self.unpack(layer, at + 1, count, &here)?;
                    here
                }
            };
            let path = dir.join("layer.json");
            let bytes = fs::read(&path).map_err(|e| StoreError::io("read", &path, e))?;
            let record = serde_json::from_slice(&bytes).map_err(|e| StoreError::Damaged {
                path,
                reason: e.to_string().escape_debug().to_string(),
            })?;
            ready.push(Ready { dir, record });
        }
        Ok(ready)
    }

    fn open_layer(&self, layer: &PlannedLayer) -> Result<File, StoreError> {
        self.blob(&layer.digest)?.ok_or(StoreError::BlobMissing { what: "layer", digest: layer.digest })
    }

    fn unpack(
        &self,
        layer: &PlannedLayer,
        number: usize,
        count: usize,
        dir: &Path,
    ) -> Result<(), StoreError> {
        let tmp = self.dir.join("unpacking");
        // What an attempt that failed left, should the caller go on with another image.
        self.discard("unpacking")?;
        let fail = |e| StoreError::io("make", &tmp, e);
        DirBuilder::new().mode(0o700).create(&tmp).map_err(fail)?;
        DirBuilder::new().mode(0o755).create(tmp.join("fs")).map_err(fail)?;
        let fs_dir = File::open(tmp.join("fs")).map_err(fail)?;
        let digest = layer.digest;
        let limits = Limits { ratio: self.ratio, ..Limits::default() };
        let unpacked = unpack::layer(self.open_layer(layer)?, fs_dir.as_fd(), &limits)
            .map_err(|source| StoreError::Unpack { number, count, digest, source })?;
        if unpacked.diff_id != layer.diff_id {
            let (expected, found) = (layer.diff_id, unpacked.diff_id);
            return Err(StoreError::WrongDiffId { number, count, digest, expected, found });
        }
        let write = |name: &str, content: &[u8]| {
            let path = tmp.join(name);
            fs::write(&path, content).map_err(|e| StoreError::io("write", &path, e))
        };
        let record = serde_json::to_vec(&unpacked.record).map_err(|e| fail(e.into()))?;
        write("layer.json", &record)?;
        write(&format!("from-{}", digest.hex()), b"")?;
        fs::rename(&tmp, dir).map_err(fail)
    }

    /// Makes sure that a blob holds the layer that it is said to hold, when that layer is unpacked already. Done once for each blob.
    fn verify(
        &self,
        layer: &PlannedLayer,
        number: usize,
        count: usize,
        dir: &Path,
    ) -> Result<(), StoreError> {
        let digest = layer.digest;
        let mark = dir.join(format!("from-{}", digest.hex()));
        if mark.exists() {
            return Ok(());
        }
        let found = if layer.media == LayerMedia::Tar && digest == layer.diff_id {
            digest
        } else {
            self.observer.phase(&format!("verifying layer {number}/{count}"));
            let source = |source| StoreError::Source { what: format!("layer {digest}"), source };
            let stream = unpack::decompress(self.open_layer(layer)?).map_err(source)?;
            let stream = stream.with_ratio(self.ratio);
            let mut hashing = HashingReader::new(stream);
            io::copy(&mut hashing, &mut io::sink()).map_err(source)?;
            hashing.finish().0
        };
        if found != layer.diff_id {
            let expected = layer.diff_id;
            return Err(StoreError::WrongDiffId { number, count, digest, expected, found });
        }
        fs::write(&mark, b"").map_err(|e| StoreError::io("write", &mark, e))
    }

    fn discard(&self, name: &str) -> Result<(), StoreError> {
        let fail = |e| StoreError::io("remove", &self.dir.join(name), e);
        let dir = File::open(&self.dir).map_err(fail)?;
        crate::sandbox::tree::remove_tree(dir.as_fd(), name.as_ref()).map_err(fail)
    }

    fn build_bundle(&self, plan: &Plan, ready: &[Ready], built: &Path) -> Result<(), StoreError> {
        let tmp = self.dir.join("building");
        self.discard("building")?;
        let fail = |e| StoreError::io("make", &tmp, e);
        DirBuilder::new().mode(0o700).create(&tmp).map_err(fail)?;
        DirBuilder::new().mode(0o755).create(tmp.join("rootfs")).map_err(fail)?;
        let rootfs = File::open(tmp.join("rootfs")).map_err(fail)?;
        let mut merge = Merge::new(rootfs.as_fd());
        for layer in ready {
            let path = layer.dir.join("fs");
            let fs_dir = File::open(&path).map_err(|e| StoreError::io("open", &path, e))?;
            merge.add(fs_dir.as_fd(), &layer.record)?;
        }
        merge.finish()?;
        let mut notes = Vec::new();
        let config = runtime_config::build(&plan.settings, rootfs.as_fd(), &mut notes);
        for (at, layer) in ready.iter().enumerate() {
            let dropped = layer.record.dropped.iter().take(NOTES);
            notes.extend(dropped.map(|what| format!("layer {}: {what}", at + 1)));
        }
        let facts = Facts {
            manifest: plan.manifest,
            config: plan.config,
            created: plan.settings.created.as_ref().map(|c| c.escape_debug().take(40).collect()),
            size: ready.iter().map(|r| r.record.bytes).sum(),
            layers: plan.layers.iter().zip(ready).map(|(l, r)| layer_facts(l, &r.record)).collect(),
            notes,
        };
        let json = |value: serde_json::Result<Vec<u8>>| value.map_err(|e| fail(e.into()));
        let write = |name: &str, content: &[u8]| {
            let path = tmp.join(name);
            fs::write(&path, content).map_err(|e| StoreError::io("write", &path, e))
        };
        write("config.json", &json(serde_json::to_vec_pretty(&config))?)?;
        write("image.json", &json(serde_json::to_vec_pretty(&facts))?)?;
        write("lock", b"")?;
        if let Some(packages) = &plan.packages {
            write("installed-packages.json", packages.as_bytes())?;
        }
        fs::rename(&tmp, built).map_err(fail)
    }

    /// Gives everything its place, when all of it is on the disk.
    fn publish(&self, plan: &Plan, ready: &[Ready], built: &Path, bundle: &Path) -> Result<(), StoreError> {
        let root = self.store.path();
        let top = File::open(root).map_err(|e| StoreError::io("open", root, e))?;
        rustix::fs::syncfs(&top).map_err(|e| StoreError::io("sync", root, e.into()))?;
        let blobs = plan.layers.iter().map(|l| l.digest).chain([plan.config, plan.manifest]);
        for digest in blobs {
            let path = self.store.blob_path(&digest);
            move_file(&self.staged_path(&digest), &path).map_err(|e| StoreError::io("write", &path, e))?;
        }
        for (layer, ready) in plan.layers.iter().zip(ready) {
            let path = self.store.layer(&layer.diff_id);
            if ready.dir != path {
                move_dir(&ready.dir, &path).map_err(|e| StoreError::io("write", &path, e))?;
            }
        }
        move_dir(built, bundle).map_err(|e| StoreError::io("write", bundle, e))?;
        for dir in ["blobs/sha256", "layers", "bundles"] {
            let path = root.join(dir);
            File::open(&path).and_then(|d| d.sync_all()).map_err(|e| StoreError::io("sync", &path, e))?;
        }
        Ok(())
    }
}

/// Whether an image may have the name.
///
/// # Errors
/// [`StoreError::NameReserved`]: `creel run --image host` would never come to it.
pub fn check_name(name: &Reference) -> Result<(), StoreError> {
    match name.name() == "host" {
        true => Err(StoreError::NameReserved { name: name.to_string() }),
        false => Ok(()),
    }
}

/// A blob that is not here is in the store already.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// One that is there was made from the same content by somebody who was faster.
fn move_dir(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
            ) && to.is_dir() =>
        {
            Ok(())
        }
        other => other,
    }
}

fn layer_facts(layer: &PlannedLayer, record: &LayerRecord) -> LayerFacts {
    LayerFacts {
        digest: layer.digest,
        size: layer.size,
        media_type: layer.media_type.clone(),
        diff_id: layer.diff_id,
        unpacked: record.bytes,
        entries: record.entries,
    }
}
