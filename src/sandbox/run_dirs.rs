//! The directories of one run: `/inputs`, `/work`, `/outputs`, and what else is shown in the sandbox.
//!
//! A bind mount shows its path on the host in `/proc/self/mountinfo`. So directories are shown through an overlay, whose root is just `/`: one
//! over the run's own two where they lie on disk, one over staged inputs, one over each skill.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::disk::{DiskHold, output_capacity, output_entries, projects};
use super::mounts::{attach, bind, overlay, owned_tmpfs, place};
use super::spec::{Ids, Inputs, Spec};
use super::template::{StepError, Template, step};
use crate::sys::quota;

/// Directory of staged inputs in a run's directory.
pub const INPUTS: &str = "inputs";
/// What [`DiskHold::Watch`] needs there, parents first: the payload's files, and the working directory of the overlay over them.
pub const ON_DISK: [&str; 4] = ["files", "files/work", "files/outputs", "overlay"];

/// Directories of the run on the host's disk, opened in the launcher's mount namespace while their paths still lead to them.
pub struct Places {
    inputs: Option<OwnedFd>,
    disk: Option<OnDisk>,
}

struct OnDisk {
    files: OwnedFd,
    scratch: OwnedFd,
    work: OwnedFd,
    outputs: OwnedFd,
}

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

impl Places {
    pub fn open(spec: &Spec) -> Result<Places, StepError> {
        let open = |name: &str| {
            let dir = spec.run_dir.as_ref().ok_or(io::Error::from_raw_os_error(libc::ENOENT));
            step(format!("open {name}"), dir.and_then(|dir| open_dir(dir.as_fd(), name)))
        };
        let again = |name: &str| step(format!("open {name} again"), reopened(open(name)?.as_fd()));
        let inputs = match &spec.inputs {
            Inputs::Staged(dir) => Some(step("open the inputs again", reopened(dir.as_fd()))?),
            Inputs::Few(_) => None,
        };
        let disk = match spec.disk {
            DiskHold::Tmpfs => None,
            DiskHold::Quota | DiskHold::Watch => Some(OnDisk {
                files: again("files")?,
                scratch: again("overlay")?,
                work: open("files/work")?,
                outputs: open("files/outputs")?,
            }),
        };
        Ok(Places { inputs, disk })
    }
}

impl RunDirs {
    /// Makes them, with room for a little in the template's tmpfs.
    pub fn make(spec: &Spec, places: Places, template: &Template) -> Result<RunDirs, StepError> {
        let owner = spec.ids.owner();
        let empty = template.empty.as_fd();
        let mut dirs = match &places.disk {
            None => in_memory(spec, owner)?,
            Some(disk) => {
                if spec.disk == DiskHold::Quota {
                    step("set the quota of the run", set_quota(disk, spec))?;
                }
                on_disk(disk, owner, empty, spec)?
            }
        };
        if let Some((name, content)) = &spec.entry {
            step("write the program", write_file(dirs.work.as_fd(), name, content, 0o644, owner))?;
        }
        let inputs = match (&spec.inputs, &places.inputs) {
            (Inputs::Few(files), _) => few(template, files).map(|tree| (tree, true)),
            (Inputs::Staged(_), Some(staged)) => show(staged.as_fd(), empty, spec.ids),
            (Inputs::Staged(_), None) => Err(io::ErrorKind::NotFound.into()),
        };
        let mut add = |shown: io::Result<(OwnedFd, bool)>, target: &str| -> Result<(), StepError> {
            let (tree, hidden) = step(format!("show {target}"), shown)?;
            dirs.binds.push((tree, target.to_owned()));
            dirs.paths_hidden &= hidden;
            Ok(())
        };
        add(inputs, "/inputs")?;
        for shown in &spec.shown {
            add(show(shown.source.as_fd(), empty, spec.ids), &shown.target)?;
        }
        Ok(dirs)
    }
}

/// `/work` and `/outputs` each a tmpfs of their size.
fn in_memory(spec: &Spec, owner: Option<u32>) -> Result<RunDirs, StepError> {
    let l = &spec.limits;
    let make = |name: &str, size: u64, inodes: u64| -> Result<(OwnedFd, OwnedFd), StepError> {
        let tree = step(format!("make the tmpfs for {name}"), owned_tmpfs(size, inodes, owner))?;
        let dir = step(format!("open {name}"), open_dir(tree.as_fd(), "."))?;
        Ok((dir, tree))
    };
    let capacity = output_capacity(l);
    let (work, work_tree) = make("/work", l.work, l.work_files)?;
    let (outputs, outputs_tree) = make("/outputs", capacity, output_entries(l))?;
    let binds = vec![(work_tree, "/work".to_owned()), (outputs_tree, "/outputs".to_owned())];
    Ok(RunDirs { work, outputs, binds, paths_hidden: true })
}

fn set_quota(disk: &OnDisk, spec: &Spec) -> io::Result<()> {
    let Some((work, outputs)) = projects(spec.ids) else { return Err(io::ErrorKind::Unsupported.into()) };
    let l = &spec.limits;
    quota::limit(disk.work.as_fd(), work, l.work, l.work_files)?;
    quota::limit(disk.work.as_fd(), outputs, output_capacity(l), output_entries(l))?;
    quota::assign(disk.work.as_fd(), work)?;
    quota::assign(disk.outputs.as_fd(), outputs)
}

/// Takes the limits away that [`RunDirs::make`] set, when the run is over.
pub fn clear_quota(spec: &Spec) {
    if let (DiskHold::Quota, Some(dir), Some((work, outputs))) =
        (spec.disk, &spec.run_dir, projects(spec.ids))
    {
        // A limit that stays is overwritten by the next run with this id.
        let _ = quota::limit(dir.as_fd(), work, 0, 0);
        let _ = quota::limit(dir.as_fd(), outputs, 0, 0);
    }
}

/// Both from the disk, through one overlay.
fn on_disk(
    disk: &OnDisk,
    owner: Option<u32>,
    empty: BorrowedFd<'_>,
    spec: &Spec,
) -> Result<RunDirs, StepError> {
    for (name, dir) in [("/work", &disk.work), ("/outputs", &disk.outputs)] {
        step(format!("give {name} to the sandbox"), give(dir.as_fd(), owner))?;
    }
    // An overlay writes with the rights of who mounted it, and a quota does not bind root: under a quota the directories are bound.
    let over = match spec.disk {
        DiskHold::Quota => Err(io::ErrorKind::Unsupported.into()),
        _ => overlay(&[empty], Some((disk.files.as_fd(), disk.scratch.as_fd())), spec.ids.by_root()),
    };
    let top = match &over {
        Ok(tree) => {
            step("attach the overlay of the run", attach(tree.as_fd(), disk.files.as_fd()))?;
            tree
        }
        Err(_) => &disk.files,
    };
    let mut binds = Vec::new();
    for name in ["/work", "/outputs"] {
        let tree = place(top.as_fd(), name).and_then(|dir| bind(dir.as_fd(), false));
        binds.push((step(format!("bind {name}"), tree)?, name.to_owned()));
    }
    let copy = |fd: &OwnedFd| step("duplicate a descriptor", fd.try_clone());
    Ok(RunDirs { work: copy(&disk.work)?, outputs: copy(&disk.outputs)?, binds, paths_hidden: over.is_ok() })
}

/// A few small files, kept in the template's tmpfs: a run without inputs touches no disk.
fn few(template: &Template, files: &[(String, Vec<u8>)]) -> io::Result<OwnedFd> {
    for (name, content) in files {
        write_file(template.few.as_fd(), name, content, 0o444, None)?;
    }
    bind(template.few.as_fd(), true)
}

/// A detached read-only tree that shows `source`; the second value: without its path on the host. A single file is bound.
pub fn show(source: BorrowedFd<'_>, empty: BorrowedFd<'_>, ids: Ids) -> io::Result<(OwnedFd, bool)> {
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

pub fn give(file: BorrowedFd<'_>, owner: Option<u32>) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, fchown};
    match owner {
        Some(id) => Ok(fchown(file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?),
        None => Ok(()),
    }
}

pub fn write_file(
    dir: BorrowedFd<'_>,
    name: &str,
    content: &[u8],
    mode: u32,
    owner: Option<u32>,
) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))?;
    give(file.as_fd(), owner)?;
    io::Write::write_all(&mut std::fs::File::from(file), content)
}

/// Opens again, in this mount namespace, what `fd` stands for in the caller's: trees can be cloned only from mounts of one's own namespace.
pub fn reopened(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    same(fd, open_again(rustix::fs::CWD, path_of(fd)?.as_bytes())?)
}

/// [`reopened`] for what may lie below `place`, a directory of this namespace that something was mounted over since.
pub fn reopened_below(fd: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (path, base) = (path_of(fd)?, path_of(place)?);
    let below = path.as_bytes().strip_prefix(base.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    match below {
        Some(below) => same(fd, open_again(place, below)?),
        None => reopened(fd),
    }
}

fn path_of(fd: BorrowedFd<'_>) -> io::Result<std::ffi::CString> {
    Ok(rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?)
}

fn open_again(at: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat2(at, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// That it is the same file is checked, so a path that was swapped meanwhile is refused (CVE-2021-30465).
fn same(fd: BorrowedFd<'_>, again: OwnedFd) -> io::Result<OwnedFd> {
    let (a, b) = (rustix::fs::fstat(fd)?, rustix::fs::fstat(&again)?);
    if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino) {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok(again)
}
