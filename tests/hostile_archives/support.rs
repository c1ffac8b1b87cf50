//! Tar streams written block by block, so that they can lie, and a place to unpack them in.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use creel::image::unpack::{Limits, UnpackError, Unpacked, layer};
use creel::sandbox::tree::remove_tree;

pub const POSIX: &[u8] = b"ustar\x0000";
pub const GNU: &[u8] = b"ustar  \0";
pub const V7: &[u8] = b"\0\0\0\0\0\0\0\0";

/// One header and what follows it. Everything can be set to something wrong.
#[derive(Clone)]
pub struct Head {
    pub name: Vec<u8>,
    pub kind: u8,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// What the header says; the length of the content if None.
    pub size: Option<u64>,
    pub mtime: u64,
    pub link: Vec<u8>,
    pub magic: &'static [u8],
    pub content: Vec<u8>,
    /// Bytes written over the header before its checksum is made.
    pub patches: Vec<(usize, Vec<u8>)>,
}

impl Head {
    pub fn new(kind: u8, name: impl AsRef<[u8]>) -> Head {
        Head {
            name: name.as_ref().to_vec(),
            kind,
            mode: if kind == b'5' { 0o755 } else { 0o644 },
            uid: 0,
            gid: 0,
            size: None,
            mtime: 1_700_000_000,
            link: Vec::new(),
            magic: POSIX,
            content: Vec::new(),
            patches: Vec::new(),
        }
    }

    pub fn link(mut self, link: impl AsRef<[u8]>) -> Head {
        self.link = link.as_ref().to_vec();
        self
    }

    pub fn content(mut self, content: impl AsRef<[u8]>) -> Head {
        self.content = content.as_ref().to_vec();
        self
    }

    pub fn mode(mut self, mode: u32) -> Head {
        self.mode = mode;
        self
    }

    pub fn owner(mut self, uid: u32, gid: u32) -> Head {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    pub fn size(mut self, size: u64) -> Head {
        self.size = Some(size);
        self
    }

    pub fn magic(mut self, magic: &'static [u8]) -> Head {
        self.magic = magic;
        self
    }

    pub fn patch(mut self, at: usize, bytes: impl AsRef<[u8]>) -> Head {
        self.patches.push((at, bytes.as_ref().to_vec()));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut block = [0u8; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name[..self.name.len().min(100)]);
        put(100, format!("{:07o}\0", self.mode).as_bytes());
        put(108, format!("{:07o}\0", self.uid).as_bytes());
        put(116, format!("{:07o}\0", self.gid).as_bytes());
        let size = self.size.unwrap_or(self.content.len() as u64);
        if size < 1 << 33 {
            put(124, format!("{size:011o}\0").as_bytes());
        } else {
            put(124, b"\x80\0\0\0");
            put(128, &size.to_be_bytes());
        }
        put(136, format!("{:011o}\0", self.mtime).as_bytes());
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, &self.link[..self.link.len().min(100)]);
        put(257, self.magic);
        for (at, bytes) in &self.patches {
            put(*at, bytes);
        }
        if !self.patches.iter().any(|(at, _)| (148..156).contains(at)) {
            let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        [&block[..], &padded(&self.content)].concat()
    }
}

/// Filled up with zeros to whole blocks.
pub fn padded(content: &[u8]) -> Vec<u8> {
    let mut out = content.to_vec();
    out.resize(content.len().next_multiple_of(512), 0);
    out
}

pub fn file(name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Vec<u8> {
    Head::new(b'0', name).content(content).bytes()
}

pub fn dir(name: impl AsRef<[u8]>) -> Vec<u8> {
    Head::new(b'5', name).bytes()
}

pub fn symlink(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Vec<u8> {
    Head::new(b'2', name).link(target).bytes()
}

pub fn hard_link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Vec<u8> {
    Head::new(b'1', name).link(target).bytes()
}

/// A PAX header whose body is these bytes.
pub fn pax_raw(body: impl AsRef<[u8]>) -> Vec<u8> {
    Head::new(b'x', "PaxHeaders/x").content(body).bytes()
}

pub fn record(key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

pub fn pax<V: AsRef<[u8]>>(records: &[(&str, V)]) -> Vec<u8> {
    pax_raw(records.iter().flat_map(|(k, v)| record(k, v)).collect::<Vec<u8>>())
}

/// A GNU long name (`L`) or long link name (`K`).
pub fn gnu_long(kind: u8, text: impl AsRef<[u8]>) -> Vec<u8> {
    Head::new(kind, "././@LongLink").magic(GNU).content([text.as_ref(), b"\0"].concat()).bytes()
}

/// The parts and the end of the archive.
pub fn tar<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    let mut out: Vec<u8> = parts.iter().flat_map(|p| p.as_ref().to_vec()).collect();
    out.resize(out.len() + 1024, 0);
    out
}

pub fn gz(data: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

pub fn zst(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 3).unwrap()
}

/// A directory with things that must stay as they are, and a target in it.
pub struct Trial {
    pub top: tempfile::TempDir,
}

/// All that `lstat` tells of a file but its last access, and its content.
type Look = (u32, u64, u64, u32, i64, i64, i64, i64, Vec<u8>);

impl Trial {
    pub fn new() -> Trial {
        Trial::within(tempfile::TempDir::with_prefix("creel-test-").unwrap())
    }

    /// Where making many inodes takes no time, if there is such a place.
    pub fn in_memory() -> Trial {
        let shm = tempfile::TempDir::with_prefix_in("creel-test-", "/dev/shm");
        Trial::within(shm.or_else(|_| tempfile::TempDir::with_prefix("creel-test-")).unwrap())
    }

    fn within(top: tempfile::TempDir) -> Trial {
        let t = Trial { top };
        fs::create_dir_all(t.outside().join("dir")).unwrap();
        fs::write(t.outside().join("secret"), "canary").unwrap();
        fs::write(t.outside().join("dir/file"), "canary").unwrap();
        fs::create_dir(t.target()).unwrap();
        t
    }

    pub fn outside(&self) -> PathBuf {
        self.top.path().join("outside")
    }

    pub fn target(&self) -> PathBuf {
        self.top.path().join("target")
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.target().join(name)
    }

    pub fn stat(&self, name: impl AsRef<Path>) -> fs::Metadata {
        fs::symlink_metadata(self.path(name)).unwrap()
    }

    pub fn mode(&self, name: impl AsRef<Path>) -> u32 {
        self.stat(name).mode() & 0o7777
    }

    pub fn text(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Unpacks and asserts that nothing beside the target has changed.
    pub fn unpack_with(&self, stream: impl Read, limits: &Limits) -> Result<Unpacked, UnpackError> {
        let before = self.around();
        let into = fs::File::open(self.target()).unwrap();
        let result = layer(stream, into.as_fd(), limits);
        assert_eq!(before, self.around(), "something outside the target has changed");
        result
    }

    pub fn unpack(&self, stream: &[u8]) -> Result<Unpacked, UnpackError> {
        self.unpack_with(stream, &Limits::default())
    }

    /// Removes the target, as the store does after a failure, and asserts that nothing is left and nothing else changed.
    pub fn clear(&self) {
        let top = fs::File::open(self.top.path()).unwrap();
        remove_tree(top.as_fd(), "target".as_ref()).unwrap();
        assert!(fs::symlink_metadata(self.target()).is_err());
        assert_eq!(fs::read_to_string(self.outside().join("dir/file")).unwrap(), "canary");
    }

    fn around(&self) -> BTreeMap<PathBuf, Look> {
        let mut found = BTreeMap::new();
        let mut todo = vec![self.top.path().to_owned()];
        while let Some(path) = todo.pop() {
            let m = fs::symlink_metadata(&path).unwrap();
            let mut content = Vec::new();
            if m.is_dir() {
                let inner = fs::read_dir(&path).unwrap().map(|e| e.unwrap().path());
                todo.extend(inner.filter(|p| *p != self.target()));
            } else {
                content = fs::read(&path).unwrap();
            }
            let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
            let look = (m.mode(), m.ino(), m.nlink(), m.uid(), times.0, times.1, times.2, times.3, content);
            found.insert(path, look);
        }
        found
    }
}

/// Asserts that a stream is refused by a rule, with a message that has all of `words` (the name of the entry among them), and
/// that nothing was written outside the target.
pub fn refused_with(stream: impl Read, limits: &Limits, code: &str, words: &[&str]) {
    let t = Trial::new();
    let error = match t.unpack_with(stream, limits) {
        Err(error) => error,
        Ok(done) => panic!("not refused ({code} {words:?}): {done:?}"),
    };
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
    assert!(text.len() < 1500 && !text.contains(|c: char| c.is_control()), "{text:?}");
    assert!(!error.is_host_fault(), "{text}");
    t.clear();
}

pub fn refused(stream: &[u8], code: &str, words: &[&str]) {
    refused_with(stream, &Limits::default(), code, words);
}

/// Bytes of this process's memory at its peak.
pub fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
