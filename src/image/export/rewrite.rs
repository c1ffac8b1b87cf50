//! The manifest that goes out.

use std::io::Read;

use flate2::read::GzEncoder;
use serde_json::Value;

use super::checked::Checked;
use super::{Compress, ExportError};
use crate::image::oci::{Digest, LayerMedia, layer_media, oci_type};
use crate::image::store::{Blob, Expected, StoreError, Work};
use crate::image::unpack;

/// What gzip(1) takes without being asked.
const GZIP_LEVEL: u32 = 6;
/// And zstd(1).
const ZSTD_LEVEL: i32 = 3;

/// The manifest for the layout: the image's own where it will do, else a new one among the work's blobs.
pub(super) fn manifest(
    work: &Work<'_>,
    digest: &Digest,
    image: &str,
    compress: Compress,
) -> Result<Blob, ExportError> {
    let text = work.document("manifest", digest)?;
    if Digest::of(&text) != *digest {
        return Err(ExportError::Damaged { image: image.to_owned(), digest: *digest });
    }
    let own = parse(digest, &text)?;
    let mut new = own.clone();
    let damaged = || ExportError::Manifest { digest: *digest };
    to_oci(&mut new);
    to_oci(&mut new["config"]);
    let layers = new["layers"].as_array_mut().ok_or_else(damaged)?;
    let count = layers.len();
    for (at, layer) in layers.iter_mut().enumerate() {
        to_oci(layer);
        let media = layer["mediaType"].as_str().and_then(|m| layer_media(m).ok()).ok_or_else(damaged)?;
        let wanted = match compress {
            Compress::AsIs => media,
            Compress::None => LayerMedia::Tar,
            Compress::Gzip => LayerMedia::Gzip,
            Compress::Zstd => LayerMedia::Zstd,
        };
        if wanted != media {
            work.tell(&format!("compressing layer {}/{count}", at + 1));
            let blob = recompress(work, image, &blob_of(digest, layer)?, wanted)?;
            layer["mediaType"] = wanted.oci().into();
            layer["digest"] = blob.digest.to_string().into();
            layer["size"] = blob.size.into();
        }
    }
    if new == own {
        return Ok(Blob { digest: *digest, size: text.len() as u64 });
    }
    let expected = Expected { what: "manifest".to_owned(), ..Expected::default() };
    Ok(work.put_blob(expected, &mut new.to_string().as_bytes())?)
}

pub(super) fn parse(digest: &Digest, text: &[u8]) -> Result<Value, ExportError> {
    serde_json::from_slice(text).map_err(|_| ExportError::Manifest { digest: *digest })
}

/// Digest and size of a descriptor.
pub(super) fn blob_of(manifest: &Digest, descriptor: &Value) -> Result<Blob, ExportError> {
    let digest = descriptor["digest"].as_str().and_then(|d| d.parse().ok());
    match (digest, descriptor["size"].as_u64()) {
        (Some(digest), Some(size)) => Ok(Blob { digest, size }),
        _ => Err(ExportError::Manifest { digest: *manifest }),
    }
}

/// Docker's media types have no place in an OCI layout.
fn to_oci(part: &mut Value) {
    if let Some(media) = part.get_mut("mediaType")
        && let Some(text) = media.as_str()
    {
        *media = oci_type(text).to_owned().into();
    }
}

fn recompress(work: &Work<'_>, image: &str, layer: &Blob, wanted: LayerMedia) -> Result<Blob, ExportError> {
    Checked::open(work, image, layer)?.through()?;
    let what = format!("layer {}", layer.digest);
    let failed = |source| StoreError::Source { what: what.clone(), source };
    let file = work.blob(&layer.digest)?;
    let file = file.ok_or(StoreError::BlobMissing { what: "layer", digest: layer.digest })?;
    // How far it may unpack was looked at when it was installed.
    let stream = unpack::decompress(file).map_err(failed)?.with_ratio(u64::MAX);
    let mut stream: Box<dyn Read> = match wanted {
        LayerMedia::Tar => Box::new(stream),
        // No name and no time in it: the same layer gives the same bytes.
        LayerMedia::Gzip => Box::new(GzEncoder::new(stream, flate2::Compression::new(GZIP_LEVEL))),
        LayerMedia::Zstd => Box::new(zstd::stream::read::Encoder::new(stream, ZSTD_LEVEL).map_err(failed)?),
    };
    let expected = Expected { what: what.clone(), ..Expected::default() };
    Ok(work.put_blob(expected, &mut stream)?)
}
