//! `image.json` of a bundle: what is true of an image whatever its names are.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::image::oci::Digest;

/// The facts of an installed image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub manifest: Digest,
    pub config: Digest,
    /// RFC 3339, as the image says.
    pub created: Option<String>,
    /// Bytes of the files of all layers, unpacked.
    pub size: u64,
    /// Bottom first.
    pub layers: Vec<LayerFacts>,
    /// What was not taken over from the image, and what was changed, for people.
    pub notes: Vec<String>,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerFacts {
    /// Of the blob, as it came.
    pub digest: Digest,
    /// Bytes of the blob.
    pub size: u64,
    pub media_type: String,
    /// Of the tar stream in it.
    pub diff_id: Digest,
    /// Bytes of the unpacked files.
    pub unpacked: u64,
    pub entries: u64,
}

impl Facts {
    /// The facts of the bundle in `dir`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file is no such thing, [`StoreError::Io`].
    pub(super) fn read(dir: &Path) -> Result<Facts, StoreError> {
        let path = dir.join("image.json");
        let bytes = fs::read(&path).map_err(|e| StoreError::io("read", &path, e))?;
        serde_json::from_slice(&bytes)
            .map_err(|e| StoreError::Damaged { path, reason: e.to_string().escape_debug().to_string() })
    }
}
