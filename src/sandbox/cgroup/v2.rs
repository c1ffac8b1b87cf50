//! cgroup v2, the first-class way.
//!
//! Below `creel/` lie one leaf a run, which holds the payload and its limits, and the leaf `init`, which holds the PID 1s of all sandboxes:
//! `memory.oom.group` kills a whole leaf, and an init that dies with it would look like a lost end.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags};

use super::files::{self, fail, keyed, make_dir, number_at, open_dir, read_at, remove_at, write_at};
use super::v1::PERIOD_US;
use super::{CgroupError, CgroupLimits, CgroupStats, OURS, OomWatch};
use crate::limits::LimitKind;

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

#[derive(Debug, Clone)]
pub struct Host {
    /// The cgroup in which `creel/` lies.
    base: PathBuf,
    /// Which of the three controllers our directory has.
    controllers: Vec<String>,
}

impl Host {
    /// Finds the topmost cgroup above this process that it may write to, makes `creel/` in it and turns the controllers on.
    /// The error is the reason, as one clause.
    pub fn find(mount: &Path) -> Result<Host, String> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or("");
        if own.split('/').any(|part| part == "..") {
            return Err("this process's cgroup lies outside of the cgroup mount".into());
        }
        let own = mount.join(own);
        let mut base = None;
        for dir in own.ancestors().take_while(|d| d.starts_with(mount)) {
            if delegated(dir) {
                base = Some(dir.to_owned());
            }
        }
        let base = base
            .ok_or_else(|| format!("no cgroup is delegated to this user (own cgroup: {})", own.display()))?;
        // The root of a cgroup namespace looks like the real one, but only that has no `cgroup.type` and may hold processes beside children.
        if base == own && base.join("cgroup.type").exists() {
            step_aside(&base)?;
        }
        let ours = base.join(OURS);
        make_dir(&ours, true).map_err(|e| e.to_string())?;
        let mut controllers = Vec::new();
        for c in CONTROLLERS {
            if turn_on(&base, c) && turn_on(&ours, c) {
                controllers.push(c.to_owned());
            }
        }
        make_dir(&ours.join("init"), true).map_err(|e| e.to_string())?;
        Ok(Host { base, controllers })
    }

    pub fn ours(&self) -> PathBuf {
        self.base.join(OURS)
    }

    pub fn missing(&self, kind: LimitKind) -> Option<String> {
        (!self.controllers.iter().any(|c| c == kind.name())).then(|| {
            format!("the {} controller of cgroup v2 is not available in {}", kind.name(), self.base.display())
        })
    }
}

/// Hands controller `c` to the children of `dir`; true when they have it.
fn turn_on(dir: &Path, c: &str) -> bool {
    let file = dir.join("cgroup.subtree_control");
    let on = || fs::read_to_string(&file).unwrap_or_default().split_whitespace().any(|x| x == c);
    on() || (fs::write(&file, format!("+{c}")).is_ok() && on())
}

/// Whether the host has swap in use (proc_swaps(5): a head line, then one for each area).
fn host_swaps() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Whether this process may make cgroups in `dir` and move its own processes there.
fn delegated(dir: &Path) -> bool {
    ["", "cgroup.procs", "cgroup.subtree_control"]
        .iter()
        .all(|f| rustix::fs::access(dir.join(f), Access::WRITE_OK).is_ok())
}

/// A cgroup with processes of its own can't hand controllers to its children ("no internal processes"). When we are alone in it, we move
/// into a leaf; others' processes are never moved.
fn step_aside(base: &Path) -> Result<(), String> {
    let me = std::process::id().to_string();
    let procs = fs::read_to_string(base.join("cgroup.procs")).unwrap_or_default();
    if procs.lines().any(|p| p != me) {
        return Err(format!("cgroup {} holds other processes, so it can't be divided", base.display()));
    }
    let leaf = base.join("creel-caller");
    make_dir(&leaf, true).map_err(|e| e.to_string())?;
    fs::write(leaf.join("cgroup.procs"), me).map_err(|e| format!("cannot move into {}: {e}", leaf.display()))
}

#[derive(Debug)]
pub struct Group {
    name: String,
    path: PathBuf,
    ours: OwnedFd,
    init: OwnedFd,
    dir: OwnedFd,
    events: Option<fs::File>,
}

impl Group {
    pub fn create(host: &Host, run_id: &str) -> Result<Group, CgroupError> {
        let ours = host.ours();
        let path = ours.join(run_id);
        make_dir(&path, false)?;
        let opened = (|| {
            Ok(Group {
                name: run_id.to_owned(),
                dir: open_dir(&path)?,
                init: open_dir(&ours.join("init"))?,
                ours: open_dir(&ours)?,
                events: None,
                path: path.clone(),
            })
        })();
        if opened.is_err() {
            let _ = fs::remove_dir(&path);
        }
        opened
    }

    pub fn limit(&mut self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        if let Some(bytes) = limits.memory {
            self.write("memory.max", &bytes.to_string())?;
            self.write("memory.oom.group", "1")?;
            // Absent when the kernel does not account for swap: harmless only where there is none.
            match write_at(&self.dir, "memory.swap.max", "0") {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && !host_swaps() => {}
                other => other.map_err(fail("limit the swap of", &self.path))?,
            }
            self.events = Some(
                files::open_at(&self.dir, "memory.events", OFlags::RDONLY)
                    .map_err(fail("watch", &self.path))?,
            );
            // Until it is read, poll(2) calls the file changed.
            self.oom_kills();
        }
        if let Some(tasks) = limits.pids {
            self.write("pids.max", &tasks.to_string())?;
        }
        if let Some(millis) = limits.cpu_millis {
            let quota = (u64::from(millis) * PERIOD_US / 1000).max(1000);
            self.write("cpu.max", &format!("{quota} {PERIOD_US}"))?;
        }
        Ok(())
    }

    fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        write_at(&self.dir, file, value).map_err(fail("write", &self.path.join(file)))
    }

    pub fn descriptors(&self) -> Vec<RawFd> {
        let dirs = [&self.ours, &self.init, &self.dir].map(AsRawFd::as_raw_fd);
        dirs.into_iter().chain(self.events.iter().map(AsRawFd::as_raw_fd)).collect()
    }

    pub fn pids(&self) -> Vec<i32> {
        files::pids_at(&self.dir)
    }

    pub fn init_birth(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }

    pub fn payload_birth(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub fn adopt(&self, init: i32, payload: i32) -> std::io::Result<()> {
        write_at(&self.init, "cgroup.procs", &init.to_string())?;
        write_at(&self.dir, "cgroup.procs", &payload.to_string())
    }

    pub fn oom_watch(&self) -> OomWatch<'_> {
        self.events.as_ref().map_or(OomWatch::Nothing, |f| OomWatch::Priority(f.as_fd()))
    }

    /// Reads by the descriptor of [`Group::oom_watch`], so that poll(2) waits for the next change.
    pub fn oom_kills(&self) -> u64 {
        self.events.as_ref().and_then(files::again).and_then(|t| keyed(&t, "oom_kill")).unwrap_or(0)
    }

    pub fn kill(&self) {
        let _ = write_at(&self.dir, "cgroup.kill", "1");
    }

    pub fn stats(&self) -> CgroupStats {
        CgroupStats {
            memory_peak: number_at(&self.dir, "memory.peak"),
            pids_peak: number_at(&self.dir, "pids.peak"),
            cpu_us: read_at(&self.dir, "cpu.stat").and_then(|t| keyed(&t, "usage_usec")),
        }
    }

    pub fn remove(self) -> Result<(), CgroupError> {
        remove_at(&self.ours, &self.name, &self.path)
    }
}
