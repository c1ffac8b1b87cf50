//! Steps that were carried out before: what went in, and the layer that came out.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::BuildError;
use crate::image::oci::{Digest, Hasher};
use crate::image::store::{Blob, Store};

/// Changes whenever the same inputs would give another layer.
const VERSION: &str = "creel build 2";

/// A layer that a step made.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct Layer {
    /// The blob, compressed.
    pub layer: Digest,
    /// The blob's bytes.
    pub size: u64,
    /// The tar stream.
    pub diff_id: Digest,
}

/// The key of a step: what it does, with which scripts of ours, on which layers.
pub fn key(step: &impl Serialize, script: &str, epoch: u64, below: &[Layer]) -> Digest {
    let mut hasher = Hasher::default();
    let diff_ids: Vec<Digest> = below.iter().map(|l| l.diff_id).collect();
    let parts = (VERSION, std::env::consts::ARCH, epoch, script, diff_ids, step);
    // Maps with keys that are no strings would fail here; there are none.
    hasher.update(&serde_json::to_vec(&parts).unwrap_or_default());
    hasher.finish()
}

/// The layer for `key`, when the store still has it.
pub fn get(store: &Store, key: &Digest) -> Option<Layer> {
    let text = fs::read(path(store, key)).ok()?;
    let layer: Layer = serde_json::from_slice(&text).ok()?;
    let blob = store.blob(&layer.layer).ok()??;
    (blob.metadata().ok()?.len() == layer.size).then_some(layer)
}

/// Remembers it.
pub fn put(store: &Store, key: &Digest, blob: Blob, diff_id: Digest) -> Result<Layer, BuildError> {
    let layer = Layer { layer: blob.digest, size: blob.size, diff_id };
    let path = path(store, key);
    let io = |source| BuildError::Io { what: "write", path: path.clone(), source };
    // A crash in the middle leaves a file that get() does not understand, or the old one.
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let mut file = fs::File::create(&part).map_err(io)?;
    file.write_all(&serde_json::to_vec(&layer).unwrap_or_default()).map_err(io)?;
    fs::rename(&part, &path).map_err(io)?;
    Ok(layer)
}

fn path(store: &Store, key: &Digest) -> PathBuf {
    store.path().join("cache").join(format!("{}.json", key.hex()))
}
