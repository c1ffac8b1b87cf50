//! Directory trees that a hostile program made, and may still be changing: opening their parts, removing them, adding
//! up what they use.
//!
//! The rules that everything here keeps: an entry is always reached through its parent's descriptor, one component at a
//! time; symbolic links are never followed; no mount point is crossed; no path is put together (a tree can be far deeper
//! than `PATH_MAX`); recursion and the number of open descriptors have fixed bounds.

mod remove;
#[cfg(test)]
mod tests;
mod usage;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, chmodat, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

pub use remove::remove_tree;
pub use usage::{Usage, UsageBound, usage};

/// How every name beneath a hostile directory is resolved. A check of the path before it is used would lose the race
/// with whoever swaps a component for a link (CWE-367; CVE-2021-30465 and CVE-2018-15664 are that), so the kernel checks.
pub const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens the directory `name` beneath `parent` for reading. `parent` may be an `O_PATH` descriptor; `.` means itself.
///
/// `ENOTDIR` or `ELOOP`: it is (by now) no directory; `EXDEV`: something is mounted there; `EACCES`: its mode forbids it.
pub fn open_dir(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(parent, name, flags, Mode::empty(), BENEATH)
}

/// Opens `name` beneath `parent` as a mere handle (`O_PATH`): no FIFO blocks, no device is woken, no right to the file
/// itself is needed. What it is must be asked of the handle.
pub fn open_handle(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(parent, name, flags, Mode::empty(), BENEATH)
}

/// Changes the mode of exactly the file or directory that `handle` stands for. (`fchmod` refuses `O_PATH` descriptors,
/// and `fchmodat` by name would follow a link.) Needs `/proc`. The caller has made sure that it is no symbolic link.
pub fn chmod_handle(handle: BorrowedFd<'_>, mode: Mode) -> rustix::io::Result<()> {
    chmodat(CWD, handle_path(handle), mode, rustix::fs::AtFlags::empty())
}

/// Opens for reading exactly the file that `handle` stands for, without following its name once more. Needs `/proc`. The
/// caller has made sure that it is a regular file.
pub fn read_handle(handle: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(handle_path(handle), flags, Mode::empty())
}

/// Like [`open_dir`]; a directory whose mode keeps its own owner out (mode 000) is given `u=rwx` first.
pub fn open_dir_forced(parent: impl AsFd, name: impl Arg + Copy) -> rustix::io::Result<OwnedFd> {
    match open_dir(parent.as_fd(), name) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    // For `.` with no right to search even the directory itself there is nothing to look the name up in.
    let opened = open_handle(parent.as_fd(), name);
    let handle = match &opened {
        Ok(handle) => handle.as_fd(),
        Err(Errno::ACCESS) if is_dot(name) => parent.as_fd(),
        Err(e) => return Err(*e),
    };
    if !rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode).is_dir() {
        return Err(Errno::NOTDIR);
    }
    chmod_handle(handle, Mode::RWXU)?;
    open_dir(parent, name)
}

fn is_dot(name: impl Arg) -> bool {
    name.as_str().is_ok_and(|n| n == ".")
}

fn handle_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}
