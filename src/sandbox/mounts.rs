//! Small pieces on top of the mount API (Linux 5.2): detached trees are made, changed and only then attached, so that no path of an image is
//! ever followed to a place outside of it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::sys::mount::{MountAttr, set_attr};

/// A new detached file system of type `kind` with these options; one without a value is a flag.
pub fn new_fs(kind: &str, options: &[(&str, Option<&str>)], attrs: MountAttrFlags) -> io::Result<OwnedFd> {
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => fsconfig_set_string(fs.as_fd(), *key, *value)?,
            None => fsconfig_set_flag(fs.as_fd(), *key)?,
        }
    }
    fsconfig_create(fs.as_fd())?;
    Ok(fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attrs)?)
}

/// A new detached tmpfs, nosuid and nodev, bounded in bytes and inodes; its root belongs to whom the caller is now.
pub fn tmpfs(size: u64, inodes: u64, mode: &str) -> io::Result<OwnedFd> {
    let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let (size, inodes) = (size.to_string(), inodes.to_string());
    new_fs("tmpfs", &[("size", Some(&size)), ("nr_inodes", Some(&inodes)), ("mode", Some(mode))], attrs)
}

/// A [`tmpfs`] for `/work` or `/outputs`; its root is given to `owner` on the host.
pub fn owned_tmpfs(size: u64, inodes: u64, owner: Option<u32>) -> io::Result<OwnedFd> {
    use rustix::fs::{AtFlags, Gid, Uid, chownat};
    let tree = tmpfs(size, inodes, "0755")?;
    if let Some(id) = owner {
        chownat(&tree, "", Some(Uid::from_raw(id)), Some(Gid::from_raw(id)), AtFlags::EMPTY_PATH)?;
    }
    Ok(tree)
}

/// A detached overlay of directories attached in this namespace: `lower`, topmost first, and perhaps an upper directory with its working
/// directory; read-only without one. `by_root`: not by the root of a user namespace.
///
/// Attributes that the directories may carry for overlayfs are not to be believed: no redirect is followed, no metadata-only copy either. In a user
/// namespace the kernel reads `user.overlay.*` only, for which both are off by themselves.
pub fn overlay(
    lower: &[BorrowedFd<'_>],
    upper: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
    by_root: bool,
) -> io::Result<OwnedFd> {
    // By descriptor: these strings are shown in mountinfo, and no path of the host belongs there.
    let path = |fd: &BorrowedFd<'_>| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let lower = lower.iter().map(path).collect::<Vec<_>>().join(":");
    let upper = upper.map(|(upper, work)| (path(&upper), path(&work)));
    let mut options = vec![("source", Some("creel")), ("lowerdir", Some(lower.as_str()))];
    let mut attrs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    match &upper {
        // Volatile: the end of a run must not wait for the disk.
        Some((upper, work)) => {
            options.extend([("upperdir", Some(upper.as_str())), ("workdir", Some(work)), ("volatile", None)]);
        }
        None => attrs |= MountAttrFlags::MOUNT_ATTR_RDONLY,
    }
    match by_root {
        true => options.extend([("redirect_dir", Some("nofollow")), ("metacopy", Some("off"))]),
        false => options.push(("userxattr", None)),
    }
    new_fs("overlay", &options, attrs)
}

/// A detached copy of the mount that `source` lies on, rooted at `source` itself; with all mounts below it when `recursive`.
pub fn clone_tree(source: BorrowedFd<'_>, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(source, "", flags)?)
}

/// A detached copy that is nosuid and nodev and, when asked, read-only, with everything mounted below it (CVE class: a read-only bind
/// that left its submounts writable, nsjail #125, docker/for-linux#788).
pub fn bind(source: BorrowedFd<'_>, read_only: bool) -> io::Result<OwnedFd> {
    let tree = clone_tree(source, true)?;
    set_attr(tree.as_fd(), true, MountAttr { read_only, no_suid: true, no_dev: true, no_exec: false })?;
    Ok(tree)
}

/// Opens `path` (absolute, as seen inside) beneath `root` as a place to mount on. No symlink is followed at all: mount points are entries of
/// our own layer (CVE-2019-19921, CVE-2021-30465, CVE-2023-27561).
pub fn place(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let path = path.trim_start_matches('/');
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { "." } else { path };
    Ok(rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Attaches a detached tree at a place that was opened with [`place`].
pub fn attach(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", place, "", flags)?)
}

/// [`attach`] at `path` beneath `root`.
pub fn attach_at(tree: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    attach(tree, place(root, path)?.as_fd())
}

/// Makes `root` the root of the calling process's mount namespace and lets go of the old one, with everything mounted in it.
pub fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    // The same directory twice: the old root ends up on top of the new one and is detached from there (pivot_root(2)).
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}
