//! Finding images.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, fstat};
use serde::Serialize;

use super::{Facts, Named, Store, StoreError, lock};
use crate::image::oci::{Digest, Reference};

/// The fewest digits of a digest that stand for an image.
const MIN_PREFIX: usize = 6;

/// An image that can't be removed as long as this lives.
#[derive(Debug)]
pub struct Installed {
    /// `config.json` and `rootfs/` are in it.
    pub bundle: PathBuf,
    pub manifest: Digest,
    /// The name by which it was found or installed; a digest when it was found by that.
    pub name: String,
    /// The bundle's lock file, locked shared (flock), close-on-exec. The lock belongs to the open file description: copies of the
    /// descriptor, in whatever process, hold it.
    pub lock: OwnedFd,
}

/// One line of `creel image ls`.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    pub name: String,
    pub digest: Digest,
    /// RFC 3339.
    pub created: Option<String>,
    /// Bytes of the unpacked files.
    pub size: u64,
    pub layers: usize,
    /// Whether `creel run` takes it without `--image`.
    pub default: bool,
}

impl Store {
    /// The image of a name; `None` when there is no such name. Reads one small file, takes one lock that nobody holds for long.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub fn resolve(&self, name: &Reference) -> Result<Option<Installed>, StoreError> {
        let full = name.to_string();
        let found = |names: &[Named]| {
            let exact = names.iter().find(|n| n.name() == full);
            let digest = name.digest.and_then(|d| names.iter().find(|n| n.digest == d));
            Ok(exact.or(digest).map(|n| n.digest))
        };
        self.lock_found(&full, found)
    }

    /// The image that a person means: a name, or the beginning (at least six digits) of its digest.
    ///
    /// # Errors
    /// [`StoreError::Ambiguous`] for digits that several digests begin with; as [`Store::resolve`].
    pub fn lookup(&self, text: &str) -> Result<Option<Installed>, StoreError> {
        self.lock_found(text, |names| Ok(meant(names, text)?.map(|found| found.0)))
    }

    fn lock_found(
        &self,
        text: &str,
        find: impl Fn(&[Named]) -> Result<Option<Digest>, StoreError>,
    ) -> Result<Option<Installed>, StoreError> {
        // Twice: it may have been replaced by another of the same name, and removed, in between.
        for _ in 0..2 {
            let Some(digest) = find(&self.names()?)? else {
                return Ok(None);
            };
            if let Some(installed) = self.lock_bundle(&digest, Some(text.to_owned()))? {
                return Ok(Some(installed));
            }
        }
        Ok(None)
    }

    /// Takes hold of a bundle; `None` when it is not there, or is being removed.
    pub(super) fn lock_bundle(
        &self,
        manifest: &Digest,
        name: Option<String>,
    ) -> Result<Option<Installed>, StoreError> {
        let bundle = self.bundle(manifest);
        let path = bundle.join("lock");
        let fail = |e| StoreError::io("lock", &path, e);
        let lock = match lock::existing(&path) {
            Ok(lock) => lock,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(e)),
        };
        if !lock::attempt(&lock, FlockOperation::NonBlockingLockShared).map_err(fail)? {
            return Ok(None);
        }
        // The lock counts only if it is that of the bundle which has the name now.
        let held = fstat(&lock).map_err(|e| fail(e.into()))?;
        match fs::metadata(&path) {
            Ok(now) if now.ino() == held.st_ino && now.dev() == held.st_dev => {}
            _ => return Ok(None),
        }
        let name = name.unwrap_or_else(|| manifest.to_string());
        Ok(Some(Installed { bundle, manifest: *manifest, name, lock }))
    }

    /// All images by name.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let default = self.default_name()?;
        let mut listed = Vec::new();
        for named in self.names()? {
            let facts = self.facts(&named.digest)?;
            listed.push(Listed {
                name: named.name().to_owned(),
                digest: named.digest,
                created: facts.created,
                size: facts.size,
                layers: facts.layers.len(),
                default: default.as_deref() == Some(named.name()),
            });
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// What is true of an installed image.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub fn facts(&self, manifest: &Digest) -> Result<Facts, StoreError> {
        Facts::read(&self.bundle(manifest))
    }

    /// Which images have each layer: diff-id → names.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn sharing(&self) -> Result<BTreeMap<Digest, Vec<String>>, StoreError> {
        let mut sharing: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        for named in self.names()? {
            for layer in self.facts(&named.digest)?.layers {
                let names = sharing.entry(layer.diff_id).or_default();
                if !names.iter().any(|n| n == named.name()) {
                    names.push(named.name().to_owned());
                }
            }
        }
        Ok(sharing)
    }

    /// The digest and the names that `text` stands for.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Ambiguous`].
    pub fn meaning(&self, text: &str) -> Result<(Digest, Vec<String>), StoreError> {
        let names = self.names()?;
        meant(&names, text)?.ok_or_else(|| not_found(&names, text))
    }

    /// The error for a name that is none.
    pub fn no_such(&self, text: &str) -> StoreError {
        not_found(&self.names().unwrap_or_default(), text)
    }

    /// The name of the image that `creel run` takes without `--image`, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn default_name(&self) -> Result<Option<String>, StoreError> {
        let path = self.path.join("default");
        match fs::read_to_string(&path) {
            Ok(name) => Ok(Some(name.trim_end().to_owned()).filter(|n| !n.is_empty())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("read", &path, e)),
        }
    }

    /// Makes `name`, an installed image, the default; `None`: no image is, `creel run` takes the host's `/usr`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Io`].
    pub fn set_default(&self, name: Option<&str>) -> Result<Option<String>, StoreError> {
        let path = self.path.join("default");
        let Some(text) = name else {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &path, e)),
                _ => Ok(None),
            };
        };
        let _lock = self.lock_shared()?;
        let (_, mut names) = self.meaning(text)?;
        let name = names.swap_remove(0);
        self.replace("default", format!("{name}\n").as_bytes())?;
        Ok(Some(name))
    }

    /// The first image that is installed becomes the default.
    pub(super) fn set_first_default(&self, name: &str) -> Result<(), StoreError> {
        if self.path.join("default").exists() {
            return Ok(());
        }
        self.replace("default", format!("{name}\n").as_bytes())
    }
}

fn not_found(names: &[Named], text: &str) -> StoreError {
    let mut installed: Vec<String> = names.iter().map(|n| n.name().to_owned()).collect();
    installed.sort();
    StoreError::NotFound { name: text.chars().take(100).collect(), installed }
}

/// The image that `text` means, with the names that go with it: one name, or all those of a digest.
fn meant(names: &[Named], text: &str) -> Result<Option<(Digest, Vec<String>)>, StoreError> {
    let reference: Option<Reference> = text.parse().ok();
    if let Some(full) = reference.as_ref().map(ToString::to_string)
        && let Some(named) = names.iter().find(|n| n.name() == full)
    {
        return Ok(Some((named.digest, vec![full])));
    }
    let pinned = reference.and_then(|r| r.digest).map(|d| d.hex());
    let prefix = match &pinned {
        Some(hex) => hex.as_str(),
        None => text.strip_prefix("sha256:").unwrap_or(text),
    };
    let is_hex = prefix.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if prefix.len() < MIN_PREFIX || !is_hex {
        return Ok(None);
    }
    let mut found: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    for named in names.iter().filter(|n| n.digest.hex().starts_with(prefix)) {
        found.entry(named.digest).or_default().push(named.name().to_owned());
    }
    if found.len() > 1 {
        let found = found.keys().map(Digest::short).collect();
        return Err(StoreError::Ambiguous { prefix: prefix.to_owned(), found });
    }
    Ok(found.pop_first())
}
