//! What the root file system of a sandbox is made of: a plan, filled in by `image`, carried out by the launcher.

use std::os::fd::OwnedFd;

/// The parts of one image's read-only root.
///
/// The launcher puts the `entries` into a small tmpfs of its own. Without `layers` that tmpfs, with the `binds` mounted in
/// it, is the root. With `layers` it is the topmost lower layer of an overlay over them: a directory of ours
/// hides a symlink of the same name in a hostile image (CVE-2026-41579, CVE-2019-16884 and their kin), because overlayfs merges
/// only directories.
#[derive(Debug, Default)]
pub struct RootPlan {
    /// What creel itself puts into the root: mount points, `/etc` files, the `python` link. Parents come before children.
    pub entries: Vec<Entry>,
    /// Parts of the host that are shown, read-only and recursively so.
    pub binds: Vec<RootBind>,
    /// Directories inside the `binds` that must not be seen (`/usr/local/etc`). The launcher mounts the plan's own empty
    /// directory, [`EMPTY_DIR`], over each of them after the binds. Each was a real directory when the plan was made.
    pub masks: Vec<String>,
    /// Root directories of the image's layers, topmost first (descriptors opened with `O_PATH|O_DIRECTORY`).
    pub layers: Vec<OwnedFd>,
    /// Where changes of the root go, on top of the `layers`; without it the root is read-only.
    pub upper: Option<Upper>,
}

/// Two directories of one file system, for an overlay that can be written to.
#[derive(Debug)]
pub struct Upper {
    /// What is written ends up here, owned by host ids of the sandbox.
    pub files: OwnedFd,
    /// For overlayfs itself (`workdir`): empty.
    pub scratch: OwnedFd,
}

/// The source for `masks`: among the `entries` of every plan that has any, and nothing is ever put into it.
pub const EMPTY_DIR: &str = "/var/empty";

/// One entry of creel's own layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Absolute path inside the root, `/etc/passwd`; never with `..`.
    pub path: String,
    pub kind: EntryKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum EntryKind {
    /// A directory, mode 0755.
    Dir,
    /// A regular file, mode 0644.
    File(Vec<u8>),
    /// A symlink with this target.
    Symlink(String),
}

/// A file or directory of the host that appears read-only inside the root.
#[derive(Debug)]
pub struct RootBind {
    /// Opened with `O_PATH` by who planned it; the launcher clones the mount from this descriptor.
    pub source: OwnedFd,
    /// Absolute path inside the root; an `Entry` of the same path (directory or file) is the mount point.
    pub target: String,
}
