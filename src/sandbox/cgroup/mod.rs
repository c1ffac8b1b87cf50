//! The limits of memory, tasks and CPU: one interface over cgroup v2 and v1.
//!
//! [`probe`] looks once at what the host has and what this process may use; nothing falls back later. Everything that creel makes lies
//! in a directory named `creel` in each hierarchy, one directory a run, named by the run id.

mod files;
mod probe;
mod v1;
mod v2;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use thiserror::Error;

pub use probe::{Found, Mounted, mounted, probe};

/// Name of our directory in each hierarchy.
pub const OURS: &str = "creel";

#[derive(Debug, Error)]
pub enum CgroupError {
    #[error("cannot {action} cgroup {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cgroup {path} is still in use after its processes were killed")]
    Busy { path: PathBuf },
}

impl CgroupError {
    /// The kernel's answer behind the error.
    pub fn errno(&self) -> i32 {
        match self {
            CgroupError::File { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            CgroupError::Busy { .. } => libc::EBUSY,
        }
    }
}

/// What a run's cgroup is told to hold. `None`: not enforced, as the caller allowed.
#[derive(Debug, Clone, Copy, Default)]
pub struct CgroupLimits {
    pub memory: Option<u64>,
    pub pids: Option<u32>,
    pub cpu_millis: Option<u32>,
}

/// What a run used, read after its end. `None`: this kernel does not count it.
#[derive(Debug, Clone, Copy, Default)]
pub struct CgroupStats {
    pub memory_peak: Option<u64>,
    pub pids_peak: Option<u64>,
    pub cpu_us: Option<u64>,
}

/// The cgroup of one run.
#[derive(Debug)]
pub enum Group {
    V2(Box<v2::Group>),
    V1(Box<v1::Group>),
    /// The host has none that we may use; every limit was allowed to stay unenforced.
    None,
}

/// What wakes the launcher when the kernel killed for memory.
#[derive(Debug, Clone, Copy)]
pub enum OomWatch<'a> {
    /// Becomes readable (v1: an eventfd on `memory.oom_control`).
    Readable(BorrowedFd<'a>),
    /// Signals an exceptional condition (v2: `memory.events`).
    Priority(BorrowedFd<'a>),
    Nothing,
}

impl Group {
    /// Makes the cgroup of run `run_id`, as far as init's birth needs it.
    pub fn create(found: &Found, run_id: &str) -> Result<Group, CgroupError> {
        match found {
            Found::V2(host) => Ok(Group::V2(Box::new(v2::Group::create(host, run_id)?))),
            Found::V1(host) => Ok(Group::V1(Box::new(v1::Group::create(host, run_id)?))),
            Found::None { .. } => Ok(Group::None),
        }
    }

    /// Writes the limits, before there is a payload.
    pub fn limit(&mut self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        match self {
            Group::V2(g) => g.limit(limits),
            Group::V1(g) => g.limit(limits),
            Group::None => Ok(()),
        }
    }

    /// Descriptors that the launcher must keep.
    pub fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Group::V2(g) => g.descriptors(),
            Group::V1(g) => g.descriptors(),
            Group::None => Vec::new(),
        }
    }

    /// Host pids of the processes under the limits; empty when no cgroup knows them.
    pub fn pids(&self) -> Vec<i32> {
        match self {
            Group::V2(g) => g.pids(),
            Group::V1(g) => g.pids(),
            Group::None => Vec::new(),
        }
    }

    /// The v2 directory that init is to be born in.
    pub fn init_birth(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Group::V2(g) => Some(g.init_birth()),
            Group::V1(g) => g.birth(),
            Group::None => None,
        }
    }

    /// The v2 directory that the payload is to be born in, when that is another one than init's.
    pub fn payload_birth(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Group::V2(g) => Some(g.payload_birth()),
            Group::V1(_) | Group::None => None,
        }
    }

    /// Puts processes that were not born in it into the group: a PID 1 and the payload beside it (v2; [`enter`] does it on v1). Takes a global
    /// lock, so it is done ahead of a run, never in one.
    ///
    /// # Errors
    /// The kernel's answer to a write to `cgroup.procs`.
    pub fn adopt(&self, init: i32, payload: i32) -> io::Result<()> {
        match self {
            Group::V2(g) => g.adopt(init, payload),
            Group::V1(_) | Group::None => Ok(()),
        }
    }

    /// Files for [`enter`], where birth alone does not put init under the limits (v1).
    pub fn entrances(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Group::V1(g) => g.entrances(),
            Group::V2(_) | Group::None => Vec::new(),
        }
    }

    pub fn oom_watch(&self) -> OomWatch<'_> {
        match self {
            Group::V2(g) => g.oom_watch(),
            Group::V1(g) => g.oom_watch(),
            Group::None => OomWatch::Nothing,
        }
    }

    /// Processes of the run that the kernel killed for memory so far.
    pub fn oom_kills(&self) -> u64 {
        match self {
            Group::V2(g) => g.oom_kills(),
            Group::V1(g) => g.oom_kills(),
            Group::None => 0,
        }
    }

    /// Kills every process in the cgroup at once where the kernel can (`cgroup.kill`, Linux 5.14). The launcher kills PID 1 of the
    /// sandbox too, which ends its whole pid namespace.
    pub fn kill(&self) {
        match self {
            Group::V2(g) => g.kill(),
            Group::V1(g) => g.kill(),
            Group::None => {}
        }
    }

    pub fn stats(&self) -> CgroupStats {
        match self {
            Group::V2(g) => g.stats(),
            Group::V1(g) => g.stats(),
            Group::None => CgroupStats::default(),
        }
    }

    /// Removes the cgroup; its processes must be dead.
    pub fn remove(self) -> Result<(), CgroupError> {
        match self {
            Group::V2(g) => g.remove(),
            Group::V1(g) => g.remove(),
            Group::None => Ok(()),
        }
    }
}

/// Puts the calling, single-threaded process, and so everything that it will fork, under the limits of the group with these
/// [`entrances`](Group::entrances). Works whatever identity the caller has by then: the kernel asks who opened the files.
///
/// A thread that moves itself through `tasks` needs no global lock, unlike any write to `cgroup.procs`, which waits for an RCU grace period of ten
/// milliseconds and more on an idle machine (kernel commit 9a3284fad42f).
pub fn enter(entrances: &[OwnedFd]) -> io::Result<()> {
    entrances.iter().try_for_each(|file| rustix::io::write(file, b"0").map(drop)).map_err(io::Error::from)
}

/// Kills what is left in the cgroup of a run whose creel and launcher are gone, and removes it. Missing: fine.
pub fn reclaim(found: &Found, run_id: &str) -> Result<(), CgroupError> {
    match found {
        Found::V2(host) => files::reclaim_dir(&host.ours().join(run_id)),
        Found::V1(host) => host.ours().try_for_each(|dir| files::reclaim_dir(&dir.join(run_id))),
        Found::None { .. } => Ok(()),
    }
}

/// [`reclaim`] for a cgroup v2 whose parent is `place`, as [`Found::place`] gave it.
pub fn reclaim_in(place: &std::path::Path, run_id: &str) -> Result<(), CgroupError> {
    files::reclaim_dir(&place.join(run_id))
}
