//! One entry, and the rules for what its headers say of it.

use super::super::error::{Fault, Rule};
use super::header::{BLOCK, Dialect, Header, OCTAL_MAX};
use super::malformed;
use super::sparse::Sparse;

/// The last second that is taken: 2242-03-16, the end of the time field. Later ones are a mistake, or a try at an overflow.
const MAX_TIME: u64 = OCTAL_MAX;

/// What kind of thing an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::image) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    /// A type that is not known here: its letter.
    Other(u8),
}

/// One entry, everything of its headers put together.
#[derive(Debug)]
pub(in crate::image) struct Entry {
    pub kind: Kind,
    /// As it is written; not checked.
    pub name: Vec<u8>,
    /// The target of a link, as it is written; at least one byte for a link.
    pub link: Vec<u8>,
    /// The lower twelve bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds and nanoseconds since 1970; at most [`MAX_TIME`].
    pub mtime: (u64, u32),
    /// Bytes of content in the stream.
    pub stored: u64,
    /// Where they belong, if the file has holes.
    pub sparse: Option<Sparse>,
    /// Names of the extended attributes.
    pub attributes: Vec<Vec<u8>>,
}

impl Entry {
    /// The size of the file, its holes included.
    pub fn size(&self) -> u64 {
        self.sparse.as_ref().map_or(self.stored, |s| s.size)
    }
}

/// How much content follows. The header's number and that of PAX must be the same, but for what has no place in the header: a
/// reader that knows only one of them would take the content for headers, or headers for content (RUSTSEC-2026-0068,
/// CVE-2025-62518). Writers then leave 0 there, or the largest number.
pub(super) fn size(header: u64, pax: Option<u64>) -> Result<u64, Fault> {
    let size = pax.unwrap_or(header);
    if size != header && (size <= OCTAL_MAX || !matches!(header, 0 | OCTAL_MAX)) {
        return malformed(format!("its header says {header} bytes, and its PAX header {size}"));
    }
    if size > i64::MAX as u64 - BLOCK as u64 {
        return malformed("its size is too large for any file");
    }
    Ok(size)
}

pub(super) fn kind(header: &Header<'_>, name: &[u8]) -> Result<Kind, Fault> {
    let kind = match header.kind() {
        // Before there was a type for directories their names ended in a slash.
        0 if name.ends_with(b"/") && header.dialect == Dialect::V7 => Kind::Directory,
        0 | b'0' | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        other => Kind::Other(other),
    };
    if name.ends_with(b"/") && kind != Kind::Directory {
        // GNU tar makes a directory of a file with such a name, others a file.
        return Fault::refused(Rule::Path, "its name ends in a slash, and it is no directory");
    }
    Ok(kind)
}

/// An id of Linux has 32 bits. One with more would be another id where it is cut.
pub(super) fn id(id: u64, what: &str) -> Result<u32, Fault> {
    u32::try_from(id).or_else(|_| Fault::refused(Rule::Attribute, format!("its {what} is over 32 bits")))
}

pub(super) fn time(time: (u64, u32)) -> Result<(u64, u32), Fault> {
    if time.0 > MAX_TIME {
        return Fault::refused(Rule::Attribute, "its mtime is after the year 2242");
    }
    Ok(time)
}
