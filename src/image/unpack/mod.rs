//! Unpacks one layer of an image: a tar stream, compressed or not, into an empty directory.
//!
//! The stream is a stranger's. Every entry is created through the descriptor of its parent, which the kernel resolved beneath
//! the target without following a link ([`target`]); nothing that exists is ever opened for writing. What the three common
//! readers (GNU tar, bsdtar, Python's `tarfile`) understand in different ways is refused ([`archive`]): such an archive
//! shows one content to who checks it and another to who unpacks it (CVE-2025-62518, RUSTSEC-2026-0068).
//!
//! What comes out is what creel *runs*, not what it exports: all files belong to who unpacks, without set-user-id bits,
//! devices and extended attributes ([`modes`], [`extract`]). What was left out is counted in [`LayerRecord::dropped`].
//!
//! Three threads: the caller's reads and decompresses, one creates files, one hashes ([`pipe`]).

#![forbid(unsafe_code)]

pub(super) mod archive;
mod decompress;
mod error;
mod extract;
mod modes;
mod notes;
mod path;
mod pipe;
mod record;
mod target;

use std::io::Read;
use std::os::fd::BorrowedFd;

pub use decompress::{Compression, Decompressed, StreamError, decompress};
pub use error::{Rule, UnpackError};
pub use record::{LayerRecord, PathBytes};

use super::oci::Digest;
use archive::Archive;
use extract::Extract;
use target::Target;

/// What one layer may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the tar stream, and bytes of all files together as they appear (the holes of sparse files count).
    pub bytes: u64,
    /// Entries of the archive, those included that leave nothing behind.
    pub entries: u64,
    /// How many times larger the tar stream may be than the compressed bytes it came from, once it is over
    /// [`RATIO_FREE`](Limits::RATIO_FREE).
    pub ratio: u64,
    /// Bytes of memory for the paths that must be remembered to the end: directories, whiteouts. Each is its length and
    /// [`NAME_COST`](Limits::NAME_COST).
    pub names: u64,
}

impl Limits {
    /// So much may come out of any input.
    pub const RATIO_FREE: u64 = 64 << 20;
    /// What remembering a path costs beside its bytes.
    pub const NAME_COST: u64 = 96;
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 32 << 30, entries: 1_000_000, ratio: 300, names: 48 << 20 }
    }
}

/// A layer that was unpacked.
#[derive(Debug)]
pub struct Unpacked {
    /// SHA-256 of the whole uncompressed stream, to its very end: the layer's `diff_id`.
    pub diff_id: Digest,
    /// Length of the uncompressed stream.
    pub tar_bytes: u64,
    /// Whether the archive had an end mark (a block of zeros). All readers take one without, and so does this; but without a
    /// `diff_id` to compare with, nothing else tells that it was not cut between two entries.
    pub end_mark: bool,
    pub record: LayerRecord,
}

/// Unpacks `stream` into `into`, an empty directory. Its compression is found by its first bytes.
///
/// On an error the directory holds a part of the layer, and the caller removes it
/// ([`remove_tree`](crate::sandbox::tree::remove_tree)). Nothing is synced to the disk.
///
/// # Errors
/// [`UnpackError`]; what concerns an entry names it.
pub fn layer(stream: impl Read, into: BorrowedFd<'_>, limits: &Limits) -> Result<Unpacked, UnpackError> {
    let target = Target::open(into, limits.names)?;
    let fed = pipe::run(stream, limits, |chunks| {
        let mut archive = Archive::new(chunks, limits.entries);
        let extract = Extract::new(target, limits);
        match extract.all(&mut archive) {
            Ok(record) => Ok((record, archive.has_end_mark())),
            Err(fault) => Err(fault.at(archive.label())),
        }
    })?;
    let (record, end_mark) = fed.result;
    Ok(Unpacked { diff_id: fed.diff_id, tar_bytes: fed.bytes, end_mark, record })
}
