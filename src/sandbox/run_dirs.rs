//! The directories of one run: `/inputs`, `/work`, `/outputs`, and what else is shown in the sandbox.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::disk::{DiskHold, inodes_for, output_capacity};
use super::mounts::{bind, owned_tmpfs};
use super::spec::{Ids, Spec};
use super::template::{StepError, open_dir, step};

/// The directories of a run, as the host sees them, and the trees that show them inside.
pub struct RunDirs {
    pub work: OwnedFd,
    pub outputs: OwnedFd,
    pub binds: Vec<(OwnedFd, String)>,
}

impl RunDirs {
    pub fn make(spec: &Spec) -> Result<RunDirs, StepError> {
        let owner = match spec.ids {
            Ids::Own { user, .. } => Some(user),
            Ids::Caller { .. } => None,
        };
        let open = |name: &str| -> Result<OwnedFd, StepError> {
            step(format!("open {name}"), open_dir(spec.run_dir.as_fd(), name))
        };
        let tree = |dir: &OwnedFd, name: &str, read_only: bool| -> Result<OwnedFd, StepError> {
            step(format!("bind /{name}"), reopened(dir.as_fd()).and_then(|d| bind(d.as_fd(), read_only)))
        };
        let mut binds = Vec::new();
        let inputs = open("inputs")?;
        binds.push((tree(&inputs, "inputs", true)?, "/inputs".to_owned()));
        let l = &spec.limits;
        let mut writable = |name: &str, size: u64, inodes: u64| -> Result<OwnedFd, StepError> {
            let (dir, tree) = match spec.disk {
                DiskHold::Tmpfs => {
                    let tree = step(format!("make the tmpfs for /{name}"), owned_tmpfs(size, inodes, owner))?;
                    let dir = step(format!("open /{name}"), open_dir(tree.as_fd(), "."))?;
                    (dir, tree)
                }
                DiskHold::Watch => {
                    let dir = open(name)?;
                    step(format!("give /{name} to the sandbox"), give(dir.as_fd(), owner))?;
                    let tree = tree(&dir, name, false)?;
                    (dir, tree)
                }
            };
            binds.push((tree, format!("/{name}")));
            Ok(dir)
        };
        let work = writable("work", l.work, l.work_files)?;
        let capacity = output_capacity(l);
        let outputs = writable("outputs", capacity, inodes_for(capacity).max(l.output_files * 2 + 64))?;
        if let Some((name, content)) = &spec.entry {
            step("write the program", write_entry(work.as_fd(), name, content, owner))?;
        }
        for shown in &spec.shown {
            let tree = step(format!("bind {}", shown.target), bind(shown.source.as_fd(), true))?;
            binds.push((tree, shown.target.clone()));
        }
        Ok(RunDirs { work, outputs, binds })
    }
}

fn give(file: BorrowedFd<'_>, owner: Option<u32>) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, fchown};
    match owner {
        Some(id) => Ok(fchown(file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?),
        None => Ok(()),
    }
}

fn write_entry(work: BorrowedFd<'_>, name: &str, content: &[u8], owner: Option<u32>) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(work, name, flags, Mode::from_raw_mode(0o644))?;
    give(file.as_fd(), owner)?;
    io::Write::write_all(&mut std::fs::File::from(file), content)
}

/// Opens again, in this mount namespace, what `fd` stands for in the caller's: trees can be cloned only from mounts of one's own namespace. That
/// it is the same file is checked, so a path that was swapped meanwhile is refused (CVE-2021-30465).
pub fn reopened(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let again = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let (a, b) = (rustix::fs::fstat(fd)?, rustix::fs::fstat(&again)?);
    if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino) {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok(again)
}
