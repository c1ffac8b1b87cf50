//! How `/work` and `/outputs` are kept from filling the host's disk.

use std::collections::HashSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::spec::Ids;
use super::tree::{Usage, UsageBound, usage};
use crate::limits::Limits;
use crate::sys::quota;

/// What bounds the disk of a run. Chosen once, before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskHold {
    /// A tmpfs of the right size: its pages are memory of the run.
    Tmpfs,
    /// A directory on the host's disk, bounded by a project quota of its file system.
    Quota,
    /// A directory on the host's disk; the launcher looks at it again and again and ends the run at the limit.
    Watch,
}

impl DiskHold {
    /// Tmpfs where the memory limit holds and allows it: with `/work` and `/outputs` full to the brim, and the other tmpfs mounts half
    /// full, something is left for the program. Then the bound is hard and the host's disk is not touched at all. Else the disk, where what is
    /// written does not count as memory: by quota where the file system of `disk` has it, else watched.
    pub fn choose(limits: &Limits, memory_enforced: bool, disk: BorrowedFd<'_>, ids: Ids) -> DiskHold {
        let files = limits.work.saturating_add(output_capacity(limits));
        let others = (limits.tmp + limits.shm + limits.run) / 2;
        if memory_enforced && files.saturating_add(others) < limits.memory {
            return DiskHold::Tmpfs;
        }
        match projects(ids) {
            Some((work, _)) if quota::available(disk, work) => DiskHold::Quota,
            _ => DiskHold::Watch,
        }
    }

    /// The word for the report.
    pub fn name(self) -> &'static str {
        match self {
            DiskHold::Tmpfs => "tmpfs",
            DiskHold::Quota => "quota",
            DiskHold::Watch => "watcher",
        }
    }
}

/// Project ids for `/work` and `/outputs` of a sandbox: its host id, which no other live one has, and the same in the next range.
pub fn projects(ids: Ids) -> Option<(u32, u32)> {
    match ids {
        Ids::Own { user, .. } => Some((user, user + (1 << 16))),
        Ids::Caller { .. } | Ids::Range { .. } | Ids::Template { .. } => None,
    }
}

/// Size of a tmpfs at `/outputs`: a little over the limit, so that a program that writes too much is found out at harvest
/// (`rejected`) rather than left with a cut file.
pub fn output_capacity(limits: &Limits) -> u64 {
    limits.output.saturating_add((limits.output / 8).max(1 << 20))
}

/// Files and directories that `/outputs` takes before the run is ended or refused an inode; what may be harvested is less.
pub fn output_entries(limits: &Limits) -> u64 {
    limits.output_files.saturating_mul(16).saturating_add(4096)
}

/// Inodes of a tmpfs of this size: each costs kernel memory of its own.
pub fn inodes_for(size: u64) -> u64 {
    (size / 8192).clamp(256, 65_536)
}

/// Looks at a run's directories; `Some` says which limit is broken. `unlinked`: bytes of files that have no name any more.
pub fn over_limit(
    work: BorrowedFd<'_>,
    outputs: BorrowedFd<'_>,
    limits: &Limits,
    unlinked: u64,
) -> Option<String> {
    let used = |dir, bytes, entries| usage(dir, &UsageBound { bytes, entries });
    let Usage { bytes, entries, .. } = used(work, limits.work, limits.work_files);
    if bytes.saturating_add(unlinked) > limits.work {
        return Some(format!("/work holds more than its {} bytes", limits.work));
    }
    if entries > limits.work_files {
        return Some(format!("/work holds more than its {} files", limits.work_files));
    }
    let output = output_capacity(limits);
    let files = output_entries(limits);
    let Usage { bytes, entries, .. } = used(outputs, output, files);
    if bytes > output {
        return Some(format!("/outputs holds more than its {} bytes", limits.output));
    }
    if entries > files {
        return Some(format!("/outputs holds far more than its {} files", limits.output_files));
    }
    None
}

/// Time that one look may spend on open and mapped files: how many there are is the program's to decide.
const SCAN: Duration = Duration::from_millis(20);

/// The search for files of `owner` that have no name any more, take disk space, and are held open or mapped: writing into a deleted file must not
/// go round the limit. It goes on from look to look where its time ran out. (A file that only lies in an unread socket message escapes it;
/// SECURITY.md.)
#[derive(Debug, Default)]
pub struct Unlinked {
    /// What this round has found, and how far it has come: processes that are through.
    seen: HashSet<(u64, u64)>,
    bytes: u64,
    through: HashSet<i32>,
    /// Whether this round had to leave out a part of a process's files.
    cut: bool,
    /// What the last whole round found.
    last: u64,
}

impl Unlinked {
    /// Looks at `pids` for a while; the bytes known so far. The second value: whether that is all there is.
    pub fn look(&mut self, pids: &[i32], owner: u32) -> (u64, bool) {
        let until = Instant::now() + SCAN;
        for &pid in pids {
            if self.through.contains(&pid) {
                continue;
            }
            // Descriptors are few (RLIMIT_NOFILE) and come first; mappings may be very many.
            for table in ["fd", "map_files"] {
                let Ok(entries) = fs::read_dir(format!("/proc/{pid}/{table}")) else { continue };
                for entry in entries.flatten() {
                    self.count(&entry.path(), owner);
                    if Instant::now() > until {
                        self.through.insert(pid);
                        self.cut = true;
                        return (self.bytes.max(self.last), false);
                    }
                }
            }
            self.through.insert(pid);
        }
        let whole = !std::mem::take(&mut self.cut);
        self.last = std::mem::take(&mut self.bytes);
        self.seen.clear();
        self.through.clear();
        (self.last, whole)
    }

    fn count(&mut self, path: &Path, owner: u32) {
        // Through the link to the file itself, without opening it.
        let Ok(stat) = rustix::fs::stat(path) else { return };
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let unlinked = regular && stat.st_nlink == 0 && stat.st_uid == owner;
        if unlinked && self.seen.insert((stat.st_dev, stat.st_ino)) && !in_memory(path) {
            self.bytes += stat.st_blocks as u64 * 512;
        }
    }
}

/// Bytes that are free on the file system of `dir`.
pub fn free_bytes(dir: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstatfs(dir).map_or(0, |s| s.f_bavail.saturating_mul(s.f_bsize as u64))
}

/// Whether a file lies on a tmpfs, whose pages the memory limit counts.
fn in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|s| s.f_type as u64 == libc::TMPFS_MAGIC as u64)
}
