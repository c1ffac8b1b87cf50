//! What every sandbox of a launcher is cloned from: a small tree in the launcher's own mount namespace.
//!
//! ```text
//! tmpfs, a few pages
//! ├── img      creel's own layer: mount points, /etc files; for an image without layers also its root, with the binds in it
//! ├── layer/N  that layer again and an image's layers, their owner root mapped to the reserved id
//! ├── root     the root: img with parts of the host bound into it, or the overlay of the layers
//! ├── dev      null, zero, full, random, urandom, tty and the usual links
//! ├── none     empty
//! └── inputs   the manifest of a run without inputs
//! ```
//!
//! It stays attached, since only attached trees can be cloned before Linux 6.15. It is mounted over a directory of creel's, in the launcher's namespace
//! only. The host's mounts stay in that namespace, unlike in the sandboxes: to detach them costs an RCU grace
//! period, more than to have them copied once more at a sandbox's birth; and a full `/proc` must be visible for a sandbox to mount its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};

use super::landlock::DEVICES;
use super::mounts::{self, attach, attach_at, bind, clone_tree, new_fs, place};
use super::root::{EMPTY_DIR, EntryKind, RootPlan};
use super::spec::Ids;
use crate::sys::mount::{MountAttr, set_attr, set_idmap};
use crate::sys::userns::with_maps;

/// Device numbers (major, minor) of `landlock::DEVICES`, from Documentation/admin-guide/devices.txt.
pub(super) const NUMBERS: [(u32, u32); 6] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)];

/// A step that failed and the kernel's answer.
#[derive(Debug, Clone)]
pub struct StepError {
    pub step: String,
    pub errno: i32,
}

/// Names the step for an error.
pub fn step<T>(name: impl Into<String>, result: Result<T, impl Into<io::Error>>) -> Result<T, StepError> {
    result.map_err(|e| {
        let e: io::Error = e.into();
        StepError { step: name.into(), errno: e.raw_os_error().unwrap_or(libc::EIO) }
    })
}

/// Trees to clone for each run.
pub struct Template {
    /// An empty directory.
    pub empty: OwnedFd,
    /// A directory for a few small inputs.
    pub few: OwnedFd,
    root: OwnedFd,
    dev: OwnedFd,
    /// Whether the layers already show root's files as root's.
    layered: bool,
}

impl Template {
    /// Builds the tree in the mount namespace that the caller has just made.
    ///
    /// `at`: a directory of that namespace to mount it on. (Over `/` it would not do: the kernel then takes the process for chrooted
    /// and refuses it a user namespace.)
    pub fn build(plan: &RootPlan, ids: Ids, at: BorrowedFd<'_>) -> Result<Template, StepError> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        step("make mounts private", mount_change("/", private))?;
        let devices = match ids {
            Ids::Own { .. } | Ids::Range { .. } | Ids::Template { .. } => Vec::new(),
            Ids::Caller { .. } => step("clone the device nodes", host_devices())?,
        };
        let copy = |name: String, source: &OwnedFd| step(format!("bind {name}"), bind(source.as_fd(), true));
        let binds =
            plan.binds.iter().map(|b| copy(b.target.clone(), &b.source)).collect::<Result<Vec<_>, _>>()?;
        let layers = plan.layers.iter().enumerate();
        let layers = layers.map(|(n, l)| copy(format!("layer {n}"), l)).collect::<Result<Vec<_>, _>>()?;
        let base = step("make the launcher's tmpfs", tmpfs_with_devices())?;
        for dir in ["img", "root", "dev", "layer", "none", "inputs"] {
            step(format!("make {dir}"), make_dir(base.as_fd(), dir))?;
        }
        step("attach the launcher's tmpfs", attach(base.as_fd(), at))?;

        let img = step("open img", place(base.as_fd(), "/img"))?;
        fill(img.as_fd(), plan)?;
        let dev = make_dev(base.as_fd(), &devices)?;
        let dev = step("clone dev", clone_tree(dev.as_fd(), true))?;
        let attrs = MountAttr { read_only: true, no_suid: true, no_dev: false, no_exec: true };
        step("make dev read-only", set_attr(dev.as_fd(), false, attrs))?;
        // Attached, since a detached tree can't be cloned before Linux 6.15.
        step("attach the read-only dev", attach_at(dev.as_fd(), base.as_fd(), "/dev"))?;

        let layered = !layers.is_empty();
        let root =
            if layered { overlay(base.as_fd(), img, &layers, plan, ids)? } else { plain(base.as_fd(), img)? };
        show_host(root.as_fd(), plan, &binds)?;
        let read_only = plan.upper.is_none();
        let attrs = MountAttr { read_only, no_suid: true, no_dev: true, no_exec: false };
        step("restrict the root", set_attr(root.as_fd(), true, attrs))?;
        let empty = step("open none", place(base.as_fd(), "/none"))?;
        let few = step("open inputs", place(base.as_fd(), "/inputs"))?;
        Ok(Template { empty, few, root, dev, layered })
    }

    /// A detached copy of the image's root for one run. With `userns`, the run's user namespace, files of host root show as 0:0 where
    /// the file systems have idmapped mounts, else as nobody's; this changes what is shown, never who may do what.
    pub fn clone_root(&self, userns: Option<BorrowedFd<'_>>) -> Result<OwnedFd, StepError> {
        let root = step("clone the root", clone_tree(self.root.as_fd(), true))?;
        if let Some(userns) = userns.filter(|_| !self.layered) {
            let _ = set_idmap(root.as_fd(), true, userns);
        }
        Ok(root)
    }

    /// A detached copy of the ready `/dev`.
    pub fn clone_dev(&self) -> Result<OwnedFd, StepError> {
        step("clone dev", clone_tree(self.dev.as_fd(), true))
    }
}

/// The root of an image without layers: `img` itself, with parts of the host bound into it.
fn plain(base: BorrowedFd<'_>, img: OwnedFd) -> Result<OwnedFd, StepError> {
    let tree = step("clone img", clone_tree(img.as_fd(), false))?;
    step("attach the root", attach_at(tree.as_fd(), base, "/root"))?;
    Ok(tree)
}

/// The root of an image with layers: an overlay, our own layer on top, so that our directories win over whatever a hostile image has at the
/// same path.
fn overlay(
    base: BorrowedFd<'_>,
    img: OwnedFd,
    layers: &[OwnedFd],
    plan: &RootPlan,
    ids: Ids,
) -> Result<OwnedFd, StepError> {
    let owner = match ids.by_root() {
        true => {
            let map = [ids.layers()];
            Some(step("make the user namespace of the layers", with_maps(&map, &map))?)
        }
        false => None,
    };
    let ours = step("clone img", clone_tree(img.as_fd(), false))?;
    let all: Vec<&OwnedFd> = [&ours].into_iter().chain(layers).collect();
    for (n, tree) in all.iter().enumerate() {
        let path = format!("/layer/{n}");
        step(format!("make {path}"), make_dir(base, &path[1..]))?;
        if let Some(userns) = &owner {
            // Without idmapped mounts on this file system the layer's files show as nobody's, which changes no right.
            let _ = set_idmap(tree.as_fd(), false, userns.as_fd());
        }
        step(format!("attach {path}"), attach_at(tree.as_fd(), base, &path))?;
    }
    let lower: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
    let upper = plan.upper.as_ref().map(|u| (u.files.as_fd(), u.scratch.as_fd()));
    let tree = step("mount the overlay of the image", mounts::overlay(&lower, upper, ids.by_root()))?;
    step("attach the root", attach_at(tree.as_fd(), base, "/root"))?;
    Ok(tree)
}

/// Attaches the copied parts of the host in the root `tree`, and hides what must not be seen of them.
fn show_host(tree: BorrowedFd<'_>, plan: &RootPlan, host: &[OwnedFd]) -> Result<(), StepError> {
    for (b, copy) in plan.binds.iter().zip(host) {
        step(format!("attach {}", b.target), attach_at(copy.as_fd(), tree, &b.target))?;
    }
    for path in &plan.masks {
        let empty = place(tree, EMPTY_DIR).and_then(|e| clone_tree(e.as_fd(), false));
        step(format!("hide {path}"), empty.and_then(|e| attach_at(e.as_fd(), tree, path)))?;
    }
    Ok(())
}

/// Puts creel's own entries into `img`.
fn fill(img: BorrowedFd<'_>, plan: &RootPlan) -> Result<(), StepError> {
    for entry in &plan.entries {
        let path = entry.path.trim_start_matches('/');
        let made = match &entry.kind {
            EntryKind::Dir => make_dir(img, path),
            EntryKind::Symlink(target) => {
                rustix::fs::symlinkat(target.as_str(), img, path).map_err(io::Error::from)
            }
            EntryKind::File(content) => make_file(img, path, content),
        };
        step(format!("make {} in the root", entry.path), made)?;
    }
    Ok(())
}

fn make_dir(at: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(at, path, Mode::from_raw_mode(0o755)) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

fn make_file(at: BorrowedFd<'_>, path: &str, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, path, flags, Mode::from_raw_mode(0o644))?;
    io::Write::write_all(&mut File::from(file), content)
}

fn open_path(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The launcher's tmpfs has device nodes in it; only the copy that becomes a sandbox's `/dev` is mounted without nodev.
fn tmpfs_with_devices() -> io::Result<OwnedFd> {
    let options = [("size", Some("16m")), ("nr_inodes", Some("8192")), ("mode", Some("0755"))];
    new_fs("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID)
}

/// An ordinary user can't make device nodes: the host's own are bound, after a look at what they are (CVE-2025-31133: a `/dev/null` that
/// was something else).
pub(super) fn host_devices() -> io::Result<Vec<OwnedFd>> {
    DEVICES
        .iter()
        .zip(NUMBERS)
        .map(|(name, (major, minor))| {
            let node = open_path(Path::new("/dev").join(name))?;
            let stat = rustix::fs::fstat(&node)?;
            let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
                && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (major, minor);
            if !is_it {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
            clone_tree(node.as_fd(), false)
        })
        .collect()
}

/// Fills the launcher's `/dev`: new nodes as root, binds of the host's else.
fn make_dev(base: BorrowedFd<'_>, host: &[OwnedFd]) -> Result<OwnedFd, StepError> {
    let dev = step("open dev", place(base, "/dev"))?;
    let dev = if host.is_empty() {
        dev
    } else {
        // A mount of its own, so that the binds come along when it is cloned.
        let own = step("make dev a mount", clone_tree(dev.as_fd(), false))?;
        step("attach dev", attach(own.as_fd(), dev.as_fd()))?;
        own
    };
    for (i, (name, (major, minor))) in DEVICES.iter().zip(NUMBERS).enumerate() {
        if let Some(node) = host.get(i) {
            step(format!("make dev/{name}"), make_file(dev.as_fd(), name, b""))?;
            step(format!("bind dev/{name}"), attach_at(node.as_fd(), dev.as_fd(), name))?;
        } else {
            let number = rustix::fs::makedev(major, minor);
            let mode = Mode::from_raw_mode(0o666);
            let made = rustix::fs::mknodat(dev.as_fd(), *name, FileType::CharacterDevice, mode, number)
                .and_then(|()| rustix::fs::chmodat(dev.as_fd(), *name, mode, rustix::fs::AtFlags::empty()));
            step(format!("make dev/{name}"), made)?;
        }
    }
    step("make dev/shm", make_dir(dev.as_fd(), "shm"))?;
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        step(format!("make dev/{name}"), rustix::fs::symlinkat(target, dev.as_fd(), name))?;
    }
    Ok(dev)
}
