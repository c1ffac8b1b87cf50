//! What can go wrong with an export.

use std::io;
use std::path::{Path, PathBuf};

use crate::image::oci::Digest;
use crate::image::store::StoreError;
use crate::text::{io_reason, quoted};

/// Why an image can't be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),

    #[error("cannot {action} {}: {}", quoted(.path), io_reason(.source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("cannot write to standard output: {}", io_reason(.source))]
    Stdout { source: io::Error },

    #[error("standard output is a terminal: send the tar to a file or a program")]
    Terminal,

    #[error(
        "{} is neither empty nor an OCI layout: name a new directory, or a file that ends in .tar",
        quoted(.path)
    )]
    NotEmpty { path: PathBuf },

    #[error("{} has an index.json that is none: {reason}", quoted(.path))]
    Index { path: PathBuf, reason: String },

    #[error("{} is no tag: at most 128 letters, digits, _, . and -, and none of the last two at the start", quoted(.tag))]
    Tag { tag: String },

    #[error(
        "image {image} is damaged: blob {digest} is not what its name says: remove the image with `creel image rm`, then install it again"
    )]
    Damaged { image: String, digest: Digest },

    #[error("{} is no ending for an export: {instead}", quoted(.path))]
    Ending { path: PathBuf, instead: &'static str },

    #[error("{} as a destination is written as a directory would be: standard output is -", quoted(.path))]
    StdoutPath { path: PathBuf },

    #[error("the directory {} for the export does not exist: make it first", quoted(.parent))]
    NoParent { parent: PathBuf },

    #[error(
        "manifest {digest} of the store is damaged: remove the image with `creel image rm` and install it again"
    )]
    Manifest { digest: Digest },
}

impl ExportError {
    /// The code, `image.reason`.
    pub fn code(&self) -> &'static str {
        match self {
            ExportError::Store(e) => e.code(),
            ExportError::Io { .. } | ExportError::Stdout { .. } => "image.export_io",
            ExportError::Terminal
            | ExportError::NotEmpty { .. }
            | ExportError::Index { .. }
            | ExportError::Ending { .. }
            | ExportError::StdoutPath { .. }
            | ExportError::NoParent { .. } => "image.export_refused",
            ExportError::Tag { .. } => "image.name",
            ExportError::Manifest { .. } | ExportError::Damaged { .. } => "image.store_damaged",
        }
    }

    /// True when the host is at fault (exit code 125), false when the caller is (126).
    pub fn is_host_fault(&self) -> bool {
        match self {
            ExportError::Store(e) => e.is_host_fault(),
            ExportError::Io { .. }
            | ExportError::Stdout { .. }
            | ExportError::Manifest { .. }
            | ExportError::Damaged { .. } => true,
            _ => false,
        }
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ExportError {
        let path = path.to_owned();
        move |source| ExportError::Io { action, path: path.clone(), source }
    }
}
