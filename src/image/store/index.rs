//! `index.json`: the names of the store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::unfinished::Unfinished;
use super::{Store, StoreError, lock, random_name};
use crate::image::oci::{self, Digest};

/// The annotation that holds a name.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// A name and the manifest it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    pub media_type: String,
    pub digest: Digest,
    /// Bytes of the manifest.
    pub size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Named {
    pub(super) fn new(name: &str, digest: Digest, size: u64, media_type: &str) -> Named {
        let annotations = [(REF_NAME.to_owned(), name.to_owned())].into();
        Named { media_type: media_type.to_owned(), digest, size, annotations }
    }

    /// The full name, `minimal:latest`.
    pub fn name(&self) -> &str {
        self.annotations.get(REF_NAME).map_or("", String::as_str)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexFile {
    schema_version: u32,
    media_type: String,
    manifests: Vec<Named>,
}

impl Store {
    /// All names, in their order in the index (that of their installation). One small file is read.
    ///
    /// # Errors
    /// [`StoreError::DamagedIndex`] for an `index.json` that is none; [`StoreError::Io`].
    pub fn names(&self) -> Result<Vec<Named>, StoreError> {
        let path = self.path.join("index.json");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(StoreError::io("read", &path, e)),
        };
        let index: IndexFile = serde_json::from_slice(&bytes).map_err(|e| StoreError::DamagedIndex {
            path,
            reason: e.to_string().escape_debug().to_string(),
        })?;
        Ok(index.manifests)
    }

    /// Changes the names: read, changed and replaced with no other change in between.
    pub(super) fn change_names(&self, change: impl FnOnce(&mut Vec<Named>)) -> Result<(), StoreError> {
        let lock_path = self.path.join("index.lock");
        let lock = lock::file(&lock_path).map_err(|e| StoreError::io("open", &lock_path, e))?;
        lock::wait(&lock, FlockOperation::LockExclusive)
            .map_err(|e| StoreError::io("lock", &lock_path, e))?;
        let mut manifests = self.names()?;
        change(&mut manifests);
        let media_type = oci::INDEX.to_owned();
        let index = IndexFile { schema_version: 2, media_type, manifests };
        let text = serde_json::to_vec(&index)
            .map_err(|e| StoreError::io("write", &self.path.join("index.json"), e.into()))?;
        self.replace("index.json", &text)
    }

    /// What makes the directory an OCI image layout.
    pub(super) fn write_missing(&self) -> Result<(), StoreError> {
        if self.path.join("oci-layout").exists() && self.path.join("index.json").exists() {
            return Ok(());
        }
        let _lock = self.lock_shared()?;
        if !self.path.join("oci-layout").exists() {
            self.replace("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        if !self.path.join("index.json").exists() {
            self.change_names(|_| {})?;
        }
        Ok(())
    }

    /// Nobody clears `tmp/` as long as this lives. Waits while somebody does.
    pub(super) fn lock_shared(&self) -> Result<File, StoreError> {
        let path = self.path.join("lock");
        let lock = lock::file(&path).map_err(|e| StoreError::io("open", &path, e))?;
        lock::wait(&lock, FlockOperation::LockShared).map_err(|e| StoreError::io("lock", &path, e))?;
        Ok(lock)
    }

    /// Writes a file of the store's top directory in one step: its old content or its new one is there, at any moment. The caller
    /// holds the store's lock.
    pub(super) fn replace(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let tmp = self.path.join("tmp").join(format!("{}-{name}", random_name()?));
        let (_unfinished, written) = Unfinished::made(&tmp, || write_new(&tmp, content));
        let result =
            written.and_then(|()| fs::rename(&tmp, &path)).and_then(|()| File::open(&self.path)?.sync_all());
        result.map_err(|e| {
            let _ = fs::remove_file(&tmp);
            StoreError::io("write", &path, e)
        })
    }
}

/// Writes a new file, on the disk when this returns.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
