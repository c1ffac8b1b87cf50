//! Open-file-description byte locks (fcntl(2), F_OFD_SETLK): released by the kernel when the last copy of the descriptor closes,
//! whatever way its holders died.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

fn set(file: BorrowedFd<'_>, offset: u32, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: flock is plain data, all zeroes is a value of it (and l_pid must be 0 for OFD locks).
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset.into();
    lock.l_len = 1;
    // SAFETY: F_OFD_SETLK reads a struct flock that lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tries to lock one byte exclusively. `Ok(false)` when another open file description holds it.
pub fn try_lock_byte(file: BorrowedFd<'_>, offset: u32) -> io::Result<bool> {
    match set(file, offset, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives a byte back before the descriptor is closed.
pub fn unlock_byte(file: BorrowedFd<'_>, offset: u32) -> io::Result<()> {
    set(file, offset, libc::F_UNLCK)
}
