//! Open-file-description byte locks (fcntl(2), F_OFD_SETLK): released by the kernel when the last copy of the descriptor closes,
//! whatever way its holders died.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Tries to lock one byte exclusively. `Ok(false)` when somebody else holds it.
pub fn try_lock_byte(file: BorrowedFd<'_>, offset: u32) -> io::Result<bool> {
    // SAFETY: flock is plain data, all zeroes is a value of it (and l_pid must be 0 for OFD locks).
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset.into();
    lock.l_len = 1;
    // SAFETY: F_OFD_SETLK reads a struct flock that lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let err = io::Error::last_os_error();
    match err.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(err),
    }
}
