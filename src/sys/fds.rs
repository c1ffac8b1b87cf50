//! Descriptors: closing what a process should not hold, and placing the standard ones.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::check;

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: closes descriptors by number; callers of the public functions below give up or keep what they own.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// The first descriptor that is neither a standard stream nor the socket of a slot's Python.
pub const CLOSE_FROM: u32 = 4;

/// Closes every descriptor except those in `keep`. For a process that was just forked and will not touch the others again:
/// values that own them must be forgotten or never dropped (the launcher and init end by `_exit`).
pub fn close_all_except(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|&fd| u32::try_from(fd).ok()).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut first = 0;
    for fd in keep {
        if fd > first {
            close_range(first, fd - 1, 0)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX, 0)
}

/// Marks every descriptor from 3 up close-on-exec (CVE-2024-21626: a leaked descriptor of a host directory was a way out).
pub fn cloexec_from_3() -> io::Result<()> {
    close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

/// Makes `fd` available as number `target` (a standard stream, or the two of a slot's Python), without close-on-exec.
pub fn install_std(fd: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    // SAFETY: plain integers; the number that is replaced is one that nothing here owns, as callers see to.
    let ret = unsafe {
        if fd.as_raw_fd() == target {
            libc::fcntl(target, libc::F_SETFD, 0)
        } else {
            libc::dup2(fd.as_raw_fd(), target)
        }
    };
    check(ret.into()).map(drop)
}

/// Fills holes among 0, 1, 2 with `/dev/null`, so that no later descriptor lands there.
pub fn ensure_std() -> io::Result<()> {
    loop {
        // SAFETY: a constant NUL-terminated path.
        let fd = check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) }.into())? as RawFd;
        if fd > 2 {
            // SAFETY: opened just above and owned by nobody else.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            return Ok(());
        }
    }
}

/// Takes over a descriptor that this process was executed with.
///
/// # Errors
/// EBADF when it is not open.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: it is open, and callers call this once, before anything else could own it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until every writer of the pipe `fd` is gone; what is written to it is thrown away.
pub fn read_eof(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller holds `fd` open through the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    while rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut [0u8; 64]))? > 0 {}
    Ok(())
}
