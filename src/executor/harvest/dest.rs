//! The destination: the caller's directory, in which nothing of another's may be followed or replaced.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, mkdirat, openat, openat2, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::HarvestError;
use super::names;
use crate::sandbox::tree::{self, BENEATH};

/// So many entries of the destination are searched for what a killed creel left there.
const MAX_SWEPT: usize = 20_000;

/// What is at the place of a file or directory.
pub(super) enum Place<T> {
    There(T),
    Free,
    /// Something that is neither replaced nor followed, in words.
    Blocked(&'static str),
}

/// The destination directory. Dropped before [`Dest::keep`], it takes back the directories it made.
pub(super) struct Dest {
    fd: OwnedFd,
    /// Parents of the destination and itself, as far as they were made; outermost first.
    made: Vec<PathBuf>,
    /// Subdirectories that were made.
    made_below: RefCell<Vec<String>>,
}

impl Dest {
    /// Opens the destination; None if there is nothing yet.
    pub fn open(path: &Path) -> Result<Option<Dest>, HarvestError> {
        // The caller named this path: a link in it is his own.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Dest { fd, made: Vec::new(), made_below: RefCell::default() })),
            // A dangling link: creating the directory would not mend it.
            Err(Errno::NOENT) if !path.is_symlink() => Ok(None),
            Err(e) => Err(HarvestError::io("open", format!("the output directory {path:?}"), e)),
        }
    }

    /// Opens the destination and creates it and its parents if need be.
    pub fn create(path: &Path) -> Result<Dest, HarvestError> {
        let missing: Vec<_> =
            path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        let mut made = Made(Vec::new());
        for dir in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o755).create(dir) {
                Ok(()) => made.0.push(dir.to_owned()),
                // Another run was faster.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(HarvestError::io("create", format!("the output directory {dir:?}"), e));
                }
            }
        }
        let Some(mut dest) = Dest::open(path)? else {
            let error = io::Error::from(io::ErrorKind::NotFound);
            return Err(HarvestError::io("open", format!("the output directory {path:?}"), error));
        };
        dest.made = std::mem::take(&mut made.0);
        Ok(dest)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What is made stays.
    pub fn keep(&mut self) {
        self.made.clear();
        self.made_below.take();
    }

    /// Finds the subdirectory `dir` (`a/b`; empty for the destination itself); with `create`, makes what is missing.
    pub fn subdir(&self, dir: &str, create: bool) -> rustix::io::Result<Place<OwnedFd>> {
        let mut at = tree::open_handle(&self.fd, c".")?;
        let mut so_far = String::new();
        for part in dir.split('/').filter(|p| !p.is_empty()) {
            if !so_far.is_empty() {
                so_far.push('/');
            }
            so_far.push_str(part);
            let mut opened = open_handle_dir(&at, part);
            if create && matches!(opened, Err(Errno::NOENT)) {
                match mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) => self.made_below.borrow_mut().push(so_far.clone()),
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(e),
                }
                opened = open_handle_dir(&at, part);
            }
            at = match opened {
                Ok(next) => next,
                Err(Errno::NOENT) => return Ok(Place::Free),
                Err(Errno::XDEV) => {
                    return Ok(Place::Blocked(
                        "in the output directory, another file system is mounted in its way",
                    ));
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    let link = "in the output directory, a symbolic link is in the place of its directory";
                    let other = "in the output directory, something else is in the place of its directory";
                    return Ok(Place::Blocked(if is_link(at.as_fd(), part) { link } else { other }));
                }
                Err(e) => return Err(e),
            };
        }
        Ok(Place::There(at))
    }
}

impl Drop for Dest {
    fn drop(&mut self) {
        for dir in self.made_below.take().iter().rev() {
            let (parent, name) = split(dir);
            if let Ok(Place::There(at)) = self.subdir(parent, false) {
                let _ = unlinkat(&at, name, AtFlags::REMOVEDIR);
            }
        }
        drop(Made(std::mem::take(&mut self.made)));
    }
}

/// Directories that are removed again, if they are empty.
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for dir in self.0.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// `a/b/c` as `a/b` and `c`.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// What is at the place of a file, in the directory where it shall be. A symbolic link there is never written through
/// (CVE-2019-1002101 is of that class).
pub(super) fn file_place(dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Place<()>> {
    let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Place::Free),
        Err(e) => return Err(e),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Place::There(()),
        FileType::Symlink => Place::Blocked("in the output directory, a symbolic link is in its place"),
        FileType::Directory => Place::Blocked("in the output directory, a directory is in its place"),
        _ => Place::Blocked("in the output directory, something that is not a regular file is in its place"),
    })
}

fn open_handle_dir(at: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(at, name, flags, Mode::empty(), BENEATH)
}

fn is_link(at: BorrowedFd<'_>, name: &str) -> bool {
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink())
}

/// Files in the destination that are not complete yet, under temporary names. Those that are left when this is dropped go.
///
/// While it lives it holds a shared lock on the destination. Whoever gets the exclusive one knows that no creel is at work there,
/// and that temporary files are what a killed one left.
pub(super) struct Staging<'a> {
    dest: BorrowedFd<'a>,
    random: u64,
    made: BTreeSet<usize>,
}

impl<'a> Staging<'a> {
    pub fn new(dest: &'a Dest) -> rustix::io::Result<Self> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let staging = Staging { dest: dest.fd(), random: u64::from_ne_bytes(random), made: BTreeSet::new() };
        if flock(staging.dest, FlockOperation::NonBlockingLockExclusive).is_ok() {
            sweep(staging.dest);
        }
        // Another creel sweeps: a matter of milliseconds. Longer: the caller holds a lock of its own there, and so nobody
        // sweeps. Any other error: there are no locks on this file system, and so nobody sweeps, either.
        for _ in 0..100 {
            match flock(staging.dest, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
                _ => break,
            }
        }
        Ok(staging)
    }

    fn name(&self, number: usize) -> String {
        names::temp(self.random, number)
    }

    /// Creates a file for writing.
    pub fn create(&mut self, number: usize) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(self.dest, self.name(number), flags, Mode::from_raw_mode(0o644))?;
        self.made.insert(number);
        Ok(fd)
    }

    /// Moves a file to its place.
    pub fn place(&mut self, number: usize, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
        renameat(self.dest, self.name(number), dir, name)?;
        self.made.remove(&number);
        Ok(())
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        for &number in &self.made {
            let _ = unlinkat(self.dest, self.name(number), AtFlags::empty());
        }
    }
}

/// Removes temporary files whose creel is gone.
fn sweep(dest: BorrowedFd<'_>) {
    let Ok(mut entries) = tree::open_dir(dest, c".").and_then(Dir::new) else {
        return;
    };
    for _ in 0..MAX_SWEPT {
        let Some(Ok(entry)) = entries.read() else { return };
        if names::is_temp(entry.file_name().to_bytes()) {
            // A directory of that name is none of ours, and stays: this doesn't remove any.
            let _ = unlinkat(dest, entry.file_name(), AtFlags::empty());
        }
    }
}
