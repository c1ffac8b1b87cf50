//! The locks of the store: flock(2) on files that are never removed while the store is open.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// Opens (and makes, when missing) a lock file. Each call has a description of its own, which is what a lock belongs to.
pub(super) fn file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?.into())
}

/// Opens a lock file that has to be there.
pub(super) fn existing(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Takes the lock or says that somebody else has it.
pub(super) fn attempt(file: &impl std::os::fd::AsFd, how: FlockOperation) -> io::Result<bool> {
    match retried(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Takes the lock, waiting for it.
pub(super) fn wait(file: &impl std::os::fd::AsFd, how: FlockOperation) -> io::Result<()> {
    Ok(retried(file, how)?)
}

fn retried(file: &impl std::os::fd::AsFd, how: FlockOperation) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| flock(file, how))
}
