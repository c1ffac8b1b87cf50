//! The documents of an image, read and checked: what a commit works from.

use std::fs::File;
use std::io::Read;

use oci_spec::image::ImageManifest;
use serde::Deserialize;

use super::{StoreError, Work};
use crate::image::oci::{self, Digest, LayerMedia, Target};

/// The largest manifest, index or configuration that is read, bytes. Registries take no larger manifests either.
pub const MAX_DOCUMENT: u64 = 4 << 20;
/// The most layers of an image. Docker's overlay driver stops at 128.
const MAX_LAYERS: usize = 512;

/// An image's configuration, as far as creel acts on it. Its own type, not that of `oci-spec`: writers put `null` where that one
/// does not expect it, and what is not acted on must not refuse an image.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// RFC 3339.
    pub created: Option<String>,
    pub architecture: Option<String>,
    pub os: Option<String>,
    pub variant: Option<String>,
    /// What a program of the image runs with.
    pub config: Option<Settings>,
    rootfs: Option<RootFs>,
}

/// The `config` part of an image's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Settings {
    pub user: Option<String>,
    pub env: Option<Vec<String>>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub working_dir: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    diff_ids: Vec<Digest>,
}

/// One layer of an image that shall be installed.
#[derive(Debug, Clone)]
pub(super) struct PlannedLayer {
    pub digest: Digest,
    pub size: u64,
    pub media_type: String,
    pub media: LayerMedia,
    pub diff_id: Digest,
}

/// An image that shall be installed, its documents checked and all its blobs there.
#[derive(Debug)]
pub(super) struct Plan {
    pub manifest: Digest,
    pub manifest_size: u64,
    pub media_type: String,
    pub config: Digest,
    pub settings: ImageConfig,
    pub layers: Vec<PlannedLayer>,
    /// The text of `installed-packages.json`.
    pub packages: Option<String>,
}

impl Work<'_> {
    pub(super) fn plan(&self, manifest: &Digest) -> Result<Plan, StoreError> {
        let bytes = self.document("manifest", manifest)?;
        let refused = |what, digest: &Digest, reason: String| {
            let reason = reason.escape_debug().take(400).collect();
            StoreError::Document { what, digest: *digest, reason }
        };
        let of_manifest = |reason: String| refused("manifest", manifest, reason);
        let parsed: ImageManifest = read_manifest(&bytes).map_err(of_manifest)?;
        let config_type = parsed.config().media_type().to_string();
        if oci::oci_type(&config_type) != oci::CONFIG {
            return Err(of_manifest(format!(
                "its configuration is of type {config_type:?}: that is no image"
            )));
        }
        let config = digest_of(parsed.config().digest()).map_err(of_manifest)?;
        let config_bytes = self.document("configuration", &config)?;
        if config_bytes.len() as u64 != parsed.config().size() {
            return Err(StoreError::WrongSize {
                what: format!("configuration {config}"),
                expected: parsed.config().size(),
                found: config_bytes.len() as u64,
            });
        }
        let settings: ImageConfig = serde_json::from_slice(&config_bytes)
            .map_err(|e| refused("configuration", &config, e.to_string()))?;
        check_platform(&settings)?;
        let rootfs = settings.rootfs.as_ref();
        let diff_ids = rootfs.map_or(&[][..], |r| &r.diff_ids);
        if rootfs.is_some_and(|r| !r.kind.is_empty() && r.kind != "layers") {
            return Err(refused("configuration", &config, "its rootfs is not of type \"layers\"".to_owned()));
        }
        if diff_ids.len() != parsed.layers().len() {
            let (ids, layers) = (diff_ids.len(), parsed.layers().len());
            let reason = format!("it names {ids} diff_ids, and the manifest has {layers} layers");
            return Err(refused("configuration", &config, reason));
        }
        if parsed.layers().len() > MAX_LAYERS {
            return Err(of_manifest(format!("it has more than {MAX_LAYERS} layers")));
        }
        let mut layers = Vec::with_capacity(diff_ids.len());
        for (at, (layer, diff_id)) in parsed.layers().iter().zip(diff_ids).enumerate() {
            let digest = digest_of(layer.digest()).map_err(of_manifest)?;
            let media_type = layer.media_type().to_string();
            let media = oci::layer_media(&media_type).map_err(|reason| StoreError::LayerRefused {
                number: at + 1,
                count: diff_ids.len(),
                digest,
                media_type: media_type.chars().take(100).collect(),
                reason,
            })?;
            let file = self.blob(&digest)?.ok_or(StoreError::BlobMissing { what: "layer", digest })?;
            let size = size_of(&file)?;
            if size != layer.size() {
                let what = format!("layer {digest}");
                return Err(StoreError::WrongSize { what, expected: layer.size(), found: size });
            }
            layers.push(PlannedLayer { digest, size, media_type, media, diff_id: *diff_id });
        }
        let packages = parsed.annotations().as_ref().and_then(|a| a.get(super::PACKAGES_ANNOTATION)).cloned();
        let is_object =
            |text: &String| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok();
        Ok(Plan {
            manifest: *manifest,
            manifest_size: bytes.len() as u64,
            media_type: parsed.media_type().as_ref().map_or(oci::MANIFEST.to_owned(), ToString::to_string),
            config,
            settings,
            layers,
            packages: packages.filter(is_object),
        })
    }

    /// A JSON document among the blobs, at most [`MAX_DOCUMENT`].
    ///
    /// # Errors
    /// [`StoreError::BlobMissing`], [`StoreError::Document`] when it is too large, [`StoreError::Io`].
    pub fn document(&self, what: &'static str, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        let file = self.blob(digest)?.ok_or(StoreError::BlobMissing { what, digest: *digest })?;
        let mut bytes = Vec::new();
        file.take(MAX_DOCUMENT + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| StoreError::io("read", &self.store.blob_path(digest), e))?;
        if bytes.len() as u64 > MAX_DOCUMENT {
            let reason = format!("it is larger than {MAX_DOCUMENT} bytes");
            return Err(StoreError::Document { what, digest: *digest, reason });
        }
        Ok(bytes)
    }
}

/// Reads a manifest. The text must be one and nothing else.
///
/// CVE-2021-41190: a document with both `layers` and `manifests` is an image to one program and an index to another.
pub(super) fn read_manifest(bytes: &[u8]) -> Result<ImageManifest, String> {
    #[derive(Deserialize)]
    struct Shape {
        manifests: Option<serde::de::IgnoredAny>,
    }
    let shape: Shape = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if shape.manifests.is_some() {
        return Err("it is a manifest and an index at once".to_owned());
    }
    let manifest: ImageManifest = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    match manifest.media_type() {
        Some(media) if oci::kind(media.as_ref()) != oci::Kind::Manifest => {
            Err(format!("its media type is {:?}, not that of an image", media.to_string()))
        }
        _ => Ok(manifest),
    }
}

/// A digest of `oci-spec` as one of ours, which can be a file name.
pub(super) fn digest_of(digest: &oci_spec::image::Digest) -> Result<Digest, String> {
    digest.to_string().parse().map_err(|e: oci::DigestError| e.to_string())
}

fn size_of(file: &File) -> Result<u64, StoreError> {
    Ok(file.metadata().map_err(|e| StoreError::io("look at", std::path::Path::new("blobs"), e))?.len())
}

fn check_platform(config: &ImageConfig) -> Result<(), StoreError> {
    let here = Target::here();
    let os = config.os.as_deref().unwrap_or_default();
    let architecture = config.architecture.as_deref().unwrap_or_default();
    let fits = |found: &str, wanted: &str| found.is_empty() || found == wanted;
    if fits(os, here.os) && fits(architecture, here.architecture) {
        return Ok(());
    }
    let found: String = format!("{os}/{architecture}").escape_debug().take(60).collect();
    Err(StoreError::Platform { found, wanted: here.to_string() })
}
