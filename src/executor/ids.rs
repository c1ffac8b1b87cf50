//! Host ids for sandboxes: each live one has an id of its own, so that two payloads never share a user on the host.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sandbox::spec::{Ids, RANGE};
use crate::sys::lock::try_lock_byte;

/// The id that 0 inside is mapped to. No process ever runs as it. It and the range after it lie where neither useradd, subuid ranges nor
/// systemd allocate (systemd's docs/UIDS-GIDS.md: 1879048192 to 2147352575 is unused).
pub const ROOT_ID: u32 = 1_900_000_000;
/// The first id for payloads, and how many there are.
pub const FIRST_ID: u32 = ROOT_ID + 1;
pub const COUNT: u32 = 65_535;
/// The first id for builds, each of which has [`RANGE`] of them, and how many builds there may be at once.
pub const FIRST_BUILD_ID: u32 = ROOT_ID + (1 << 20);
pub const BUILDS: u32 = 16;

/// One file for all state directories of this host; gone with a reboot, as are the sandboxes.
const LOCKS: &str = "/run/creel/uids.lock";

/// A host id in use; free again when the last copy of the lock's descriptor is closed, however its holders end.
#[derive(Debug)]
pub struct Lease {
    pub ids: Ids,
    /// The launcher holds it too.
    pub lock: Option<OwnedFd>,
}

/// Takes an id that no live sandbox has; an ordinary user's sandboxes run as that user.
pub fn lease() -> io::Result<Lease> {
    if !rustix::process::geteuid().is_root() {
        let ids = Ids::Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        return Ok(Lease { ids, lock: None });
    }
    let file = open(Path::new(LOCKS))?;
    let mut random = [0u8; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK)?;
    let start = u32::from_le_bytes(random) % COUNT;
    for n in 0..COUNT {
        let offset = (start + n) % COUNT;
        if try_lock_byte(file.as_fd(), offset)? {
            return Ok(Lease { ids: Ids::Own { user: FIRST_ID + offset, root: ROOT_ID }, lock: Some(file) });
        }
    }
    Err(io::Error::other("all host ids for sandboxes are in use"))
}

/// Takes a range of ids that no other live build has, as root.
pub fn lease_range() -> io::Result<Lease> {
    let file = open(Path::new(LOCKS))?;
    for n in 0..BUILDS {
        if try_lock_byte(file.as_fd(), COUNT + n)? {
            let first = FIRST_BUILD_ID + n * RANGE;
            return Ok(Lease { ids: Ids::Range { first }, lock: Some(file) });
        }
    }
    Err(io::Error::other(format!("{BUILDS} builds are running: wait for one to end")))
}

/// Opens the lock file, making it and its directory when missing. The directory must be ours alone, or another user could hold or replace
/// the locks.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let dir = path.parent().unwrap_or(path);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = match rustix::fs::open(dir, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            match DirBuilder::new().mode(0o700).create(dir) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => other?,
            }
            rustix::fs::open(dir, flags, Mode::empty())
        }
        other => other,
    };
    let dir_fd = match opened {
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(io::Error::other("it is not a directory of its own")),
        other => other?,
    };
    let stat = rustix::fs::fstat(&dir_fd)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other("it belongs to another user or others may write to it: remove it"));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = path.file_name().unwrap_or_default();
    match rustix::fs::openat(&dir_fd, name, flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::LOOP) => Err(io::Error::other("uids.lock in it is a symlink: remove it")),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_held_once_and_freed_by_closing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks");
        let (a, b) = (open(&path).unwrap(), open(&path).unwrap());
        assert!(try_lock_byte(a.as_fd(), 7).unwrap());
        assert!(!try_lock_byte(b.as_fd(), 7).unwrap());
        assert!(try_lock_byte(b.as_fd(), 8).unwrap());
        drop(a);
        assert!(try_lock_byte(b.as_fd(), 7).unwrap());
    }
}
