//! What can be wrong with the source of an import.

use std::io;
use std::path::PathBuf;

use crate::image::oci::{Digest, MAX_INDEX_DEPTH, NoPlatform, ReferenceError};
use crate::image::store::{MAX_DOCUMENT, StoreError};
use crate::image::unpack::StreamError;
use crate::regular::NotUsable;
use crate::text::{io_reason, quoted};

/// Why an import does not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    #[error(transparent)]
    Store(#[from] StoreError),

    #[error("{} {reason}", quoted(.path))]
    Unusable { path: PathBuf, reason: NotUsable },

    #[error(
        "{} is a directory without an OCI layout (no index.json): give a layout, a tar of one, a `docker save` archive, or the tar of a root file system",
        quoted(.path)
    )]
    NoLayout { path: PathBuf },

    #[error("the archive can't be read: {}", io_reason(.source))]
    Read { source: io::Error },

    #[error("the archive is no tar: {reason}")]
    NoTar { reason: String },

    #[error("the archive is refused: {reason}")]
    Limit { reason: StreamError },

    #[error("the archive is compressed with {with}: decompress it first, or use gzip or zstd")]
    Compression { with: &'static str },

    #[error("the archive is empty")]
    Empty,

    #[error("entry {} of the archive is refused: {reason}", quoted(.entry))]
    Entry { entry: String, reason: &'static str },

    #[error("{what} of the image layout is refused: {reason}")]
    Blob { what: String, reason: &'static str },

    #[error("{what} is not valid: {reason}")]
    Document { what: String, reason: String },

    #[error("{what} is larger than {MAX_DOCUMENT} bytes")]
    TooLarge { what: String },

    #[error("indexes lie more than {MAX_INDEX_DEPTH} deep in each other")]
    Depth,

    #[error("the index {digest} contains itself")]
    Loop { digest: Digest },

    #[error("an index has more than {max} entries")]
    Entries { max: usize },

    #[error(transparent)]
    Platform(#[from] NoPlatform),

    #[error(
        "{digest} is of type {}, which is no image and no list of images: creel takes OCI and Docker (version 2, schema 2) images",
        quoted(.media_type)
    )]
    MediaType { digest: Digest, media_type: String },

    #[error("the archive lacks {}, which its manifest.json names", quoted(.name))]
    Missing { name: String },

    #[error("no image in there: neither index.json nor manifest.json names one")]
    NoImage,

    #[error("no image {} in there: there are {}", quoted(.select), .found.join(", "))]
    NotSelected { select: String, found: Vec<String> },

    #[error("there are several images ({}), and --name names one: choose it with --select", .found.join(", "))]
    Several { found: Vec<String> },

    #[error("the image has no name{}: give one with --name", .because)]
    NoName { because: String },

    #[error(transparent)]
    BadName(#[from] ReferenceError),
}

impl ImportError {
    /// The code, `image.reason`.
    pub fn code(&self) -> &'static str {
        match self {
            ImportError::Store(e) => e.code(),
            ImportError::Unusable { .. } | ImportError::Read { .. } => "image.source",
            ImportError::NoLayout { .. } | ImportError::NoTar { .. } | ImportError::Empty => {
                "image.no_archive"
            }
            ImportError::Limit { .. } => "image.layer_limit",
            ImportError::Compression { .. } => "image.compression",
            ImportError::Entry { .. } | ImportError::Blob { .. } => "image.entry_refused",
            ImportError::Document { .. } | ImportError::TooLarge { .. } => "image.document",
            ImportError::Depth | ImportError::Loop { .. } | ImportError::Entries { .. } => {
                "image.index_refused"
            }
            ImportError::Platform(_) => "image.platform",
            ImportError::MediaType { .. } => "image.media_type",
            ImportError::Missing { .. } => "image.blob_missing",
            ImportError::NoImage | ImportError::NotSelected { .. } => "image.not_found",
            ImportError::Several { .. } => "image.ambiguous",
            ImportError::NoName { .. } | ImportError::BadName(_) => "image.name",
        }
    }

    /// True when the host is at fault (exit code 125), false when the caller or the image is (126).
    pub fn is_host_fault(&self) -> bool {
        matches!(self, ImportError::Store(e) if e.is_host_fault())
    }

    /// Reading an archive failed: its form, or the reading itself.
    pub(super) fn reading(source: io::Error) -> ImportError {
        if let Some(reason @ (StreamError::Ratio { .. } | StreamError::Bytes { .. })) =
            StreamError::of(&source)
        {
            return ImportError::Limit { reason };
        }
        match source.kind() {
            io::ErrorKind::InvalidData => {
                ImportError::NoTar { reason: source.to_string().escape_debug().to_string() }
            }
            _ => ImportError::Read { source },
        }
    }
}
