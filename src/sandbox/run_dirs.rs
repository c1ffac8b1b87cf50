//! The directories of one run: `/inputs`, `/work`, `/outputs`, and what else is shown in the sandbox.
//!
//! A bind mount shows its path on the host in `/proc/self/mountinfo`. So directories are shown through an overlay, whose root is just `/`: one
//! over the run's own three, one over each skill.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::disk::{DiskHold, inodes_for, output_capacity};
use super::mounts::{attach, bind, overlay, owned_tmpfs, place};
use super::spec::{Ids, Spec};
use super::template::{StepError, step};

/// What a run's directory on the host contains when the launcher gets it, parents first: the payload's files; the working directory of the
/// overlay over them; a place for the launcher's own tree.
pub const LAYOUT: [&str; 6] = ["files", "files/inputs", "files/work", "files/outputs", "overlay", "launcher"];

/// The directories of a run, as the host sees them, and the trees that show them inside.
pub struct RunDirs {
    pub work: OwnedFd,
    pub outputs: OwnedFd,
    /// Detached trees and where they belong.
    pub binds: Vec<(OwnedFd, String)>,
    /// Whether no path of the host shows inside. An overlay is not to be had on every file system (not on another overlay); then binds serve,
    /// which are as tight, and say more.
    pub paths_hidden: bool,
}

impl RunDirs {
    /// Makes them in the launcher's mount namespace. `empty`: an empty directory attached there.
    pub fn make(spec: &Spec, empty: BorrowedFd<'_>) -> Result<RunDirs, StepError> {
        let owner = match spec.ids {
            Ids::Own { user, .. } => Some(user),
            Ids::Caller { .. } => None,
        };
        let mut dirs = match spec.disk {
            DiskHold::Tmpfs => in_memory(spec, owner, empty)?,
            DiskHold::Watch => on_disk(spec, owner, empty)?,
        };
        if let Some((name, content)) = &spec.entry {
            step("write the program", write_entry(dirs.work.as_fd(), name, content, owner))?;
        }
        for shown in &spec.shown {
            let (tree, hidden) =
                step(format!("show {}", shown.target), show(shown.source.as_fd(), empty, spec.ids))?;
            dirs.binds.push((tree, shown.target.clone()));
            dirs.paths_hidden &= hidden;
        }
        Ok(dirs)
    }
}

/// `/work` and `/outputs` each a tmpfs of their size; `/inputs` from the disk.
fn in_memory(spec: &Spec, owner: Option<u32>, empty: BorrowedFd<'_>) -> Result<RunDirs, StepError> {
    let l = &spec.limits;
    let capacity = output_capacity(l);
    let output_inodes = inodes_for(capacity).max(l.output_files * 2 + 64);
    let make = |name: &str, size: u64, inodes: u64| -> Result<(OwnedFd, OwnedFd), StepError> {
        let tree = step(format!("make the tmpfs for {name}"), owned_tmpfs(size, inodes, owner))?;
        let dir = step(format!("open {name}"), open_dir(tree.as_fd(), "."))?;
        Ok((dir, tree))
    };
    let (work, work_tree) = make("/work", l.work, l.work_files)?;
    let (outputs, outputs_tree) = make("/outputs", capacity, output_inodes)?;
    let inputs = step("open inputs", open_dir(spec.run_dir.as_fd(), "files/inputs"))?;
    let shown = reopened(inputs.as_fd()).and_then(|i| show(i.as_fd(), empty, spec.ids));
    let (inputs_tree, paths_hidden) = step("show /inputs", shown)?;
    let binds = vec![
        (inputs_tree, "/inputs".to_owned()),
        (work_tree, "/work".to_owned()),
        (outputs_tree, "/outputs".to_owned()),
    ];
    Ok(RunDirs { work, outputs, binds, paths_hidden })
}

/// All three from the disk.
fn on_disk(spec: &Spec, owner: Option<u32>, empty: BorrowedFd<'_>) -> Result<RunDirs, StepError> {
    let open = |name: &str| step(format!("open {name}"), open_dir(spec.run_dir.as_fd(), name));
    let (files, work, outputs) = (open("files")?, open("files/work")?, open("files/outputs")?);
    for (name, dir) in [("/work", &work), ("/outputs", &outputs)] {
        step(format!("give {name} to the sandbox"), give(dir.as_fd(), owner))?;
    }
    let files = step("open files again", reopened(files.as_fd()))?;
    let scratch = step("open the overlay's directory", reopened(open("overlay")?.as_fd()))?;
    let over = overlay(&[empty], Some((files.as_fd(), scratch.as_fd())), spec.ids.by_root());
    let paths_hidden = over.is_ok();
    let top = match over {
        Ok(tree) => {
            step("attach the overlay of the run", attach(tree.as_fd(), files.as_fd()))?;
            tree
        }
        Err(_) => files,
    };
    let mut binds = Vec::new();
    for (name, read_only) in [("/inputs", true), ("/work", false), ("/outputs", false)] {
        let tree = place(top.as_fd(), name).and_then(|dir| bind(dir.as_fd(), read_only));
        binds.push((step(format!("bind {name}"), tree)?, name.to_owned()));
    }
    Ok(RunDirs { work, outputs, binds, paths_hidden })
}

/// A detached read-only tree that shows `source`; the second value: without its path on the host. A single file is bound.
fn show(source: BorrowedFd<'_>, empty: BorrowedFd<'_>, ids: Ids) -> io::Result<(OwnedFd, bool)> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(source)?.st_mode);
    if kind == FileType::Directory
        && let Ok(tree) = overlay(&[source, empty], None, ids.by_root())
    {
        return Ok((tree, true));
    }
    Ok((bind(source, true)?, false))
}

/// Opens a directory of the run for use.
pub fn open_dir(at: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
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
