//! Taking names away, and freeing what no name reaches.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::FlockOperation;
use serde::Deserialize;

use super::freed::Freed;
use super::plan::{digest_of, read_manifest};
use super::{Facts, Store, StoreError, lock, random_name};
use crate::image::oci::Digest;
use crate::sandbox::tree::remove_tree;

/// What was freed.
#[derive(Debug, Default)]
pub struct Collected {
    /// Names that were taken away.
    pub names: Vec<String>,
    /// Whether the image that `creel run` takes without `--image` is among them: that is `host` now.
    pub default_gone: bool,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Bundles that no name reaches and that stayed: a run uses them.
    pub in_use: Vec<Digest>,
}

/// What the names reach.
#[derive(Default)]
struct Reachable {
    bundles: HashSet<OsString>,
    blobs: HashSet<OsString>,
    layers: HashSet<OsString>,
}

#[derive(Deserialize)]
struct CacheEntry {
    layer: Option<Digest>,
    diff_id: Option<Digest>,
}

impl Store {
    /// Takes away the names that `texts` stand for (a digest stands for all its names), and frees what no name reaches any more.
    /// All of them or none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Ambiguous`]; [`StoreError::InUse`] when the last name of an image would go that a run
    /// uses; [`StoreError::Busy`]; [`StoreError::Io`].
    pub fn remove(&self, texts: &[&str]) -> Result<Collected, StoreError> {
        let _lock = self.lock_alone()?;
        let mut going: Vec<String> = Vec::new();
        let mut images: Vec<Digest> = Vec::new();
        for text in texts {
            let (digest, names) = self.meaning(text)?;
            going.extend(names);
            // Several names of one image are one lock: a second one of ours would look like a run's.
            if !images.contains(&digest) {
                images.push(digest);
            }
        }
        going.sort();
        going.dedup();
        let before = self.names()?;
        let mut held = Vec::new();
        for image in images {
            let mut names = before.iter().filter(|n| n.digest == image).map(|n| n.name());
            if names.clone().all(|n| going.iter().any(|g| g == n)) {
                let name = names.next().unwrap_or_default().to_owned();
                held.push(self.lock_for_removal(&image)?.ok_or(StoreError::InUse { name })?);
            }
        }
        self.change_names(|names| names.retain(|n| !going.iter().any(|g| g == n.name())))?;
        let default_gone = self.default_name()?.is_some_and(|d| going.contains(&d));
        if default_gone {
            self.set_default(None)?;
        }
        // Their locks are held until the bundles have no name any more.
        let mut collected = self.collect(&held)?;
        collected.names = going;
        collected.default_gone = default_gone;
        Ok(collected)
    }

    /// Frees what no name reaches: work of dead processes, partial downloads, bundles, layers, blobs and entries of the build cache.
    ///
    /// # Errors
    /// [`StoreError::Busy`]; [`StoreError::Damaged`] when it can't be told what an image needs: then nothing of the kind is removed;
    /// [`StoreError::Io`].
    pub fn gc(&self) -> Result<Collected, StoreError> {
        let _lock = self.lock_alone()?;
        let mut freed = Freed::default();
        for dir in ["tmp", "partial/sha256"] {
            self.remove_where(dir, &mut freed, |_| true)?;
        }
        let mut collected = self.collect(&[])?;
        collected.bytes += freed.bytes;
        Ok(collected)
    }

    /// Nobody else works on the store as long as the descriptor lives.
    fn lock_alone(&self) -> Result<File, StoreError> {
        let path = self.path.join("lock");
        let fail = |e| StoreError::io("lock", &path, e);
        let file = lock::file(&path).map_err(fail)?;
        match lock::attempt(&file, FlockOperation::NonBlockingLockExclusive).map_err(fail)? {
            true => Ok(file),
            false => Err(StoreError::Busy),
        }
    }

    /// Takes a bundle's lock exclusively; `None` when a run has it. A bundle that isn't there needs no lock.
    fn lock_for_removal(&self, manifest: &Digest) -> Result<Option<Option<OwnedFd>>, StoreError> {
        let path = self.bundle(manifest).join("lock");
        let Ok(lock) = lock::existing(&path) else {
            return Ok(Some(None));
        };
        let free = lock::attempt(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| StoreError::io("lock", &path, e))?;
        Ok(free.then_some(Some(lock)))
    }

    /// Removes what no name reaches; `held` are locks of bundles that the caller took already.
    fn collect(&self, held: &[Option<OwnedFd>]) -> Result<Collected, StoreError> {
        let reachable = self.reachable()?;
        let mut collected = Collected::default();
        let mut freed = Freed::default();
        for name in self.entries("bundles")? {
            if reachable.bundles.contains(&name) {
                continue;
            }
            // One that the caller locked would look as if somebody else had it: flock belongs to the open file.
            let lock = self.lock_entry(&name, held)?;
            if lock.is_none() {
                collected.in_use.extend(format!("sha256:{}", name.to_string_lossy()).parse::<Digest>());
                continue;
            }
            self.remove_entry("bundles", &name, &mut freed)?;
        }
        self.remove_where("layers", &mut freed, |name| !reachable.layers.contains(name))?;
        self.remove_where("blobs/sha256", &mut freed, |name| !reachable.blobs.contains(name))?;
        let cache = self.path.join("cache");
        self.remove_where("cache", &mut freed, |name| !reachable.keeps(&cache.join(name)))?;
        collected.bytes = freed.bytes;
        Ok(collected)
    }

    fn lock_entry(
        &self,
        name: &OsStr,
        held: &[Option<OwnedFd>],
    ) -> Result<Option<Option<OwnedFd>>, StoreError> {
        let path = self.path.join("bundles").join(name).join("lock");
        let same = |fd: &OwnedFd| {
            use std::os::unix::fs::MetadataExt;
            let (a, b) = (rustix::fs::fstat(fd), fs::metadata(&path));
            matches!((a, b), (Ok(a), Ok(b)) if a.st_ino == b.ino() && a.st_dev == b.dev())
        };
        if held.iter().flatten().any(same) {
            return Ok(Some(None));
        }
        let Ok(lock) = lock::existing(&path) else {
            return Ok(Some(None));
        };
        let free = lock::attempt(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| StoreError::io("lock", &path, e))?;
        Ok(free.then_some(Some(lock)))
    }

    fn reachable(&self) -> Result<Reachable, StoreError> {
        let mut reachable = Reachable::default();
        for named in self.names()? {
            let manifest = named.digest;
            if !reachable.bundles.insert(manifest.hex().into()) {
                continue;
            }
            reachable.blobs.insert(manifest.hex().into());
            let path = self.blob_path(&manifest);
            let damaged = |reason: String| StoreError::Damaged { path: path.clone(), reason };
            let bytes = fs::read(&path).map_err(|e| damaged(crate::text::io_reason(&e)))?;
            let parsed = read_manifest(&bytes).map_err(damaged)?;
            let blobs = parsed.layers().iter().chain([parsed.config()]);
            for blob in blobs {
                reachable.blobs.insert(digest_of(blob.digest()).map_err(damaged)?.hex().into());
            }
            let facts = Facts::read(&self.bundle(&manifest))?;
            reachable.layers.extend(facts.layers.iter().map(|l| OsString::from(l.diff_id.hex())));
        }
        Ok(reachable)
    }

    fn entries(&self, dir: &str) -> Result<Vec<OsString>, StoreError> {
        let path = self.path.join(dir);
        let fail = |e| StoreError::io("read", &path, e);
        fs::read_dir(&path).map_err(fail)?.map(|e| Ok(e.map_err(fail)?.file_name())).collect()
    }

    fn remove_where(
        &self,
        dir: &str,
        freed: &mut Freed,
        goes: impl Fn(&OsString) -> bool,
    ) -> Result<(), StoreError> {
        for name in self.entries(dir)? {
            if goes(&name) {
                self.remove_entry(dir, &name, freed)?;
            }
        }
        Ok(())
    }

    /// Takes the entry's name away in one step, so that a crash leaves nothing half removed under it, then removes it.
    fn remove_entry(&self, dir: &str, name: &OsStr, freed: &mut Freed) -> Result<(), StoreError> {
        let path = self.path.join(dir).join(name);
        let fail = |e| StoreError::io("remove", &path, e);
        let tmp = self.path.join("tmp");
        let parked = random_name()?;
        fs::rename(&path, tmp.join(&parked)).map_err(fail)?;
        let tmp = File::open(&tmp).map_err(fail)?;
        freed.add(tmp.as_fd(), OsStr::new(&parked));
        remove_tree(tmp.as_fd(), OsStr::new(&parked)).map_err(fail)
    }
}

impl Reachable {
    /// Whether an entry of the build cache stays: its layer is one that an image has.
    fn keeps(&self, path: &Path) -> bool {
        let entry: Option<CacheEntry> = fs::read(path).ok().and_then(|b| serde_json::from_slice(&b).ok());
        let Some(CacheEntry { layer, diff_id }) = entry else {
            return false;
        };
        layer.is_none_or(|d| self.blobs.contains(OsStr::new(&d.hex())))
            && diff_id.is_none_or(|d| self.layers.contains(OsStr::new(&d.hex())))
            && (layer.is_some() || diff_id.is_some())
    }
}
