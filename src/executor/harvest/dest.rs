//! The destination: the caller's directory, in which nothing of another's may be followed or replaced.

use std::ffi::CStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, mkdirat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use super::HarvestError;
use super::names::{TEMP_END, TEMP_START, is_temp};
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
    made_below: Vec<String>,
}

impl Dest {
    /// Opens the destination; None if there is nothing yet.
    pub fn open(path: &Path) -> Result<Option<Dest>, HarvestError> {
        // The caller named this path: a link in it is his own.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Dest { fd, made: Vec::new(), made_below: Vec::new() })),
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
        self.made_below.clear();
    }

    /// Finds the subdirectory `dir` (`a/b`; empty for the destination itself); with `create`, makes what is missing.
    pub fn subdir(&mut self, dir: &str, create: bool) -> rustix::io::Result<Place<OwnedFd>> {
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
                    Ok(()) => self.made_below.push(so_far.clone()),
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
        for dir in std::mem::take(&mut self.made_below).iter().rev() {
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

/// A directory in the destination for files that are not complete yet, named by numbers. It is locked while its creel lives, so
/// that the next one can tell what a killed one left. Goes with all that is in it when dropped.
pub(super) struct Staging<'a> {
    parent: BorrowedFd<'a>,
    name: String,
    fd: OwnedFd,
}

impl<'a> Staging<'a> {
    pub fn new(parent: BorrowedFd<'a>) -> rustix::io::Result<Self> {
        sweep(parent);
        let mut tries = 0;
        loop {
            let mut random = [0u8; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = format!("{TEMP_START}{:016x}{TEMP_END}", u64::from_ne_bytes(random));
            mkdirat(parent, &*name, Mode::RWXU)?;
            let made = tree::open_dir(parent, &*name).map(|fd| Staging { parent, name, fd });
            match made {
                Ok(staging) if staging.lock() => return Ok(staging),
                // Another creel swept it away before it was locked.
                Ok(_) | Err(Errno::NOENT) if tries < 8 => tries += 1,
                Ok(_) => return Err(Errno::AGAIN),
                Err(e) => return Err(e),
            }
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn lock(&self) -> bool {
        // Any other error: no locks on this file system; then nobody sweeps, either.
        if let Err(Errno::WOULDBLOCK) = flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            return false;
        }
        let there = statat(self.parent, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
        let here = rustix::fs::fstat(&self.fd);
        matches!((there, here), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        clear(self.parent, &*self.name, &self.fd);
    }
}

/// Removes temporary directories whose creel is gone.
fn sweep(parent: BorrowedFd<'_>) {
    let Ok(mut entries) = tree::open_dir(parent, c".").and_then(Dir::new) else {
        return;
    };
    let mut looked = 0;
    while let Some(Ok(entry)) = entries.read()
        && looked < MAX_SWEPT
    {
        looked += 1;
        if is_temp(entry.file_name().to_bytes())
            && let Ok(dir) = tree::open_dir(parent, entry.file_name())
            && flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            clear(parent, entry.file_name(), &dir);
        }
    }
}

/// Removes a temporary directory and the numbered files in it; whatever else someone put there stays, and with it the directory.
fn clear(parent: BorrowedFd<'_>, name: impl Arg, dir: &OwnedFd) {
    if let Ok(mut entries) = tree::open_dir(dir, c".").and_then(Dir::new) {
        while let Some(Ok(entry)) = entries.read() {
            let file: &CStr = entry.file_name();
            if file.to_bytes().iter().all(u8::is_ascii_digit) {
                let _ = unlinkat(dir, file, AtFlags::empty());
            }
        }
    }
    let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
}
