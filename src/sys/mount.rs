//! `mount_setattr(2)`, which neither nix nor rustix has.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// What to change on a mount and, with `recursive`, on all mounts below it.
#[derive(Debug, Clone, Copy, Default)]
pub struct MountAttr {
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
}

fn bits(attr: MountAttr) -> u64 {
    let mut set = 0;
    for (on, bit) in [
        (attr.read_only, libc::MOUNT_ATTR_RDONLY),
        (attr.no_suid, libc::MOUNT_ATTR_NOSUID),
        (attr.no_dev, libc::MOUNT_ATTR_NODEV),
        (attr.no_exec, libc::MOUNT_ATTR_NOEXEC),
    ] {
        if on {
            set |= bit;
        }
    }
    set
}

fn call(mount: BorrowedFd<'_>, recursive: bool, attr: &libc::mount_attr) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: an empty NUL-terminated path, and a mount_attr that lives through the call, passed with its own size.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const *attr,
            size_of::<libc::mount_attr>(),
        )
    };
    check(ret).map(drop)
}

/// Sets attributes on the mount that `mount` refers to.
///
/// # Errors
/// The kernel's, see mount_setattr(2); needs Linux 5.12.
pub fn set_attr(mount: BorrowedFd<'_>, recursive: bool, attr: MountAttr) -> io::Result<()> {
    call(
        mount,
        recursive,
        &libc::mount_attr { attr_set: bits(attr), attr_clr: 0, propagation: 0, userns_fd: 0 },
    )
}

/// Maps the owners of files on a detached mount through the user namespace `userns`.
///
/// # Errors
/// EINVAL when a file system under it has no idmapped mounts; see mount_setattr(2).
pub fn set_idmap(mount: BorrowedFd<'_>, recursive: bool, userns: BorrowedFd<'_>) -> io::Result<()> {
    call(
        mount,
        recursive,
        &libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: userns.as_raw_fd() as u64,
        },
    )
}
