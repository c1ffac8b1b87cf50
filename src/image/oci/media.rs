//! Media types: those of the OCI image specification and their elder twins of Docker (manifest version 2, schema 2).

/// A manifest of one image.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// A list of manifests.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// An image's configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// A layer, not compressed; `+gzip` and `+zstd` are compressed ones.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// What a document is by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Manifest,
    Index,
    Other,
}

/// What a document of this media type is.
pub fn kind(media_type: &str) -> Kind {
    match media_type {
        MANIFEST | DOCKER_MANIFEST => Kind::Manifest,
        INDEX | DOCKER_INDEX => Kind::Index,
        _ => Kind::Other,
    }
}

/// What a layer is by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerMedia {
    Tar,
    Gzip,
    Zstd,
}

impl LayerMedia {
    /// The media type of the OCI specification.
    pub fn oci(self) -> &'static str {
        match self {
            LayerMedia::Tar => LAYER,
            LayerMedia::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            LayerMedia::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// What a layer of this media type is.
///
/// # Errors
/// Why creel does not take such a layer, to be read after "is refused: ".
pub fn layer_media(media_type: &str) -> Result<LayerMedia, &'static str> {
    if media_type.contains("encrypted") {
        return Err("it is encrypted, and creel has no keys: decrypt the image first");
    }
    if media_type.contains("nondistributable") || media_type.contains(".foreign.") {
        return Err("it is a foreign layer, its content lies somewhere else and is not part of the image");
    }
    match media_type.strip_prefix(LAYER).or_else(|| media_type.strip_prefix(DOCKER_LAYER)) {
        Some("") => Ok(LayerMedia::Tar),
        Some("+gzip" | ".gzip") => Ok(LayerMedia::Gzip),
        Some("+zstd" | ".zstd") => Ok(LayerMedia::Zstd),
        _ => Err("creel takes tar layers, plain or compressed with gzip or zstd"),
    }
}

/// The OCI name of a media type of Docker; any other stays as it is.
pub fn oci_type(media_type: &str) -> &str {
    match media_type {
        DOCKER_MANIFEST => MANIFEST,
        DOCKER_INDEX => INDEX,
        DOCKER_CONFIG => CONFIG,
        other => match layer_media(other) {
            Ok(media) => media.oci(),
            Err(_) => other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers() {
        for (text, want) in [
            (LAYER, LayerMedia::Tar),
            ("application/vnd.oci.image.layer.v1.tar+gzip", LayerMedia::Gzip),
            ("application/vnd.oci.image.layer.v1.tar+zstd", LayerMedia::Zstd),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", LayerMedia::Gzip),
            ("application/vnd.docker.image.rootfs.diff.tar", LayerMedia::Tar),
        ] {
            assert_eq!(layer_media(text), Ok(want), "{text}");
            assert_eq!(oci_type(text), want.oci(), "{text}");
        }
        for (bad, word) in [
            ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", "foreign"),
            ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "foreign"),
            ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", "encrypted"),
            ("application/vnd.oci.image.layer.v1.tar+xz", "gzip or zstd"),
            ("", "gzip or zstd"),
            ("application/vnd.oci.image.layer.v1.tarx", "gzip or zstd"),
        ] {
            assert!(layer_media(bad).unwrap_err().contains(word), "{bad}");
        }
    }
}
