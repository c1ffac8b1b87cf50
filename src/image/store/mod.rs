//! The images of this host: an OCI image layout with, beside the blobs, each layer unpacked once and each image as a bundle.
//!
//! ```text
//! images/                           mode 0700, its owner's alone
//!   oci-layout, index.json          one descriptor for each name, annotation org.opencontainers.image.ref.name = the full name
//!   blobs/sha256/<hex>              manifests, configurations, layers as they came
//!   layers/<diff-id hex>/           fs/ (the layer unpacked), layer.json (whiteouts and the rest), from-<hex> (blobs it was unpacked from)
//!   bundles/<manifest hex>/         config.json, rootfs/ (hard links into layers/), image.json, lock
//!   cache/                          build steps
//!   partial/sha256/<hex>            downloads that can be resumed
//!   tmp/<random>/                   work in progress of one process
//!   default                         the name that `creel run` takes without --image
//!   lock, index.lock                see below
//! ```
//!
//! # What a crash leaves
//! All is written below `tmp/` and renamed when it is complete and on the disk (one `syncfs` for a commit), first blobs, layers and
//! bundles, last `index.json`. So what has its name is whole, at any moment; what never got a name is in `tmp/`, which the next [`Work`]
//! that is alone, or `gc`, clears.
//!
//! # Locks
//! Who adds something holds `lock` shared; who removes something holds it exclusively, or does nothing. `index.lock` is held for the
//! moment in which `index.json` is read, changed and replaced. A run holds the `lock` of its bundle shared, and nothing else: removing a
//! bundle takes it exclusively. All are flock(2): the kernel lets go of them however their holder ends.

mod commit;
mod error;
mod facts;
mod freed;
mod index;
mod installed;
mod lock;
mod merge;
mod observer;
pub mod partial;
mod plan;
mod remove;
pub mod unfinished;
mod work;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use commit::check_name;
pub use error::StoreError;
pub use facts::{Facts, LayerFacts};
pub use index::Named;
pub use installed::{Installed, Listed};
pub use observer::{Observer, Quiet};
pub use plan::{ImageConfig, MAX_DOCUMENT, Settings};
pub use remove::Collected;
pub use work::{Blob, Expected, Work};

use super::oci::Digest;

/// The annotation of a manifest that holds the text of `installed-packages.json` (a JSON object, package name → version). It becomes the
/// file of that name in the bundle, so that it survives export and import.
pub const PACKAGES_ANNOTATION: &str = "io.creel.installed-packages";

/// The images of one state directory.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
}

/// The directories of a store.
const DIRS: [&str; 6] = ["blobs/sha256", "layers", "bundles", "cache", "partial/sha256", "tmp"];

impl Store {
    /// Opens the store below the state directory `state`, making what is missing.
    ///
    /// # Errors
    /// [`StoreError::NotOurs`] when the state directory or the store belongs to another user or others may write to it;
    /// [`StoreError::Io`].
    pub fn open(state: &Path) -> Result<Store, StoreError> {
        let path = state.join("images");
        for dir in DIRS {
            let dir = path.join(dir);
            if !dir.is_dir() {
                make_dirs(&dir)?;
            }
        }
        let store = Store::checked(state, path)?;
        store.write_missing()?;
        Ok(store)
    }

    /// Opens the store below `state` if there is one. Makes nothing.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn existing(state: &Path) -> Result<Option<Store>, StoreError> {
        let path = state.join("images");
        match fs::symlink_metadata(&path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(StoreError::io("look at", &path, e)),
            Ok(_) => Store::checked(state, path).map(Some),
        }
    }

    /// Who may write here may make creel run anything: the directory has to be the caller's alone (CVE-2022-31214 began with a state
    /// directory that another user could write to).
    fn checked(state: &Path, path: PathBuf) -> Result<Store, StoreError> {
        for dir in [state, &path] {
            // The state directory may be reached through a link of the caller's; images/ is ours, and none.
            let meta = if dir == state { fs::metadata(dir) } else { fs::symlink_metadata(dir) };
            let meta = meta.map_err(|e| StoreError::io("look at", dir, e))?;
            let ours = meta.uid() == rustix::process::geteuid().as_raw();
            if !ours || meta.mode() & 0o022 != 0 || !meta.is_dir() {
                return Err(StoreError::NotOurs {
                    path: dir.to_owned(),
                    owner: meta.uid(),
                    mode: meta.mode(),
                });
            }
        }
        Ok(Store { path })
    }

    /// Where it is: `<state>/images`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where an image's bundle is, or would be.
    pub fn bundle(&self, manifest: &Digest) -> PathBuf {
        self.path.join("bundles").join(manifest.hex())
    }

    /// Where a layer's directory is, or would be.
    pub fn layer(&self, diff_id: &Digest) -> PathBuf {
        self.path.join("layers").join(diff_id.hex())
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path.join("blobs/sha256").join(digest.hex())
    }

    /// Opens a blob; `None` when there is none of that digest.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn blob(&self, digest: &Digest) -> Result<Option<fs::File>, StoreError> {
        let path = self.blob_path(digest);
        match fs::File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("open", &path, e)),
        }
    }
}

/// Makes a directory and its parents, mode 0700.
fn make_dirs(dir: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| StoreError::io("make", dir, e))
}

/// Sixteen hexadecimal digits that nobody else has.
fn random_name() -> Result<String, StoreError> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| StoreError::io("get random bytes for", Path::new("tmp"), e.into()))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
