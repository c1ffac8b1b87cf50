//! Everything the launcher needs to make one sandbox.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cgroup::{CgroupLimits, Found};
use super::disk::DiskHold;
use super::role::Role;
use super::root::RootPlan;
use crate::limits::Limits;
use crate::sys::userns::IdMap;

/// Uid and gid of the payload inside, whatever user the image names.
pub const INSIDE_ID: u32 = 10001;
/// Host name inside.
pub const HOSTNAME: &str = "creel";
/// Open files a process of the payload may have.
pub const NOFILE: u64 = 256;

/// One sandbox.
#[derive(Debug)]
pub struct Spec {
    pub run_id: String,
    pub role: Role,
    pub root: RootPlan,
    pub command: Command,
    pub limits: Limits,
    pub cgroup: Found,
    pub cgroup_limits: CgroupLimits,
    /// The kernel's landlock ABI, at least 1.
    pub landlock_abi: i32,
    pub ids: Ids,
    pub disk: DiskHold,
    pub inputs: Inputs,
    /// A sandbox that is made ahead: its program is a Python that waits for a [`Delivery`](super::outcome::Delivery). `command` is then that of
    /// the waiting Python (`python3 /work/entry.py`).
    pub slot: Option<Slot>,
    /// The run's directory on the host, with those of `run_dirs::ON_DISK` in it, when `disk` needs it.
    pub run_dir: Option<OwnedFd>,
    /// Some directory of the host for the launcher's own tree to be mounted on, in its own namespace only.
    pub place: OwnedFd,
    /// A file to be written into `/work` before the start: name, content.
    pub entry: Option<(String, Vec<u8>)>,
    /// Directories shown read-only at absolute paths that exist in the root (`/skill/<id>`, a bundle's own binds).
    pub shown: Vec<Shown>,
    /// More tmpfs mounts, at paths that exist in the root.
    pub scratch: Vec<Scratch>,
    /// Standard input of the payload; without one it reads end of file at once.
    pub stdin: Option<OwnedFd>,
    /// Standard output and error.
    pub output: Vec<OwnedFd>,
    /// Descriptors that only need to stay open as long as the sandbox may live: locks.
    pub held: Vec<OwnedFd>,
}

#[derive(Debug)]
pub struct Command {
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    /// `argv[0]` is looked up here when it has no `/`.
    pub search: Vec<String>,
    pub nofile: u64,
}

/// What is under `/inputs`.
#[derive(Debug)]
pub enum Inputs {
    /// What the caller puts into this directory before it says [`Order::Go`](super::outcome::Order).
    Staged(OwnedFd),
    /// These small files: name, content.
    Few(Vec<(String, Vec<u8>)>),
}

/// Who the payload is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Made by root: 10001 inside is `user` outside, an id that no other live sandbox has; 0 inside is `root` outside, an id that no
    /// process ever runs as and that image files are mapped to.
    Own { user: u32, root: u32 },
    /// Made by an ordinary user: 10001 inside is that user.
    Caller { uid: u32, gid: u32 },
    /// Made by root, for a build: 0 and the [`RANGE`] ids from it on are as many outside, from `first` on, that no process ever runs as
    /// but the steps of this build.
    Range { first: u32 },
    /// Made by root, for a zygote: 0 and the 65,535 ids after it are as many outside, from `root` on, so that slots forked from it can have any
    /// of them; it runs as `user` itself, an id outside that no other live sandbox has.
    Template { user: u32, root: u32 },
}

/// How many ids a build has: those that Debian packages may give files to.
pub const RANGE: u32 = 1 << 16;

impl Ids {
    /// Whether the sandbox is made with root's rights on the host.
    pub fn by_root(self) -> bool {
        !matches!(self, Ids::Caller { .. })
    }

    /// The program's uid on the host.
    pub fn user(self) -> u32 {
        match self {
            Ids::Own { user, .. } => user,
            Ids::Caller { uid, .. } => uid,
            Ids::Range { first } => first,
            Ids::Template { user, .. } => user,
        }
    }

    /// Whom files for the program are given to on the host; an ordinary user's are his already.
    pub fn owner(self) -> Option<u32> {
        self.by_root().then_some(self.user())
    }

    /// The uid and gid maps of the sandbox's user namespace.
    pub fn maps(self) -> (Vec<IdMap>, Vec<IdMap>) {
        let one = |inside, outside| IdMap { inside, outside, count: 1 };
        match self {
            Ids::Own { user, root } => {
                let map = vec![one(0, root), one(INSIDE_ID, user)];
                (map.clone(), map)
            }
            Ids::Caller { uid, gid } => (vec![one(INSIDE_ID, uid)], vec![one(INSIDE_ID, gid)]),
            Ids::Range { .. } | Ids::Template { .. } => (vec![self.layers()], vec![self.layers()]),
        }
    }

    /// How the owners of an image's files, as they lie on the host's disk, are shown inside, made by root.
    pub fn layers(self) -> IdMap {
        match self {
            Ids::Own { root, .. } => IdMap { inside: 0, outside: root, count: 1 },
            Ids::Caller { uid, .. } => IdMap { inside: 0, outside: uid, count: 1 },
            Ids::Range { first } | Ids::Template { root: first, .. } => {
                IdMap { inside: 0, outside: first, count: RANGE }
            }
        }
    }
}

/// What the waiting Python of a slot is.
#[derive(Debug)]
pub enum Slot {
    /// A Python of its own, which imports these modules before it waits.
    Started { preload: Vec<String> },
    /// A fork of the zygote at the other end of this socket.
    Forked { zygote: OwnedFd },
}

#[derive(Debug)]
pub struct Shown {
    pub source: OwnedFd,
    pub target: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scratch {
    pub target: String,
    pub size: u64,
}

/// Time that a killed sandbox may take to be gone before the launcher gives up on it and says so.
pub const KILL_WITHIN: Duration = Duration::from_secs(10);
