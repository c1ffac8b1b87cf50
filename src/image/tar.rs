//! Reading a tar stream entry by entry, in order, with bounded memory: archives that hold images. Nothing is written here.
//!
//! The reader is that of layers, so that the same strict rules hold for what is around them.

use std::io::{self, BufReader, Read};

use super::unpack::archive::{self, Archive};

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Hardlink,
    /// A device, a FIFO, a sparse file: nothing that an image archive has.
    Other,
}

/// One entry, its long names and PAX records applied.
#[derive(Debug)]
pub struct Entry {
    /// As it stands in the archive.
    pub path: Vec<u8>,
    pub kind: Kind,
    /// The target of a link; empty for others.
    pub link: Vec<u8>,
    /// Bytes of content.
    pub size: u64,
}

/// A tar stream.
pub struct TarReader<R> {
    archive: Archive<BufReader<R>>,
}

/// What is read at once.
const BUFFER: usize = 256 << 10;
/// Global PAX headers that an archive may have.
const GLOBALS: u64 = 1024;

impl<R: Read> TarReader<R> {
    pub fn new(reader: R) -> TarReader<R> {
        TarReader { archive: Archive::new(BufReader::with_capacity(BUFFER, reader), GLOBALS) }
    }

    /// The next entry; what was not read of the one before is passed over. `None` at the end, with the stream read to *its* end, so that what a
    /// compressed stream has there (a checksum) was looked at too.
    ///
    /// # Errors
    /// The reader's, `UnexpectedEof` when the stream stops within an entry, `InvalidData` for what is no tar, or one that is refused.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        let next = self.archive.next();
        let entry = next.map_err(|fault| fault.at(self.archive.label()).into_io())?;
        Ok(entry.map(|entry| Entry {
            kind: match entry.kind {
                _ if entry.sparse.is_some() => Kind::Other,
                archive::Kind::File => Kind::File,
                archive::Kind::Directory => Kind::Dir,
                archive::Kind::Symlink => Kind::Symlink,
                archive::Kind::HardLink => Kind::Hardlink,
                _ => Kind::Other,
            },
            size: entry.stored,
            path: entry.name,
            link: entry.link,
        }))
    }

    /// Whether the end was marked as one; an archive that was cut off between two entries has no mark.
    pub fn has_end_mark(&self) -> bool {
        self.archive.has_end_mark()
    }

    /// The content of the current entry.
    ///
    /// # Errors
    /// Of reading: `UnexpectedEof` where the stream ends early.
    pub fn content(&mut self) -> impl Read + '_ {
        Content(&mut self.archive)
    }
}

struct Content<'a, R>(&'a mut Archive<BufReader<R>>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let archive = &mut *self.0;
        let n = match archive.content() {
            Ok(bytes) => {
                let n = bytes.len().min(buf.len());
                buf[..n].copy_from_slice(&bytes[..n]);
                n
            }
            Err(fault) => return Err(fault.at(archive.label()).into_io()),
        };
        archive.used(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use tar_core::{EntryBuilder, EntryType};

    use super::*;

    fn entry(path: &str, content: &[u8]) -> Vec<u8> {
        let mut builder = EntryBuilder::new_ustar();
        builder.path(path).entry_type(EntryType::Regular);
        builder.mode(0o644).unwrap().size(content.len() as u64).unwrap();
        let mut bytes = builder.finish_bytes();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    #[test]
    fn entries_come_one_by_one_and_the_unread_is_passed_over() {
        let long = format!("目录/{}", "长".repeat(300));
        let mut bytes = [entry("a", b"12345"), entry(&long, &[7; 1000]), entry("b", b"")].concat();
        bytes.extend_from_slice(&[0; 1024]);
        for end in [bytes.len(), bytes.len() - 512, bytes.len() - 1024] {
            let mut tar = TarReader::new(&bytes[..end]);
            assert_eq!(tar.next().unwrap().unwrap().path, b"a");
            let e = tar.next().unwrap().unwrap();
            assert_eq!((e.path.as_slice(), e.size), (long.as_bytes(), 1000));
            let mut content = Vec::new();
            tar.content().read_to_end(&mut content).unwrap();
            assert_eq!(content, [7; 1000]);
            assert_eq!(tar.next().unwrap().unwrap().path, b"b");
            assert!(tar.next().unwrap().is_none(), "{end}");
        }
        let mut cut = TarReader::new(&bytes[..700]);
        cut.next().unwrap();
        assert_eq!(cut.next().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(TarReader::new(&[b'x'; 600][..]).next().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
