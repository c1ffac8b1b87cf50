//! The directory that a layer is unpacked into.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, linkat,
    mkdirat, openat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::error::{Fault, Rule, UnpackError};
use super::path::split;
use super::{Limits, PathBytes};
use crate::sandbox::tree::{open_dir, open_handle};

/// So many directories stay open: an archive's files come directory by directory.
const OPEN_DIRS: usize = 16;

/// The mode of a directory that has no entry of its own.
const IMPLIED: u32 = 0o755;

/// The target, and what must be remembered of it to the end.
pub(super) struct Target {
    root: Arc<OwnedFd>,
    /// Paths of open directories, the last used one in front.
    open: Vec<(Vec<u8>, Arc<OwnedFd>)>,
    /// All directories → their time, if they had an entry of their own. The root is the empty path.
    dirs: HashMap<Vec<u8>, Option<(u64, u32)>>,
    /// Memory that may still be taken for paths.
    names: u64,
}

/// What stands at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    File { dev: u64, ino: u64 },
    Directory,
    Other,
}

impl Target {
    /// `into` must be a directory with nothing in it; it may be an `O_PATH` descriptor.
    pub fn open(into: BorrowedFd<'_>, names: u64) -> Result<Target, UnpackError> {
        let os = |action| {
            move |source| UnpackError::Write { action, entry: "the directory to unpack into".into(), source }
        };
        let root = open_dir(into, c".").map_err(os("open"))?;
        for entry in Dir::read_from(&root).map_err(os("read"))? {
            if !matches!(entry.map_err(os("read"))?.file_name().to_bytes(), b"." | b"..") {
                return Err(UnpackError::NotEmpty);
            }
        }
        let dirs = HashMap::from([(Vec::new(), None)]);
        Ok(Target { root: Arc::new(root), open: Vec::new(), dirs, names })
    }

    /// Takes memory for a path that is kept.
    pub fn keep(&mut self, path: &[u8]) -> Result<(), Fault> {
        let cost = path.len() as u64 + Limits::NAME_COST;
        self.names = match self.names.checked_sub(cost) {
            Some(left) => left,
            None => return Fault::refused(Rule::Limit, "the layer has too many directories and whiteouts"),
        };
        Ok(())
    }

    /// The directory that `path` is in, made with its parents if it isn't there, and the last component.
    ///
    /// The kernel resolves it beneath the target and follows no link (RUSTSEC-2021-0080, CVE-2018-15664, CVE-2025-45582).
    pub fn parent<'a>(&mut self, path: &'a [u8]) -> Result<(Arc<OwnedFd>, &'a [u8]), Fault> {
        let (parent, name) = split(path);
        Ok((self.dir(parent)?, name))
    }

    /// A directory, made with its parents if it isn't there.
    pub fn dir(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, Fault> {
        if let Some(fd) = self.existing_dir(path)? {
            return Ok(fd);
        }
        let (parent, name) = self.parent(path)?;
        self.make_dir(&parent, name, path, IMPLIED)
    }

    /// A directory, if it is there.
    fn existing_dir(&mut self, path: &[u8]) -> Result<Option<Arc<OwnedFd>>, Fault> {
        if path.is_empty() {
            return Ok(Some(self.root.clone()));
        }
        if let Some(n) = self.open.iter().position(|(open, _)| open == path) {
            self.open[..=n].rotate_right(1);
            return Ok(Some(self.open[0].1.clone()));
        }
        match open_dir(&*self.root, path) {
            Ok(fd) => Ok(Some(self.keep_open(path, fd))),
            Err(Errno::NOENT) => Ok(None),
            // Of a link at the very end the kernel says NOTDIR.
            Err(e @ (Errno::LOOP | Errno::NOTDIR)) if e == Errno::LOOP || self.is_symlink(path) => {
                Fault::refused(Rule::Link, "on the way to it is a symbolic link of the layer")
            }
            Err(Errno::NOTDIR) => {
                Fault::refused(Rule::Conflict, "on the way to it is something that is no directory")
            }
            Err(e) => Err(Fault::Os("open the directory of", e)),
        }
    }

    fn is_symlink(&self, path: &[u8]) -> bool {
        let stat = open_handle(&*self.root, path).and_then(rustix::fs::fstat);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
    }

    fn keep_open(&mut self, path: &[u8], fd: OwnedFd) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        self.open.truncate(OPEN_DIRS - 1);
        self.open.insert(0, (path.to_vec(), fd.clone()));
        fd
    }

    /// Makes the directory `name` in `parent`, which doesn't exist; `path` is its whole path.
    fn make_dir(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        mode: u32,
    ) -> Result<Arc<OwnedFd>, Fault> {
        self.keep(path)?;
        mkdirat(parent, name, Mode::RWXU).map_err(Fault::os("make the directory of"))?;
        self.dirs.insert(path.to_vec(), None);
        let fd = open_dir(parent, name).map_err(Fault::os("open the directory of"))?;
        set_mode(&fd, mode)?;
        Ok(self.keep_open(path, fd))
    }

    /// A directory with an entry of its own. The mode holds at once, since it always lets its owner in; the time is set in the
    /// end, when nothing is put into it any more.
    pub fn directory(&mut self, path: &[u8], mode: u32, mtime: (u64, u32)) -> Result<(), Fault> {
        if path.is_empty() {
            set_mode(&self.root, mode)?;
        } else {
            let (parent, name) = self.parent(path)?;
            match existing(&parent, name)? {
                None => {
                    self.make_dir(&parent, name, path, mode)?;
                }
                Some(Existing::Directory) => set_mode(&*self.dir(path)?, mode)?,
                Some(_) => {
                    return Fault::refused(
                        Rule::Conflict,
                        "it is a directory, and was something else before in the same layer",
                    );
                }
            }
        }
        self.dirs.insert(path.to_vec(), Some(mtime));
        Ok(())
    }

    /// A new, empty regular file, opened for writing.
    pub fn file(&mut self, path: &[u8]) -> Result<OwnedFd, Fault> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (parent, name) = self.parent(path)?;
        create(&parent, name, || openat(&*parent, name, flags, Mode::RUSR | Mode::WUSR))
    }

    /// A symbolic link; it is never followed.
    pub fn symlink(&mut self, path: &[u8], target: &[u8], mtime: (u64, u32)) -> Result<(), Fault> {
        let (parent, name) = self.parent(path)?;
        create(&parent, name, || symlinkat(target, &*parent, name))?;
        utimensat(&*parent, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(Fault::os("set the time of"))
    }

    /// One more name for a regular file of this layer.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Fault> {
        let (from, old) = split(target);
        let found = match self.existing_dir(from)? {
            Some(from) => existing(&from, old)?.map(|found| (from, found)),
            None => None,
        };
        let (from, Existing::File { dev, ino }) = (match found {
            Some(found) => found,
            None => {
                return Fault::refused(Rule::Link, "it is a hard link to something that is not in the layer");
            }
        }) else {
            return Fault::refused(Rule::Link, "it is a hard link to something that is no regular file");
        };
        let (parent, name) = self.parent(path)?;
        // GNU tar writes a link to itself for a file that is named twice on its command line.
        if existing(&parent, name)? == Some(Existing::File { dev, ino }) {
            return Ok(());
        }
        // Without AT_SYMLINK_FOLLOW.
        create(&parent, name, || linkat(&*from, old, &*parent, name, AtFlags::empty()))
    }

    /// Whether a path could be a whiteout's: what it is in is a directory of this layer, or not in it.
    pub fn check_whiteout(&mut self, path: &[u8]) -> Result<(), Fault> {
        let (mut parent, _) = split(path);
        // The longest part that is there tells: what is missing in the middle has nothing beneath it.
        while self.existing_dir(parent)?.is_none() {
            (parent, _) = split(parent);
        }
        Ok(())
    }

    /// Sets the times of the directories; gives back those that had no entry.
    pub fn finish(mut self) -> Result<Vec<PathBytes>, (Vec<u8>, Fault)> {
        let mut implied = BTreeSet::new();
        for (path, mtime) in std::mem::take(&mut self.dirs) {
            let Some(mtime) = mtime else {
                implied.insert(path);
                continue;
            };
            let set = |fd: Arc<OwnedFd>| futimens(&*fd, &times(mtime)).map_err(Fault::os("set the time of"));
            if let Err(fault) = self.dir(&path).and_then(set) {
                return Err((path, fault));
            }
        }
        Ok(PathBytes::sorted(implied))
    }
}

/// What stands at `name` in `parent`.
fn existing(parent: &OwnedFd, name: &[u8]) -> Result<Option<Existing>, Fault> {
    let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(Fault::Os("look at", e)),
    };
    Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Existing::File { dev: stat.st_dev, ino: stat.st_ino },
        FileType::Directory => Existing::Directory,
        _ => Existing::Other,
    }))
}

/// Does `make`, which fails if the name exists. What an earlier entry left there is unlinked first: it may have other names, and it
/// may be a link to somewhere else, so it is never opened.
fn create<T>(parent: &OwnedFd, name: &[u8], make: impl Fn() -> rustix::io::Result<T>) -> Result<T, Fault> {
    match make() {
        Err(Errno::EXIST) => {}
        other => return other.map_err(Fault::os("create")),
    }
    if existing(parent, name)? == Some(Existing::Directory) {
        return Fault::refused(
            Rule::Conflict,
            "it was a directory before in the same layer, and is none now",
        );
    }
    unlinkat(parent, name, AtFlags::empty()).map_err(Fault::os("replace"))?;
    make().map_err(Fault::os("create"))
}

/// By descriptor, so that umask and the defaults of the directory don't matter.
pub(super) fn set_mode(fd: impl AsFd, mode: u32) -> Result<(), Fault> {
    fchmod(fd, Mode::from_raw_mode(mode)).map_err(Fault::os("set the mode of"))
}

/// For `futimens`: the time of the last change.
pub(super) fn times((seconds, nanos): (u64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        // Both were bounded when they were read.
        last_modification: Timespec { tv_sec: seconds as i64, tv_nsec: nanos.into() },
    }
}
