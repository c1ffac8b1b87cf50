//! Parts of `/proc` that no payload needs and that tell about, or act on, the host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};

use super::mounts::{attach, clone_tree, place};
use super::template::{StepError, step};
use crate::sys::mount::{MountAttr, set_attr};

/// Covered with an empty, unreadable-as-data `/dev/null` of ours (the OCI default list, and what else leaks).
const HIDDEN: [&str; 13] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kallsyms",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/interrupts",
    "/proc/config.gz",
    "/proc/sysrq-trigger",
    // Other runs' locks, with their host ids; what the host booted with, and loads.
    "/proc/locks",
    "/proc/cmdline",
    "/proc/modules",
];

/// Shown read-only, whatever their file modes say (CVE-2022-0811).
const READ_ONLY: [&str; 4] = ["/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs"];

/// Puts the masks in place; what a kernel doesn't have needs none. `dev` is the sandbox's own `/dev` (CVE-2025-31133: a mask source must not
/// be the image's).
pub fn apply(dev: BorrowedFd<'_>) -> Result<(), StepError> {
    let root = step("open /", open("/"))?;
    let null = step("open the mask", place(dev, "null"))?;
    for path in HIDDEN {
        if let Some(at) = existing(root.as_fd(), path)? {
            let mask = clone_tree(null.as_fd(), false).and_then(|m| attach(m.as_fd(), at.as_fd()));
            step(format!("mask {path}"), mask)?;
        }
    }
    for path in READ_ONLY {
        if let Some(at) = existing(root.as_fd(), path)? {
            let attrs = MountAttr { read_only: true, no_suid: true, no_dev: true, no_exec: true };
            let bind = clone_tree(at.as_fd(), false).and_then(|tree| {
                set_attr(tree.as_fd(), false, attrs).and_then(|()| attach(tree.as_fd(), at.as_fd()))
            });
            step(format!("make {path} read-only"), bind)?;
        }
    }
    Ok(())
}

fn open(path: &str) -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn existing(root: BorrowedFd<'_>, path: &str) -> Result<Option<std::os::fd::OwnedFd>, StepError> {
    match place(root, path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => step(format!("look at {path}"), other).map(Some),
    }
}
