//! Every unsafe line of creel. Safe functions come out; each `unsafe` block says why it is sound.
//!
//! What rustix or std offer safely is used from there; this module has the rest: `clone3`, `mount_setattr`, `close_range`,
//! identity changes of the calling thread, seccomp, signal masks and a few ioctls.

pub mod fds;
pub mod landlock;
pub mod lock;
pub mod mount;
pub mod net;
pub mod privileges;
pub mod process;
pub mod quota;
pub mod seccomp;
pub mod signal;
pub mod userns;

use std::io;

/// Turns a raw `syscall(2)` result into an `io::Result`.
fn check(ret: libc::c_long) -> io::Result<libc::c_long> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}
