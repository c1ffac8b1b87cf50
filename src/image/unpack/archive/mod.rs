//! Reads a tar stream, strictly.
//!
//! The dialects of V7, POSIX (ustar and PAX) and GNU are understood as far as GNU tar, bsdtar and Python's `tarfile` agree
//! on what an archive holds. Where they don't, it is refused. A crate was tried first: tar-core 0.1.0 skips what is no PAX
//! record, wraps large and negative numbers in base 256, goes on behind a lone block of zeros and loses its place after
//! a sparse file with a PAX size. Each of these makes it see entries that others don't.

mod entry;
mod header;
mod pax;
mod sparse;

use std::ffi::OsStr;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;

use super::error::{Fault, Rule};
use crate::text::quoted;
pub(in crate::image) use entry::{Entry, Kind};
use entry::{id, kind, size, time};
use header::{BLOCK, Block, Dialect, Header};
use pax::Extended;
use sparse::Sparse;

/// The most bytes of PAX header and long names for one entry, together.
const MAX_METADATA: u64 = 1 << 20;

/// Headers that belong to the entry that follows.
#[derive(Default)]
struct Pending {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Extended>,
    bytes: u64,
}

/// A tar stream.
pub(in crate::image) struct Archive<R> {
    input: R,
    /// Bytes of the stream that were used.
    offset: u64,
    /// Bytes of the current entry's content that were not, and of the filling behind it.
    content: u64,
    filling: u64,
    /// Headers for all entries that may still come: they are none, and a stream could be nothing else.
    globals: u64,
    end_mark: bool,
    /// What errors are about.
    at: At,
}

enum At {
    /// Behind this entry; none at the beginning.
    Behind(Option<Vec<u8>>),
    /// The raw name of a header that starts at that byte.
    Header(Vec<u8>, u64),
    Entry(Vec<u8>),
}

impl<R: BufRead> Archive<R> {
    /// At most `globals` global PAX headers are taken.
    pub fn new(input: R, globals: u64) -> Archive<R> {
        Archive { input, offset: 0, content: 0, filling: 0, globals, end_mark: false, at: At::Behind(None) }
    }

    /// Whether a block of zeros was seen.
    pub fn has_end_mark(&self) -> bool {
        self.end_mark
    }

    /// What an error that happens now is about: `entry 'name'`, or a place in the archive.
    pub fn label(&self) -> String {
        match &self.at {
            At::Behind(None) => format!("byte {} of the archive", self.offset),
            At::Behind(Some(name)) => {
                let name = quoted(OsStr::from_bytes(name));
                format!("byte {} of the archive, behind entry {name}", self.offset)
            }
            At::Header(name, offset) if name.is_empty() => format!("the header at byte {offset}"),
            At::Header(name, offset) => {
                format!("the header {} at byte {offset}", quoted(OsStr::from_bytes(name)))
            }
            At::Entry(name) => format!("entry {}", quoted(OsStr::from_bytes(name))),
        }
    }

    /// Errors are about this entry from now on.
    pub fn about(&mut self, path: &[u8]) {
        self.at = At::Entry(path.to_vec());
    }

    /// The next entry. What was not read of the last one is skipped. At the end the stream is read on to *its* end.
    pub fn next(&mut self) -> Result<Option<Entry>, Fault> {
        self.skip(self.content + self.filling)?;
        (self.content, self.filling) = (0, 0);
        let mut pending = Pending::default();
        let mut last = match std::mem::replace(&mut self.at, At::Behind(None)) {
            At::Entry(name) => Some(name),
            _ => None,
        };
        loop {
            self.at = At::Behind(last.take());
            let start = self.offset;
            let block = self.block()?;
            self.end_mark = block.is_some_and(|block| block.iter().all(|&b| b == 0));
            let Some(block) = block.filter(|_| !self.end_mark) else {
                if pending.bytes > 0 {
                    return malformed("the archive ends behind a header that belongs to an entry");
                }
                return self.finish().map(|()| None);
            };
            self.at = At::Header(Header::raw_name(&block).to_vec(), start);
            let header = Header::new(&block)?;
            match header.kind() {
                b'L' | b'K' | b'x' | b'g' if header.dialect == Dialect::V7 => {
                    return malformed("it is an extension, which a header without magic can't be");
                }
                b'L' => {
                    let name = self.metadata(&header, &mut pending)?;
                    set(&mut pending.long_name, long(name)?, "two GNU long names")?;
                }
                b'K' => {
                    let link = self.metadata(&header, &mut pending)?;
                    set(&mut pending.long_link, long(link)?, "two GNU long link names")?;
                }
                b'x' => {
                    let data = self.metadata(&header, &mut pending)?;
                    set(&mut pending.pax, Extended::parse(&data)?, "two PAX headers")?;
                }
                b'g' if pending.bytes > 0 => {
                    return malformed("a global PAX header stands between an entry and its own header");
                }
                b'g' if self.globals == 0 => {
                    return Fault::refused(
                        Rule::Limit,
                        "there are more global PAX headers than entries may be",
                    );
                }
                b'g' => {
                    self.globals -= 1;
                    let data = self.metadata(&header, &mut Pending::default())?;
                    pax::check_global(&data)?;
                }
                _ => return self.entry(&header, pending).map(Some),
            }
        }
    }

    /// The next bytes of the entry's content; none at its end.
    pub fn content(&mut self) -> Result<&[u8], Fault> {
        if self.content == 0 {
            return Ok(&[]);
        }
        let bytes = self.input.fill_buf()?;
        if bytes.is_empty() {
            return Err(Fault::Truncated);
        }
        let n = usize::try_from(self.content).map_or(bytes.len(), |content| bytes.len().min(content));
        Ok(&bytes[..n])
    }

    /// `n` bytes of what [`content`](Archive::content) gave are done with.
    pub fn used(&mut self, n: usize) {
        self.content -= n as u64;
        self.offset += n as u64;
        self.input.consume(n);
    }

    /// Puts together what is known of an entry.
    fn entry(&mut self, header: &Header<'_>, pending: Pending) -> Result<Entry, Fault> {
        let pax = pending.pax.unwrap_or_default();
        let sparse_name = pax.sparse_name.is_some();
        // The header's own name, when another takes its place, is any old text.
        let name = match (pending.long_name, pax.path) {
            (Some(_), Some(_)) => return malformed("it has a GNU long name and a PAX path"),
            (Some(_), None) if sparse_name => {
                return malformed("it has a GNU long name and a PAX sparse name");
            }
            (long, path) => match pax.sparse_name.or(path).or(long) {
                Some(name) => name,
                None => header.name()?,
            },
        };
        self.at = At::Entry(name.clone());
        header.check_prefix()?;
        let link = match (pending.long_link, pax.link) {
            (Some(_), Some(_)) => return malformed("it has a GNU long link name and a PAX linkpath"),
            (long, path) => match path.or(long) {
                Some(link) => link,
                None => header.link()?.to_vec(),
            },
        };
        let stored = size(header.size()?, pax.size)?;
        let kind = kind(header, &name)?;
        match kind {
            Kind::File | Kind::Other(_) => {}
            // POSIX lets a hard link have content; bsdtar guesses whether it is there.
            _ if stored > 0 => return malformed("it has a size, and is of a kind that has no content"),
            _ => {}
        }
        if matches!(kind, Kind::HardLink | Kind::Symlink) && link.is_empty() {
            return Fault::refused(Rule::Link, "it is a link to nothing");
        }
        self.content = stored;
        self.filling = stored.next_multiple_of(BLOCK as u64) - stored;
        let is_old = header.kind() == b'S';
        let sparse = match pax.sparse_size {
            Some(_) if is_old || kind != Kind::File => {
                return malformed("it is sparse by its PAX header, and not a regular file");
            }
            Some(size) => Some(self.sparse_lines(size)?),
            None if is_old => Some(self.sparse_places(header)?),
            None => None,
        };
        if let Some(sparse) = &sparse {
            sparse.check(self.content)?;
        }
        Ok(Entry {
            kind,
            link,
            mode: header.mode()?,
            uid: id(pax.uid.map_or_else(|| header.uid(), Ok)?, "uid")?,
            gid: id(pax.gid.map_or_else(|| header.gid(), Ok)?, "gid")?,
            mtime: time(pax.mtime.map_or_else(|| header.mtime().map(|t| (t, 0)), Ok)?)?,
            stored: self.content,
            sparse,
            name,
            attributes: pax.attributes,
        })
    }

    /// The map at the beginning of the content.
    fn sparse_lines(&mut self, size: u64) -> Result<Sparse, Fault> {
        let mut lines = sparse::Lines::new(size);
        loop {
            if self.content < BLOCK as u64 {
                return malformed("the map of the sparse file has no end");
            }
            let block = self.block()?.ok_or(Fault::Truncated)?;
            self.content -= BLOCK as u64;
            if let Some(sparse) = lines.push(&block)? {
                return Ok(sparse);
            }
        }
    }

    /// The map in the header and the blocks behind it.
    fn sparse_places(&mut self, header: &Header<'_>) -> Result<Sparse, Fault> {
        if header.dialect != Dialect::Gnu {
            return malformed("it is a GNU sparse file without a GNU header");
        }
        let (places, mut more, size) = header.gnu_sparse()?;
        let mut sparse = Sparse::new(size);
        sparse.push_places(places)?;
        let mut blocks = 0;
        while more {
            let block = self.block()?.ok_or(Fault::Truncated)?;
            more = sparse.push_block(&block)?;
            blocks += BLOCK as u64;
            if blocks > MAX_METADATA {
                return Fault::refused(Rule::Limit, "the map of the sparse file is larger than 1 MiB");
            }
        }
        Ok(sparse)
    }

    /// The content of an extension header.
    fn metadata(&mut self, header: &Header<'_>, pending: &mut Pending) -> Result<Vec<u8>, Fault> {
        let size = header.size()?;
        pending.bytes = pending.bytes.saturating_add(size.max(1));
        if pending.bytes > MAX_METADATA {
            return Fault::refused(
                Rule::Limit,
                "the long names and PAX headers of an entry are larger than 1 MiB",
            );
        }
        let mut data = Vec::with_capacity(size as usize);
        self.content = size;
        self.filling = size.next_multiple_of(BLOCK as u64) - size;
        while self.content > 0 {
            let bytes = self.content()?;
            data.extend_from_slice(bytes);
            let n = bytes.len();
            self.used(n);
        }
        self.skip(self.filling)?;
        self.filling = 0;
        Ok(data)
    }

    /// The next block; None at the end of the stream.
    fn block(&mut self) -> Result<Option<Block>, Fault> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            let bytes = self.input.fill_buf()?;
            let n = bytes.len().min(BLOCK - filled);
            block[filled..filled + n].copy_from_slice(&bytes[..n]);
            match n {
                0 if filled == 0 => return Ok(None),
                0 => return Err(Fault::Truncated),
                n => self.input.consume(n),
            }
            filled += n;
            self.offset += n as u64;
        }
        Ok(Some(block))
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), Fault> {
        while bytes > 0 {
            let have = self.input.fill_buf()?.len();
            if have == 0 {
                return Err(Fault::Truncated);
            }
            let n = usize::try_from(bytes).map_or(have, |bytes| have.min(bytes));
            self.input.consume(n);
            self.offset += n as u64;
            bytes -= n as u64;
        }
        Ok(())
    }

    /// Reads to the end of the stream, behind a first block of zeros or where the stream has ended without.
    ///
    /// Everything from that block on must be zero. GNU tar, bsdtar and tarfile stop there, all three, so what follows is seen by
    /// none of them and is still part of the digest; `tar --ignore-zeros` and readers that are lenient with a lone block
    /// do see it. No tool that makes layers writes anything but zeros.
    fn finish(&mut self) -> Result<(), Fault> {
        if self.offset == 0 {
            return malformed("the stream is empty: this is no tar archive");
        }
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.iter().any(|&b| b != 0) {
                return malformed("something other than zeros follows the end of the archive");
            }
            match bytes.len() {
                0 => return Ok(()),
                n => {
                    self.input.consume(n);
                    self.offset += n as u64;
                }
            }
        }
    }
}

fn set<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), Fault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => malformed(format!("the entry has {what}")),
    }
}

/// The text of a GNU long name: NULs end it.
fn long(mut text: Vec<u8>) -> Result<Vec<u8>, Fault> {
    while text.last() == Some(&0) {
        text.pop();
    }
    if text.is_empty() || text.contains(&0) {
        return malformed("the GNU long name is empty or has a NUL in it");
    }
    Ok(text)
}

fn malformed<T>(reason: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Fault> {
    Fault::refused(Rule::Malformed, reason)
}
