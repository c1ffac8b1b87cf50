//! What can go wrong with the store.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::image::oci::Digest;
use crate::image::unpack::UnpackError;
use crate::state_dir::not_ours;
use crate::text::io_reason;

/// Why the store does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("cannot {action} {path:?}: {}{}", io_reason(.source), hint(.source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "images that creel runs have to be in a directory of this user's alone: {}, or name another state directory with CREEL_STATE_DIR",
        not_ours(.path, *.owner, *.mode)
    )]
    NotOurs { path: PathBuf, owner: u32, mode: u32 },

    #[error("another creel is working on the images: try again when it is done")]
    Busy,

    #[error("image {name} is in use by a run: try again when the run is over")]
    InUse { name: String },

    #[error("no image {name:?}: {}", installed_list(.installed))]
    NotFound { name: String, installed: Vec<String> },

    #[error("{prefix:?} begins the digests of several images ({}): give more of its digits", .found.join(", "))]
    Ambiguous { prefix: String, found: Vec<String> },

    #[error(
        "no image can be called {name:?}: `host` means this host's /usr; choose another name with --name"
    )]
    NameReserved { name: String },

    #[error("cannot read {what}: {}", io_reason(.source))]
    Source { what: String, source: io::Error },

    #[error(
        "{what} has the digest {found}, and {expected} was promised: it was damaged or changed, get it again"
    )]
    WrongDigest { what: String, expected: Digest, found: Digest },

    #[error(
        "{what} has {found} bytes, and {expected} were promised: it was cut off, damaged or changed, get it again"
    )]
    WrongSize { what: String, expected: u64, found: u64 },

    #[error("the image lacks {what} {digest}: get the image again")]
    BlobMissing { what: &'static str, digest: Digest },

    #[error("the {what} {digest} is refused: {reason}")]
    Document { what: &'static str, digest: Digest, reason: String },

    #[error("the image is for {found}, and this machine is {wanted}: get the image for {wanted}")]
    Platform { found: String, wanted: String },

    #[error("layer {number} of {count} ({digest}, {media_type:?}) is refused: {reason}")]
    LayerRefused { number: usize, count: usize, digest: Digest, media_type: String, reason: &'static str },

    #[error("layer {number} of {count} ({digest}) cannot be unpacked: {source}")]
    Unpack { number: usize, count: usize, digest: Digest, source: UnpackError },

    #[error(
        "layer {number} of {count} ({digest}) unpacks to {found}, and the configuration names {expected} (diff_ids): the image is damaged, get it again"
    )]
    WrongDiffId { number: usize, count: usize, digest: Digest, expected: Digest, found: Digest },

    #[error("cannot put the layers together at {path:?}: {source}")]
    Merge { path: String, source: Errno },

    #[error("the layers have directories more than {max} deep: build the image with shorter paths")]
    TooDeep { max: usize },

    #[error("{path:?} is damaged ({reason}): remove the image with `creel image rm` and install it again")]
    Damaged { path: PathBuf, reason: String },

    #[error(
        "{path:?}, the list of the images, is damaged ({reason}): restore it, or move it away and install the images again (what is unpacked stays until `creel image gc`)"
    )]
    DamagedIndex { path: PathBuf, reason: String },
}

impl StoreError {
    /// The code of the run report, `image.reason`.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Io { source, .. } if is_full(source) => "image.store_full",
            StoreError::Io { .. } => "image.store_io",
            StoreError::NotOurs { .. } => "image.store_not_ours",
            StoreError::Busy => "image.busy",
            StoreError::InUse { .. } => "image.in_use",
            StoreError::NotFound { .. } => "image.not_found",
            StoreError::Ambiguous { .. } => "image.ambiguous",
            StoreError::NameReserved { .. } => "image.name_reserved",
            StoreError::Source { .. } => "image.source",
            StoreError::WrongDigest { .. } => "image.wrong_digest",
            StoreError::WrongSize { .. } => "image.wrong_size",
            StoreError::BlobMissing { .. } => "image.blob_missing",
            StoreError::Document { .. } => "image.document",
            StoreError::Platform { .. } => "image.platform",
            StoreError::LayerRefused { .. } => "image.layer_refused",
            StoreError::Unpack { source, .. } => source.code(),
            StoreError::WrongDiffId { .. } => "image.wrong_diff_id",
            StoreError::Merge { source: Errno::NOSPC | Errno::DQUOT, .. } => "image.store_full",
            StoreError::Merge { .. } => "image.merge",
            StoreError::TooDeep { .. } => "image.too_deep",
            StoreError::Damaged { .. } | StoreError::DamagedIndex { .. } => "image.store_damaged",
        }
    }

    /// True when the host is at fault (exit code 125), false when the caller or the image is (126).
    pub fn is_host_fault(&self) -> bool {
        match self {
            StoreError::Io { .. }
            | StoreError::NotOurs { .. }
            | StoreError::Damaged { .. }
            | StoreError::DamagedIndex { .. } => true,
            StoreError::Unpack { source, .. } => source.is_host_fault(),
            StoreError::Merge { source, .. } => *source != Errno::NAMETOOLONG,
            _ => false,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { action, path: path.to_owned(), source }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_full(error) => "; free some space there, `creel image gc` may help",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount that file system writable, or name another state directory with CREEL_STATE_DIR"
        }
        io::ErrorKind::PermissionDenied => {
            "; let this user read and write there, or name another state directory with CREEL_STATE_DIR"
        }
        _ => "",
    }
}

fn installed_list(names: &[String]) -> String {
    const NAMED: usize = 10;
    match names {
        [] => "none is installed, `creel image import` installs one".to_owned(),
        few if few.len() <= NAMED => format!("installed are {}", few.join(", ")),
        many => format!("installed are {} and more, see `creel image ls`", many[..NAMED].join(", ")),
    }
}
