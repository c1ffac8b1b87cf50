//! Layers on top of each other become one tree: directories are real, files and links are hard links to the layers'.
//!
//! The layers are trees that strangers chose: every entry is reached through its parent's descriptor, one component at a time, no
//! link is ever followed, and symbolic links are linked as what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, fchmod, fstat, futimens,
    linkat, mkdirat, openat, openat2, readlink, readlinkat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::StoreError;
use crate::image::unpack::LayerRecord;
use crate::sandbox::tree::{BENEATH, open_dir, open_dir_forced, remove_tree};

/// So deep a tree may be: two descriptors are open for each level.
const MAX_DEPTH: usize = 256;

/// A tree in the making.
pub(super) struct Merge<'a> {
    root: BorrowedFd<'a>,
    /// What directories shall be like in the end: until then all are open to us.
    dirs: BTreeMap<Vec<u8>, Looks>,
    /// Directories that the layer at work has only because something is in them: they don't change what is known.
    implied: BTreeSet<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Looks {
    mode: Mode,
    changed: Timespec,
}

/// What went wrong where.
enum Fault {
    At(Vec<u8>, Errno),
    TooDeep,
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::TooDeep => StoreError::TooDeep { max: MAX_DEPTH },
            Fault::At(path, source) => {
                let path = String::from_utf8_lossy(&path).chars().take(200).collect();
                StoreError::Merge { path, source }
            }
        }
    }
}

impl<'a> Merge<'a> {
    /// `root` is an empty directory.
    pub fn new(root: BorrowedFd<'a>) -> Merge<'a> {
        Merge { root, dirs: BTreeMap::new(), implied: BTreeSet::new() }
    }

    /// Puts a layer on top: what it whites out goes, then its own entries come.
    pub fn add(&mut self, layer: BorrowedFd<'_>, record: &LayerRecord) -> Result<(), StoreError> {
        self.implied = record.implied.iter().map(|p| p.0.clone()).collect();
        for path in &record.opaque {
            self.empty(&path.0)?;
        }
        for path in &record.whiteouts {
            self.remove(layer, &path.0)?;
        }
        let mut paths = Paths::default();
        let stat = fstat(layer).map_err(|e| at(&paths.root, e))?;
        self.note(&paths, &stat);
        Ok(self.merge(layer, self.root, &mut paths, 0)?)
    }

    /// Gives the directories their modes and times.
    pub fn finish(self) -> Result<(), StoreError> {
        // Children before their parents: a parent may be one that nobody can enter.
        for (path, looks) in self.dirs.iter().rev() {
            let name: &[u8] = if path.is_empty() { b"." } else { path };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = match openat2(self.root, OsStr::from_bytes(name), flags, Mode::empty(), BENEATH) {
                Ok(dir) => dir,
                // A later layer had something else there, or nothing.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(e) => return Err(at(path, e).into()),
            };
            fchmod(&dir, looks.mode).map_err(|e| at(path, e))?;
            futimens(&dir, &times(looks.changed)).map_err(|e| at(path, e))?;
        }
        Ok(())
    }

    /// What the directory shall be like, as far as this layer says.
    fn note(&mut self, paths: &Paths, stat: &Stat) {
        if !self.implied.contains(&paths.layer) || !self.dirs.contains_key(&paths.root) {
            self.dirs.insert(paths.root.clone(), looks(stat));
        }
    }

    /// The directory that a symlink of a lower layer leads to, and where in the tree it is. The kernel resolves it in the tree.
    fn behind(&self, path: &[u8]) -> Result<Option<(OwnedFd, Vec<u8>)>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let dir = match openat2(self.root, OsStr::from_bytes(path), flags, Mode::empty(), resolve) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(e) => return Err(e),
        };
        let name = |fd: BorrowedFd<'_>| readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new());
        let (top, whole) = (name(self.root)?.into_bytes(), name(dir.as_fd())?.into_bytes());
        let below = whole.strip_prefix(top.as_slice()).ok_or(Errno::XDEV)?;
        let below = below.strip_prefix(b"/").unwrap_or(below).to_vec();
        Ok(Some((dir, below)))
    }

    /// The whiteout of one path.
    fn remove(&self, layer: BorrowedFd<'_>, path: &[u8]) -> Result<(), StoreError> {
        let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(n) => (&path[..n], &path[n + 1..]),
            None => (&b"."[..], path),
        };
        let found = match open_dir(self.root, OsStr::from_bytes(parent)) {
            // Behind a symlink of the lower layers, unless this layer puts a directory of its own there.
            Err(Errno::LOOP | Errno::NOTDIR)
                if self.implied.contains(parent) || open_dir(layer, OsStr::from_bytes(parent)).is_err() =>
            {
                self.behind(parent).and_then(|found| found.map(|(dir, _)| dir).ok_or(Errno::NOENT))
            }
            other => other,
        };
        match found {
            Ok(parent) => remove_tree(parent.as_fd(), OsStr::from_bytes(name))
                .map_err(|e| at(path, Errno::from_io_error(&e).unwrap_or(Errno::IO)).into()),
            // The lower layers have nothing there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(e) => Err(at(path, e).into()),
        }
    }

    /// The opaque mark of one directory.
    fn empty(&self, path: &[u8]) -> Result<(), StoreError> {
        let name: &[u8] = if path.is_empty() { b"." } else { path };
        let dir = match open_dir(self.root, OsStr::from_bytes(name)) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(e) => return Err(at(path, e).into()),
        };
        for (name, _) in entries(dir.as_fd()).map_err(|e| at(path, e))? {
            remove_tree(dir.as_fd(), OsStr::from_bytes(name.to_bytes()))
                .map_err(|e| at(path, Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
        }
        Ok(())
    }

    fn merge(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        paths: &mut Paths,
        depth: usize,
    ) -> Result<(), Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::TooDeep);
        }
        for (name, kind) in entries(from).map_err(|e| at(&paths.root, e))? {
            let lengths = paths.push(name.to_bytes());
            if kind == FileType::Directory {
                self.directory(from, to, &name, paths, depth)?;
            } else {
                link(from, to, &name, kind).map_err(|e| at(&paths.root, e))?;
            }
            paths.truncate(lengths);
        }
        Ok(())
    }

    fn directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        paths: &mut Paths,
        depth: usize,
    ) -> Result<(), Fault> {
        let fail = |path: &[u8]| {
            let path = path.to_vec();
            move |errno| Fault::At(path, errno)
        };
        let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail(&paths.root))?;
        let source = open_dir_forced(from, name).map_err(fail(&paths.root))?;
        let followed = self.followed(to, name, paths).map_err(fail(&paths.root))?;
        let result = match followed {
            Some((dir, root)) => {
                let mut paths = Paths { layer: paths.layer.clone(), root };
                self.merge(source.as_fd(), dir.as_fd(), &mut paths, depth + 1)
            }
            None => {
                if make_dir(to, name).map_err(fail(&paths.root))? {
                    self.dirs.remove(paths.root.as_slice());
                }
                self.note(paths, &stat);
                let below = open_dir(to, name).map_err(fail(&paths.root))?;
                self.merge(source.as_fd(), below.as_fd(), paths, depth + 1)
            }
        };
        // Where the mode kept its own owner out it was changed for a moment.
        if fstat(&source).is_ok_and(|now| now.st_mode != stat.st_mode) {
            fchmod(&source, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(fail(&paths.root))?;
        }
        result
    }

    /// Where a lower layer has a symlink to a directory, and this one has no directory of its own but something in it: `lib/x` over an image in
    /// which `/lib` is a link to `usr/lib` belongs to `usr/lib/x`, as containerd and umoci have it.
    fn followed(
        &self,
        to: BorrowedFd<'_>,
        name: &CStr,
        paths: &Paths,
    ) -> Result<Option<(OwnedFd, Vec<u8>)>, Errno> {
        if !self.implied.contains(&paths.layer) {
            return Ok(None);
        }
        match statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if FileType::from_raw_mode(there.st_mode) == FileType::Symlink => {
                self.behind(&paths.root)
            }
            _ => Ok(None),
        }
    }
}

/// Where the walk is: they differ where a symlink of a lower layer was followed.
#[derive(Default)]
struct Paths {
    /// In the layer.
    layer: Vec<u8>,
    /// In the tree.
    root: Vec<u8>,
}

impl Paths {
    /// One component down; gives what [`truncate`](Paths::truncate) takes.
    fn push(&mut self, name: &[u8]) -> (usize, usize) {
        let lengths = (self.layer.len(), self.root.len());
        for path in [&mut self.layer, &mut self.root] {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        lengths
    }

    fn truncate(&mut self, lengths: (usize, usize)) {
        self.layer.truncate(lengths.0);
        self.root.truncate(lengths.1);
    }
}

fn at(path: &[u8], errno: Errno) -> Fault {
    Fault::At(path.to_vec(), errno)
}

fn looks(stat: &Stat) -> Looks {
    let changed = Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ };
    Looks { mode: Mode::from_raw_mode(stat.st_mode & 0o7777), changed }
}

fn times(changed: Timespec) -> Timestamps {
    Timestamps { last_access: changed, last_modification: changed }
}

/// Names and types, without `.` and `..`.
fn entries(dir: BorrowedFd<'_>) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

/// A directory at `name`: the one that is there, or a new one (then true) instead of whatever else is there.
fn make_dir(to: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match mkdirat(to, name, Mode::RWXU) {
        Err(Errno::EXIST) => {}
        other => return other.map(|()| true),
    }
    let stat = statat(to, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Ok(false);
    }
    unlinkat(to, name, AtFlags::empty())?;
    mkdirat(to, name, Mode::RWXU).map(|()| true)
}

/// The layer's file or symlink at `name`, instead of whatever is there.
fn link(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), Errno> {
    match link_or_copy(from, to, name, kind) {
        Err(Errno::EXIST) => {}
        other => return other,
    }
    match unlinkat(to, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => remove_tree(to, OsStr::from_bytes(name.to_bytes()))
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?,
        other => other?,
    }
    link_or_copy(from, to, name, kind)
}

fn link_or_copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), Errno> {
    // No AT_SYMLINK_FOLLOW: a symlink itself gets the second name.
    match linkat(from, name, to, name, AtFlags::empty()) {
        // Too many names (a layer that many images share), another project's quota, a file system without such links.
        Err(Errno::MLINK | Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP) => match kind {
            FileType::RegularFile => copy(from, to, name),
            FileType::Symlink => copy_symlink(from, to, name),
            // The unpacker makes nothing else.
            _ => Err(Errno::INVAL),
        },
        other => other,
    }
}

fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut source = File::from(openat(from, name, flags, Mode::empty())?);
    let stat = fstat(&source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut target = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    std::io::copy(&mut source, &mut target).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let looks = looks(&stat);
    fchmod(&target, looks.mode)?;
    futimens(&target, &times(looks.changed))
}

fn copy_symlink(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let target = readlinkat(from, name, Vec::new())?;
    symlinkat(target.as_c_str(), to, name)?;
    let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(to, name, &times(looks(&stat).changed), AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        for (levels, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("from").join("d/".repeat(levels))).unwrap();
            fs::create_dir(dir.path().join("to")).unwrap();
            let from = File::open(dir.path().join("from")).unwrap();
            let to = File::open(dir.path().join("to")).unwrap();
            let mut merge = Merge::new(to.as_fd());
            match merge.add(from.as_fd(), &LayerRecord::default()) {
                Ok(()) => assert!(fits),
                Err(e) => assert!(!fits && matches!(e, StoreError::TooDeep { .. }), "{levels}: {e}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_linked_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["from", "to"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("from/文件"), "内容").unwrap();
        std::os::unix::fs::symlink("/etc/shadow", dir.path().join("from/link")).unwrap();
        let from = File::open(dir.path().join("from")).unwrap();
        let to = File::open(dir.path().join("to")).unwrap();
        copy(from.as_fd(), to.as_fd(), &CString::new("文件").unwrap()).unwrap();
        copy_symlink(from.as_fd(), to.as_fd(), c"link").unwrap();
        // Never opened through a link.
        assert_eq!(copy(from.as_fd(), to.as_fd(), c"link"), Err(Errno::LOOP));
        let (a, b) = ("from/文件", "to/文件");
        let meta = |name: &str| fs::metadata(dir.path().join(name)).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(b)).unwrap(), "内容");
        assert_ne!(meta(a).ino(), meta(b).ino());
        assert_eq!(
            (meta(a).mode(), meta(a).modified().unwrap()),
            (meta(b).mode(), meta(b).modified().unwrap())
        );
        assert_eq!(fs::read_link(dir.path().join("to/link")).unwrap().to_str(), Some("/etc/shadow"));
    }
}
