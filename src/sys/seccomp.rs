//! Installing a compiled system-call filter.

use std::io;

use super::check;

/// Puts `filter` on the calling thread. It must have no_new_privs set.
///
/// # Errors
/// EACCES without no_new_privs; EINVAL when the program is malformed; see seccomp(2).
pub fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel only reads `len` instructions from `filter`, which lives through the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
        .map(drop)
}

/// Whether the kernel has seccomp filters with the actions that creel's filters use.
pub fn available() -> bool {
    [libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ERRNO].iter().all(|action| {
        // SAFETY: the kernel reads one u32 from a live variable.
        unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const *action) == 0
        }
    })
}
