//! Opening what is imported, and finding out what it is.

use std::fs::File;
use std::io::{self, Chain, Cursor, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::ImportError;
use crate::image::store::Observer;
use crate::image::tar::{Kind, TarReader};
use crate::image::unpack;
use crate::regular;

/// An opened source.
pub(super) enum Input {
    /// The directory of an OCI layout.
    Layout(OwnedFd),
    /// A tar, maybe compressed.
    Stream(Watched),
}

/// What a tar is.
#[derive(PartialEq)]
pub(super) enum Form {
    /// An OCI layout or what `docker save` writes.
    Archive,
    /// A root file system.
    Rootfs,
}

/// A source that is read from its beginning.
pub(super) type Stream = Chain<Cursor<Vec<u8>>, Watched>;

/// So much of a tar is kept while it is found out what it is: its first entry with a name, and what a decompressor reads ahead.
const MOST_KEPT: usize = 16 << 20;

pub(super) fn open(path: &Path, observer: &Rc<dyn Observer>) -> Result<Input, ImportError> {
    let unusable = |reason| ImportError::Unusable { path: path.to_owned(), reason };
    if path.as_os_str() == "-" {
        let stdin = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)
            .map_err(|e| ImportError::Read { source: e.into() })?;
        return Ok(Input::Stream(Watched { file: stdin.into(), observer: observer.clone() }));
    }
    if std::fs::metadata(path).map_err(|e| unusable(e.into()))?.is_dir() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty()).map_err(|e| unusable(io::Error::from(e).into()))?;
        return match rustix::fs::statat(&dir, "index.json", rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(Input::Layout(dir)),
            Err(_) => Err(ImportError::NoLayout { path: path.to_owned() }),
        };
    }
    let (file, metadata) = regular::open(path).map_err(unusable)?;
    observer.total(metadata.len());
    Ok(Input::Stream(Watched { file, observer: observer.clone() }))
}

/// The name of the file or directory without its endings: `python` of `/tmp/python.tar.gz`.
pub(super) fn stem(path: &Path) -> Option<String> {
    if path.as_os_str() == "-" {
        return None;
    }
    // `.` and `..` have a name too.
    let full = path.canonicalize().ok()?;
    let mut name = full.file_name()?.to_str()?;
    for ending in [".gz", ".zst", ".tgz", ".tzst", ".tar", ".oci"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    Some(name.to_owned())
}

/// Tells the observer of what is read.
#[derive(Debug)]
pub(super) struct Watched {
    pub file: File,
    pub observer: Rc<dyn Observer>,
}

impl Read for Watched {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.observer.read(n as u64);
        Ok(n)
    }
}

/// Keeps what is read, so that it can be read once more.
struct Kept {
    inner: Watched,
    bytes: Vec<u8>,
}

impl Read for &mut Kept {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.bytes.len() > MOST_KEPT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "16 MiB without the name of a file"));
        }
        let n = self.inner.read(buf)?;
        self.bytes.extend_from_slice(&buf[..n]);
        Ok(n)
    }
}

/// What the tar is by its first entry that tells, and the tar from its beginning. (A stream can't be looked through first: it
/// may be standard input. What seems to be a root file system is looked through later, where it is stored.)
pub(super) fn decide(stream: Watched) -> Result<(Form, Stream), ImportError> {
    let mut kept = Kept { inner: stream, bytes: Vec::new() };
    let form = form(&mut kept)?;
    Ok((form, Cursor::new(kept.bytes).chain(kept.inner)))
}

fn form(mut kept: &mut Kept) -> Result<Form, ImportError> {
    let mut head = [0; 6];
    let mut filled = 0;
    while filled < head.len() {
        match kept.read(&mut head[filled..]).map_err(ImportError::reading)? {
            0 => break,
            n => filled += n,
        }
    }
    match &head[..filled] {
        [] => return Err(ImportError::Empty),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(ImportError::Compression { with: "xz" }),
        [b'B', b'Z', b'h', ..] => return Err(ImportError::Compression { with: "bzip2" }),
        _ => {}
    }
    let again = Cursor::new(head[..filled].to_vec()).chain(kept);
    let stream = unpack::decompress(again).map_err(ImportError::reading)?;
    let mut tar = TarReader::new(stream);
    while let Some(entry) = tar.next().map_err(ImportError::reading)? {
        let path = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if !path.is_empty() && path != b"." {
            return Ok(if tells_archive(path, entry.kind) { Form::Archive } else { Form::Rootfs });
        }
    }
    Err(ImportError::Empty)
}

/// Whether a root file system surely has no such entry at its top.
fn tells_archive(path: &[u8], kind: Kind) -> bool {
    let first = path.split(|b| *b == b'/').next().unwrap_or_default();
    let hex = |name: &[u8]| name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit);
    match first {
        b"oci-layout" | b"index.json" | b"manifest.json" | b"repositories" => kind == Kind::File,
        b"blobs" => path == first || path.starts_with(b"blobs/sha256"),
        b"config.json" => kind == Kind::File,
        // What Docker before version 25, skopeo, podman, crane, jib and kaniko call layers and configurations.
        name => {
            let name = name.strip_prefix(b"sha256:").unwrap_or(name);
            let endings: [&[u8]; 4] = [b"", b".json", b".tar", b".tar.gz"];
            endings.iter().any(|end| name.strip_suffix(*end).is_some_and(hex))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_entries() {
        let hex = "0a".repeat(32);
        for name in [
            "oci-layout",
            "index.json",
            "manifest.json",
            "repositories",
            "config.json",
            "blobs",
            "blobs/sha256/x",
            &hex,
            &format!("{hex}/layer.tar"),
            &format!("{hex}.tar"),
            &format!("{hex}.tar.gz"),
            &format!("{hex}.json"),
            &format!("sha256:{hex}"),
        ] {
            assert!(tells_archive(name.as_bytes(), Kind::File), "{name}");
        }
        for name in ["bin", "etc/passwd", "blobs/x", "数据", &hex[1..], "manifest.json.bak"] {
            assert!(!tells_archive(name.as_bytes(), Kind::File), "{name}");
        }
        assert!(!tells_archive(b"index.json", Kind::Dir));
    }
}
