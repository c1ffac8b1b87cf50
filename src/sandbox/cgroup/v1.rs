//! cgroup v1 and hybrid hosts.
//!
//! A process can't be born in a v1 cgroup (`CLONE_INTO_CGROUP` answers EBADF), so init enters before it does
//! anything else; the payload, forked later, inherits. On a hybrid host the controller-less v2 mount serves as well: init is born in a directory there, whose
//! `cpu.stat` counts the whole sandbox and whose `cgroup.kill` ends it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;

use super::files::{self, fail, keyed, make_dir, number_at, open_dir, read_at, remove_at, write_at};
use super::{CgroupError, CgroupLimits, CgroupStats, OURS, OomWatch};
use crate::limits::LimitKind;

/// Length of a CPU quota period, microseconds (the kernel's default).
pub(super) const PERIOD_US: u64 = 100_000;

/// Mount points of the hierarchies that matter.
#[derive(Debug, Clone)]
pub struct Host {
    pub memory: Option<PathBuf>,
    pub pids: Option<PathBuf>,
    pub cpu: Option<PathBuf>,
    /// A v2 mount without these controllers.
    pub unified: Option<PathBuf>,
    /// The hierarchy that counts CPU time, where `cpu` does not.
    pub accounting: Option<PathBuf>,
}

impl Host {
    pub fn missing(&self, kind: LimitKind) -> Option<String> {
        let point = match kind {
            LimitKind::Memory => &self.memory,
            LimitKind::Pids => &self.pids,
            LimitKind::Cpu => &self.cpu,
        };
        point.is_none().then(|| format!("the {} controller of cgroup v1 is not mounted", kind.name()))
    }

    /// Our directory in each hierarchy.
    pub fn ours(&self) -> impl Iterator<Item = PathBuf> {
        let all = [&self.memory, &self.pids, &self.cpu, &self.unified, &self.accounting];
        all.into_iter().flatten().map(|p| p.join(OURS)).collect::<Vec<_>>().into_iter()
    }
}

/// One directory of the run.
#[derive(Debug)]
struct Dir {
    parent: OwnedFd,
    dir: OwnedFd,
    path: PathBuf,
}

#[derive(Debug)]
pub struct Group {
    name: String,
    host: Host,
    memory: Option<Dir>,
    pids: Option<Dir>,
    cpu: Option<Dir>,
    unified: Option<Dir>,
    accounting: Option<Dir>,
    oom_event: Option<OwnedFd>,
    /// The `tasks` files of the limited hierarchies, for init to enter by.
    tasks: Vec<File>,
}

impl Group {
    pub fn create(host: &Host, run_id: &str) -> Result<Group, CgroupError> {
        let unified = host.unified.as_ref().map(|point| Dir::make(point, run_id)).transpose()?;
        Ok(Group {
            name: run_id.to_owned(),
            host: host.clone(),
            memory: None,
            pids: None,
            cpu: None,
            unified,
            accounting: None,
            oom_event: None,
            tasks: Vec::new(),
        })
    }

    pub fn limit(&mut self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        let make = |point: &Option<PathBuf>, wanted: bool| {
            point.as_ref().filter(|_| wanted).map(|point| Dir::make(point, &self.name)).transpose()
        };
        let (memory, pids, cpu) = (&self.host.memory, &self.host.pids, &self.host.cpu);
        // Each is kept at once, so that what was made is removed whatever fails next.
        self.memory = make(memory, limits.memory.is_some())?;
        self.pids = make(pids, limits.pids.is_some())?;
        self.cpu = make(cpu, limits.cpu_millis.is_some())?;
        // What is not born in the unified hierarchy (a zygote's fork) is counted here.
        self.accounting = make(&self.host.accounting, self.unified.is_none())?;
        for d in [&self.memory, &self.pids, &self.cpu, &self.accounting].into_iter().flatten() {
            let tasks =
                files::open_at(&d.dir, "tasks", OFlags::WRONLY).map_err(fail("open tasks of", &d.path))?;
            self.tasks.push(tasks);
        }
        if let (Some(d), Some(bytes)) = (&self.memory, limits.memory) {
            d.write("memory.limit_in_bytes", &bytes.to_string())?;
            // Memory plus swap at the same value: no swap. Without swap accounting, never swapping comes closest, and the kernel
            // then refuses reclaim to swap for this cgroup altogether.
            match write_at(&d.dir, "memory.memsw.limit_in_bytes", &bytes.to_string()) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => d.write("memory.swappiness", "0")?,
                other => other.map_err(fail("limit", &d.path))?,
            }
            self.oom_event = Some(d.oom_eventfd().map_err(fail("watch", &d.path))?);
        }
        if let (Some(d), Some(tasks)) = (&self.pids, limits.pids) {
            // init is in the same cgroup: one more.
            d.write("pids.max", &(u64::from(tasks) + 1).to_string())?;
        }
        if let (Some(d), Some(millis)) = (&self.cpu, limits.cpu_millis) {
            let quota = u64::from(millis) * PERIOD_US / 1000;
            d.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            d.write("cpu.cfs_quota_us", &quota.max(1000).to_string())?;
        }
        Ok(())
    }

    pub fn descriptors(&self) -> Vec<RawFd> {
        let dirs = [&self.memory, &self.pids, &self.cpu, &self.unified, &self.accounting];
        let dirs = dirs.into_iter().flatten().flat_map(|d| [d.parent.as_raw_fd(), d.dir.as_raw_fd()]);
        let files =
            self.oom_event.iter().map(AsRawFd::as_raw_fd).chain(self.tasks.iter().map(AsRawFd::as_raw_fd));
        dirs.chain(files).collect()
    }

    pub fn pids(&self) -> Vec<i32> {
        let dir = [&self.pids, &self.memory, &self.cpu].into_iter().flatten().next();
        dir.map(|d| files::pids_at(&d.dir)).unwrap_or_default()
    }

    pub fn birth(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|d| d.dir.as_fd())
    }

    pub fn entrances(&self) -> Vec<BorrowedFd<'_>> {
        self.tasks.iter().map(AsFd::as_fd).collect()
    }

    pub fn oom_watch(&self) -> OomWatch<'_> {
        self.oom_event.as_ref().map_or(OomWatch::Nothing, |e| OomWatch::Readable(e.as_fd()))
    }

    pub fn oom_kills(&self) -> u64 {
        self.memory
            .as_ref()
            .and_then(|d| keyed(&read_at(&d.dir, "memory.oom_control")?, "oom_kill"))
            .unwrap_or(0)
    }

    pub fn kill(&self) {
        if let Some(d) = &self.unified {
            let _ = write_at(&d.dir, "cgroup.kill", "1");
        }
    }

    pub fn stats(&self) -> CgroupStats {
        CgroupStats {
            memory_peak: self.memory.as_ref().and_then(|d| number_at(&d.dir, "memory.max_usage_in_bytes")),
            // One is init.
            pids_peak: self
                .pids
                .as_ref()
                .and_then(|d| number_at(&d.dir, "pids.peak"))
                .map(|n| n.saturating_sub(1)),
            cpu_us: self
                .unified
                .as_ref()
                .and_then(|d| keyed(&read_at(&d.dir, "cpu.stat")?, "usage_usec"))
                .or_else(|| {
                    let counter = |d: &Option<Dir>| number_at(&d.as_ref()?.dir, "cpuacct.usage");
                    Some(counter(&self.accounting).or_else(|| counter(&self.cpu))? / 1000)
                }),
        }
    }

    pub fn remove(self) -> Result<(), CgroupError> {
        let Group { name, memory, pids, cpu, unified, accounting, .. } = self;
        let mut result = Ok(());
        for Dir { parent, dir, path } in [memory, pids, cpu, unified, accounting].into_iter().flatten() {
            drop(dir);
            result = result.and(remove_at(parent, &name, &path));
        }
        result
    }
}

impl Dir {
    /// Makes `name` in our directory of the hierarchy mounted at `point`.
    fn make(point: &Path, name: &str) -> Result<Dir, CgroupError> {
        let ours = point.join(OURS);
        let path = ours.join(name);
        match make_dir(&path, false) {
            Err(CgroupError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                make_dir(&ours, true)?;
                make_dir(&path, false)?;
            }
            other => other?,
        }
        let opened = open_dir(&ours).and_then(|parent| Ok((parent, open_dir(&path)?)));
        match opened {
            Ok((parent, dir)) => Ok(Dir { parent, dir, path }),
            Err(e) => {
                // Nobody else would know of it.
                let _ = std::fs::remove_dir(&path);
                Err(e)
            }
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        write_at(&self.dir, file, value).map_err(fail("write", &self.path.join(file)))
    }

    /// An eventfd that the kernel signals when this cgroup runs out of memory (cgroup-v1/memory, chapter 9).
    fn oom_eventfd(&self) -> io::Result<OwnedFd> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let control = files::open_at(&self.dir, "memory.oom_control", OFlags::RDONLY)?;
        let text = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        write_at(&self.dir, "cgroup.event_control", &text)?;
        Ok(event)
    }
}
