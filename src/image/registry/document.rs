//! Manifests and indexes: what is taken as one, and what of them a pull needs.

use oci_spec::image::Descriptor;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::printable;
use super::limits::{MAX_BLOB, MAX_CONFIG, MAX_LAYERS};
use crate::image::oci::Digest;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Configurations of images; anything else (a chart, a signature, a policy) is no file system.
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// Entries of an index.
const MAX_ENTRIES: usize = 1000;

/// What a registry has under a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Image(ImageDocument),
    /// Manifests for several platforms, not yet checked.
    Index(Vec<Descriptor>),
}

/// An image manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDocument {
    /// As it came: its digest is over these.
    pub bytes: Vec<u8>,
    pub digest: Digest,
    pub config: Blob,
    /// From the bottom up.
    pub layers: Vec<Blob>,
}

/// A blob as a manifest names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blob {
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

impl Blob {
    /// Of a descriptor's digest and size.
    ///
    /// # Errors
    /// Why it is not taken, for a message.
    pub fn of(digest: &str, size: u64, max: u64) -> Result<Blob, String> {
        let digest = digest.parse::<Digest>().map_err(|e| e.to_string())?;
        if size > max {
            return Err(format!("{digest} is {size} bytes, more than the {max} that are taken"));
        }
        Ok(Blob { digest, size })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    schema_version: Option<u64>,
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    config: Option<IgnoredAny>,
    fs_layers: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Entry,
    layers: Vec<Entry>,
}

/// A descriptor; its digest is checked by us, who can say what is wrong with it. URLs in it are not even read: nothing is fetched from
/// where an image says, only from the registry that the caller named (CVE-2020-15157).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

/// Reads a document. `content_type` is the one of the answer, which often is a general one.
///
/// # Errors
/// Why it is none, for a message.
pub fn parse(bytes: Vec<u8>, digest: Digest, content_type: Option<&str>) -> Result<Document, String> {
    let json = |e: serde_json::Error| format!("it is no manifest: {}", printable(&e.to_string()));
    let kind: Kind = serde_json::from_slice(&bytes).map_err(json)?;
    // CVE-2021-41190: one and the same document read as a manifest by one program and as an index by another.
    if kind.manifests.is_some() && (kind.layers.is_some() || kind.config.is_some()) {
        return Err("it is both a manifest and an index (CVE-2021-41190)".into());
    }
    let outer = content_type.map(|t| t.split(';').next().unwrap_or(t).trim());
    let known = |t: &&str| [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST].contains(t);
    if let (Some(outer), Some(inner)) = (outer.filter(known), kind.media_type.as_deref())
        && outer != inner
    {
        return Err(format!("it came as {outer} and says it is {:?} (CVE-2021-41190)", printable(inner)));
    }
    if kind.fs_layers.is_some() || kind.schema_version == Some(1) {
        return Err("it is of the old schema 1: push the image again with a current tool".into());
    }
    if kind.schema_version.is_some_and(|v| v != 2) {
        return Err("its schemaVersion is not 2".into());
    }
    match kind.media_type.as_deref().or(outer.filter(known)) {
        Some(OCI_INDEX | DOCKER_LIST) => index(&bytes).map_err(json).and_then(bounded),
        Some(OCI_MANIFEST | DOCKER_MANIFEST) => image(bytes, digest),
        Some(other) => Err(format!("its type {:?} is none of an image", printable(other))),
        None if kind.manifests.is_some() => index(&bytes).map_err(json).and_then(bounded),
        None => image(bytes, digest),
    }
}

fn index(bytes: &[u8]) -> Result<Vec<Descriptor>, serde_json::Error> {
    Ok(serde_json::from_slice::<Index>(bytes)?.manifests)
}

fn bounded(entries: Vec<Descriptor>) -> Result<Document, String> {
    match entries.len() {
        0..=MAX_ENTRIES => Ok(Document::Index(entries)),
        n => Err(format!("its index has {n} entries, more than {MAX_ENTRIES}")),
    }
}

fn image(bytes: Vec<u8>, digest: Digest) -> Result<Document, String> {
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|e| format!("it is no image manifest: {}", printable(&e.to_string())))?;
    let config_type = manifest.config.media_type;
    if !CONFIGS.contains(&config_type.as_str()) {
        return Err(format!(
            "it is no image to run: its configuration is of type {:?}",
            printable(&config_type)
        ));
    }
    if manifest.layers.len() > MAX_LAYERS {
        return Err(format!("it has {} layers, more than {MAX_LAYERS}", manifest.layers.len()));
    }
    let config = Blob::of(&manifest.config.digest, manifest.config.size, MAX_CONFIG)?;
    let layers = manifest
        .layers
        .iter()
        .map(|l| Blob::of(&l.digest, l.size, MAX_BLOB))
        .collect::<Result<Vec<_>, _>>()?;
    let mut sizes = std::collections::HashMap::new();
    for blob in layers.iter().chain([&config]) {
        if *sizes.entry(blob.digest).or_insert(blob.size) != blob.size {
            return Err(format!("it gives {} two sizes", blob.digest));
        }
    }
    Ok(Document::Image(ImageDocument { bytes, digest, config, layers }))
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
