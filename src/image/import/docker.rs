//! What `docker save` of Docker before version 25 writes: `manifest.json`, a configuration and a tar for each layer.

use std::io::Read;

use serde::Deserialize;
use serde_json::json;

use super::archive::{Archive, digest_in, normal};
use super::{Found, ImportError, Options, names};
use crate::image::oci::{self, LayerMedia};
use crate::image::store::{Blob, Expected, MAX_DOCUMENT, StoreError, Work};

/// One image of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Listed {
    pub config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

impl Listed {
    pub fn tags(&self) -> &[String] {
        self.repo_tags.as_deref().unwrap_or_default()
    }
}

/// The images that `manifest.json` lists.
pub(super) fn listed(manifest: &[u8]) -> Result<Vec<Listed>, ImportError> {
    serde_json::from_slice(manifest).map_err(|e| ImportError::Document {
        what: "manifest.json".to_owned(),
        reason: e.to_string().escape_debug().take(400).collect(),
    })
}

/// The images of the archive, with a manifest made for each.
pub(super) fn images(
    work: &Work<'_>,
    archive: &Archive,
    options: &Options,
    stem: Option<&str>,
) -> Result<Vec<Found>, ImportError> {
    let listed = listed(archive.manifest.as_deref().ok_or(ImportError::NoImage)?)?;
    let configs = listed.iter().map(|image| file(archive, &image.config)).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<(Listed, Blob)> = listed.into_iter().zip(configs).collect();
    let wanted = names::wanted(all, options, |(image, config)| (image.tags().to_vec(), config.digest))?;
    let mut found = Vec::new();
    for (image, config) in wanted {
        if let Some(expected) = digest_in(&image.config)
            && expected != config.digest
        {
            let what = format!("configuration {:?}", image.config);
            return Err(StoreError::WrongDigest { what, expected, found: config.digest }.into());
        }
        if config.size > MAX_DOCUMENT {
            return Err(ImportError::TooLarge { what: format!("configuration {:?}", image.config) });
        }
        let mut layers = Vec::new();
        for name in image.layers.iter().flatten() {
            let blob = file(archive, name)?;
            layers.push(descriptor(media(work, &blob)?.oci(), &blob));
        }
        let manifest = json!({
            "schemaVersion": 2, "mediaType": oci::MANIFEST, "config": descriptor(oci::CONFIG, &config), "layers": layers,
        });
        let text = manifest.to_string();
        let expected = Expected { what: "manifest".to_owned(), ..Expected::default() };
        let manifest = work.put_blob(expected, &mut text.as_bytes())?.digest;
        let names = names::choose(options, image.tags(), None, stem)?;
        found.push(Found { manifest, names });
    }
    Ok(found)
}

/// The file that `manifest.json` names.
fn file(archive: &Archive, name: &str) -> Result<Blob, ImportError> {
    let outside = || ImportError::Entry {
        entry: name.chars().take(200).collect(),
        reason: "manifest.json names it, and the name leads out of the archive",
    };
    let inside = normal("", name).ok_or_else(outside)?;
    archive.file(&inside).ok_or_else(|| ImportError::Missing { name: name.chars().take(200).collect() })
}

pub(super) fn descriptor(media_type: &str, blob: &Blob) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": blob.digest, "size": blob.size})
}

/// How a layer is compressed, by its first bytes: nothing in the archive says it.
pub(super) fn media(work: &Work<'_>, blob: &Blob) -> Result<LayerMedia, ImportError> {
    let mut head = Vec::new();
    if let Some(file) = work.blob(&blob.digest)? {
        file.take(4).read_to_end(&mut head).map_err(|source| ImportError::Read { source })?;
    }
    Ok(match head.as_slice() {
        [0x1f, 0x8b, ..] => LayerMedia::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => LayerMedia::Zstd,
        _ => LayerMedia::Tar,
    })
}
