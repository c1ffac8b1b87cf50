//! Layers as tar streams: from what a step wrote, or from a recipe's own files.
//!
//! The same content gives the same bytes: entries in the order of their names, no time later than the recipe's epoch, no names of users, no
//! extended attributes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tar_core::EntryType;
use tar_core::builder::EntryBuilder;

use crate::image::oci::{Digest, Hasher, HashingReader};
use crate::sandbox::spec::RANGE;

use super::BuildError;

/// Directories inside directories; deeper is a mistake of the step.
const DEPTH: usize = 255;

/// Who owns the files of a layer.
#[derive(Debug, Clone, Copy)]
pub enum Owners {
    /// Everything belongs to 0:0.
    Root,
    /// As in the build's user namespace: the host's ids less the first of the range.
    From(u32),
}

/// Writes a layer. The digest of the tar stream is made on the way.
pub struct Writer<W: Write> {
    out: W,
    hasher: Hasher,
    epoch: u64,
}

/// An entry without content of its own.
struct Head<'a> {
    path: &'a Path,
    mode: u32,
    owner: (u32, u32),
    mtime: u64,
}

impl<W: Write> Writer<W> {
    /// `epoch`: no entry is younger, seconds since 1970.
    pub fn new(out: W, epoch: u64) -> Writer<W> {
        Writer { out, hasher: Hasher::default(), epoch }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)
    }

    fn head(&mut self, head: &Head<'_>, kind: EntryType, size: u64, link: Option<&[u8]>) -> io::Result<()> {
        let invalid = |e: tar_core::HeaderError| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        let mut path = head.path.as_os_str().as_bytes().to_vec();
        if kind == EntryType::Directory {
            path.push(b'/');
        }
        let mut entry = EntryBuilder::new_ustar();
        entry.path(path).entry_type(kind);
        entry.mode(head.mode).map_err(invalid)?;
        entry.uid(head.owner.0.into()).map_err(invalid)?;
        entry.gid(head.owner.1.into()).map_err(invalid)?;
        entry.size(size).map_err(invalid)?;
        entry.mtime(head.mtime.min(self.epoch)).map_err(invalid)?;
        if let Some(link) = link {
            entry.link_name(link);
        }
        let bytes = entry.finish_bytes();
        self.put(&bytes)
    }

    fn content(&mut self, mut file: File, size: u64) -> io::Result<()> {
        let mut buf = vec![0; 128 << 10];
        let mut left = size;
        while left > 0 {
            let most = buf.len().min(usize::try_from(left).unwrap_or(buf.len()));
            let n = file.read(&mut buf[..most])?;
            if n == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
            }
            self.put(&buf[..n])?;
            left -= n as u64;
        }
        let pad = size.next_multiple_of(512) - size;
        self.put(&[0; 512][..pad as usize])
    }

    /// The end of the archive. Gives what was written to, and the digest of the stream.
    pub fn finish(mut self) -> io::Result<(W, Digest)> {
        self.put(&[0; 1024])?;
        Ok((self.out, self.hasher.finish()))
    }
}

/// The entry of an empty directory, mode 0755, to be put in front of a tar stream.
pub fn directory_entry(path: &str, epoch: u64) -> io::Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), epoch);
    let head = Head { path: Path::new(path), mode: 0o755, owner: (0, 0), mtime: u64::MAX };
    writer.head(&head, EntryType::Directory, 0, None)?;
    Ok(writer.out)
}

/// Packs the upper directory of a step's overlay, over `lower`. Nothing runs in it any more.
///
/// # Errors
/// [`BuildError::Layer`] for what a layer can't hold; [`BuildError::Io`].
pub fn pack_upper<W: Write>(
    upper: &Path,
    lower: &Path,
    owners: Owners,
    step: &str,
    writer: &mut Writer<W>,
) -> Result<u64, BuildError> {
    let mut pack = Upper { root: upper, lower, owners, step, writer, links: HashMap::new(), entries: 0 };
    pack.dir(Path::new(""), 0)?;
    Ok(pack.entries)
}

struct Upper<'a, W: Write> {
    root: &'a Path,
    lower: &'a Path,
    owners: Owners,
    step: &'a str,
    writer: &'a mut Writer<W>,
    /// Files with several names: the first one that was packed.
    links: HashMap<(u64, u64), PathBuf>,
    entries: u64,
}

impl<W: Write> Upper<'_, W> {
    fn dir(&mut self, dir: &Path, depth: usize) -> Result<(), BuildError> {
        if depth > DEPTH {
            return Err(self.refuse(dir, "it lies too deep"));
        }
        let full = self.root.join(dir);
        let io = |source| BuildError::Io { what: "read", path: full.clone(), source };
        let names = fs::read_dir(&full).map_err(io)?.map(|e| e.map(|e| e.file_name()));
        let mut names = names.collect::<Result<Vec<_>, _>>().map_err(io)?;
        names.sort();
        // The kernel marks every new directory so; it means something where there was one before.
        if is_opaque(&full) && self.was_there(dir).is_some_and(|m| m.is_dir()) {
            self.marker(&dir.join(".wh..wh..opq"))?;
        }
        names.iter().try_for_each(|name| self.entry(dir, name, depth))
    }

    fn entry(&mut self, dir: &Path, name: &OsStr, depth: usize) -> Result<(), BuildError> {
        let path = dir.join(name);
        let full = self.root.join(&path);
        let io = |source| BuildError::Io { what: "pack", path: full.clone(), source };
        if name.as_bytes().starts_with(b".wh.") {
            return Err(self.refuse(&path, "a name that starts with .wh. means a deletion in a layer"));
        }
        let meta = fs::symlink_metadata(&full).map_err(io)?;
        let kind = meta.file_type();
        if kind.is_char_device() && meta.rdev() == 0 {
            // How overlayfs marks what was deleted (Documentation/filesystems/overlayfs.rst).
            if self.was_there(&path).is_none() {
                return Ok(());
            }
            let mut marker = std::ffi::OsString::from(".wh.");
            marker.push(name);
            return self.marker(&dir.join(marker));
        }
        let head = Head {
            path: &path,
            mode: meta.mode() & 0o7777,
            owner: self.owner(&meta),
            mtime: u64::try_from(meta.mtime()).unwrap_or(0),
        };
        self.entries += 1;
        if kind.is_dir() {
            self.writer.head(&head, EntryType::Directory, 0, None).map_err(io)?;
            return self.dir(&path, depth + 1);
        }
        if !kind.is_file() && !kind.is_symlink() {
            return Err(self.refuse(&path, "it is a device, FIFO or socket"));
        }
        if meta.nlink() > 1 && kind.is_file() {
            if let Some(first) = self.links.get(&(meta.dev(), meta.ino())) {
                let target = first.as_os_str().as_bytes().to_vec();
                return self.writer.head(&head, EntryType::Link, 0, Some(&target)).map_err(io);
            }
            self.links.insert((meta.dev(), meta.ino()), path.clone());
        }
        if kind.is_symlink() {
            let target = fs::read_link(&full).map_err(io)?;
            let head = Head { mode: 0o777, ..head };
            let link = Some(target.as_os_str().as_bytes());
            return self.writer.head(&head, EntryType::Symlink, 0, link).map_err(io);
        }
        let file = open_nofollow(&full).map_err(io)?;
        self.writer.head(&head, EntryType::Regular, meta.len(), None).map_err(io)?;
        self.writer.content(file, meta.len()).map_err(io)
    }

    fn marker(&mut self, path: &Path) -> Result<(), BuildError> {
        let head = Head { path, mode: 0o600, owner: (0, 0), mtime: 0 };
        self.entries += 1;
        self.writer.head(&head, EntryType::Regular, 0, None).map_err(|source| BuildError::Io {
            what: "pack",
            path: path.to_owned(),
            source,
        })
    }

    fn was_there(&self, path: &Path) -> Option<Metadata> {
        fs::symlink_metadata(self.lower.join(path)).ok()
    }

    fn owner(&self, meta: &Metadata) -> (u32, u32) {
        let inside = |id: u32| match self.owners {
            Owners::From(first) => id.checked_sub(first).filter(|&id| id < RANGE).unwrap_or(0),
            Owners::Root => 0,
        };
        (inside(meta.uid()), inside(meta.gid()))
    }

    fn refuse(&self, path: &Path, reason: &'static str) -> BuildError {
        BuildError::Layer { step: self.step.to_owned(), path: path.to_owned(), reason }
    }
}

/// Whether what the directory held before the step is gone. Only the kernel can write this attribute for a sandbox.
fn is_opaque(dir: &Path) -> bool {
    let mut value = [0; 2];
    rustix::fs::lgetxattr(dir, "trusted.overlay.opaque", &mut value).is_ok_and(|n| &value[..n] == b"y")
}

fn open_nofollow(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// A file of a recipe.
#[derive(Debug, Clone, Serialize)]
pub struct FileEntry {
    /// Relative to the folder, and so to `/`.
    pub path: PathBuf,
    pub kind: FileKind,
}

#[derive(Debug, Clone, Serialize)]
pub enum FileKind {
    Dir,
    File { executable: bool, size: u64, digest: Digest },
    Symlink(PathBuf),
}

/// What lies below `dir`, parents first, by name.
pub fn file_entries(dir: &Path) -> io::Result<Vec<FileEntry>> {
    let mut entries = Vec::new();
    walk(dir, Path::new(""), &mut entries)?;
    Ok(entries)
}

fn walk(root: &Path, dir: &Path, entries: &mut Vec<FileEntry>) -> io::Result<()> {
    let names = fs::read_dir(root.join(dir))?.map(|e| e.map(|e| e.file_name()));
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    for name in names {
        if name.as_bytes().starts_with(b".wh.") {
            let path = dir.join(&name);
            return Err(io::Error::other(format!(
                "{path:?} in it: a name that starts with .wh. means a deletion in a layer"
            )));
        }
        let path = dir.join(name);
        let full = root.join(&path);
        let meta = fs::symlink_metadata(&full)?;
        let kind = if meta.is_dir() {
            FileKind::Dir
        } else if meta.is_symlink() {
            FileKind::Symlink(fs::read_link(&full)?)
        } else if meta.is_file() {
            let mut reader = HashingReader::new(open_nofollow(&full)?);
            io::copy(&mut reader, &mut io::sink())?;
            let (digest, size) = reader.finish();
            FileKind::File { executable: meta.mode() & 0o100 != 0, size, digest }
        } else {
            return Err(io::Error::other(format!("{full:?} is neither a file, a directory nor a symlink")));
        };
        let is_dir = matches!(kind, FileKind::Dir);
        entries.push(FileEntry { path: path.clone(), kind });
        if is_dir {
            walk(root, &path, entries)?;
        }
    }
    Ok(())
}

/// Packs a recipe's own files: owned by 0:0, modes 0755 and 0644, all of the epoch.
pub fn pack_files<W: Write>(
    dir: &Path,
    entries: &[FileEntry],
    writer: &mut Writer<W>,
) -> Result<(), BuildError> {
    for entry in entries {
        let full = dir.join(&entry.path);
        let io = |source| BuildError::Io { what: "pack", path: full.clone(), source };
        let head = |mode| Head { path: &entry.path, mode, owner: (0, 0), mtime: u64::MAX };
        match &entry.kind {
            FileKind::Dir => writer.head(&head(0o755), EntryType::Directory, 0, None).map_err(io)?,
            FileKind::Symlink(target) => {
                let link = Some(target.as_os_str().as_bytes());
                writer.head(&head(0o777), EntryType::Symlink, 0, link).map_err(io)?;
            }
            FileKind::File { executable, size, .. } => {
                let file = open_nofollow(&full).map_err(io)?;
                let mode = if *executable { 0o755 } else { 0o644 };
                writer.head(&head(mode), EntryType::Regular, *size, None).map_err(io)?;
                writer.content(file, *size).map_err(io)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn pack(dir: &Path) -> (Vec<u8>, Digest) {
        let entries = file_entries(dir).unwrap();
        let mut writer = Writer::new(Vec::new(), 1_750_000_000);
        pack_files(dir, &entries, &mut writer).unwrap();
        writer.finish().unwrap()
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |p: &str| dir.path().join(p);
        fs::create_dir_all(at("etc/配置")).unwrap();
        fs::write(at("etc/配置/文件.txt"), "内容").unwrap();
        fs::write(at("etc/tool"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(at("etc/tool"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink("tool", at("etc/link")).unwrap();
        fs::write(at(&format!("etc/{}", "long".repeat(40))), vec![7; 1000]).unwrap();
        dir
    }

    #[test]
    fn the_same_files_give_the_same_layer() {
        let (one, two) = (tree(), tree());
        fs::set_permissions(two.path().join("etc/配置/文件.txt"), fs::Permissions::from_mode(0o600)).unwrap();
        let (bytes, digest) = pack(one.path());
        assert_eq!((&bytes, digest), (&pack(two.path()).0, pack(two.path()).1));
        assert_eq!(Digest::of(&bytes), digest);
        fs::write(two.path().join("etc/tool"), "#!/bin/sh\n\n").unwrap();
        assert_ne!(pack(two.path()).1, digest);
    }

    #[test]
    fn others_can_read_it() {
        let dir = tree();
        let tar = tempfile::NamedTempFile::new().unwrap();
        fs::write(tar.path(), pack(dir.path()).0).unwrap();
        let listed = std::process::Command::new("tar")
            .args(["--numeric-owner", "--full-time", "--utc", "--quoting-style=literal", "-tvf"])
            .arg(tar.path())
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let text = String::from_utf8(listed.stdout).unwrap();
        for line in [
            "drwxr-xr-x 0/0               0 2025-06-15 15:06:40 etc/\n",
            "-rwxr-xr-x 0/0              10 2025-06-15 15:06:40 etc/tool\n",
            "lrwxrwxrwx 0/0               0 2025-06-15 15:06:40 etc/link -> tool\n",
            "-rw-r--r-- 0/0               6 2025-06-15 15:06:40 etc/配置/文件.txt\n",
            &format!("-rw-r--r-- 0/0            1000 2025-06-15 15:06:40 etc/{}\n", "long".repeat(40)),
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn names_that_mean_a_deletion_and_other_kinds_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let lower = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".wh.x"), "").unwrap();
        let mut writer = Writer::new(Vec::new(), 0);
        let err = pack_upper(dir.path(), lower.path(), Owners::Root, "s", &mut writer).unwrap_err();
        assert_eq!(err.code(), "image.step_failed");
        assert!(err.to_string().contains(".wh.x"), "{err}");
        fs::remove_file(dir.path().join(".wh.x")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        let err = pack_upper(dir.path(), lower.path(), Owners::Root, "s", &mut writer).unwrap_err();
        assert!(err.to_string().contains("socket"), "{err}");
    }
}
