//! What this host can enforce for this user: each part of a sandbox tried out, and one whole sandbox at the end.
//!
//! The words for what is missing are those of [`Lack`], which `creel run` stops with.

#![forbid(unsafe_code)]

mod guards;
mod kernel;
mod limits;
mod places;
mod rooms;
mod trial;

use serde::Serialize;

use crate::executor::ids::{self, Lease};
use crate::sandbox::cgroup;
use crate::sandbox::host::{Lack, probe::Tried};
use crate::sandbox::spec::Ids;
use crate::text::{io_reason, one_line};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Worth knowing; runs are enforced without it.
    Warn,
    /// The default profile can't be fully enforced without it.
    Fail,
}

/// One line of the doctor's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub status: Status,
    /// What there is, or what is missing.
    pub found: String,
    /// What mends it; none when there is nothing to mend.
    pub fix: Option<String>,
}

impl Check {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, found: one_line(&found.into()), fix: None }
    }

    pub fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        let fix = Some(one_line(&fix.into()));
        Check { name, status: Status::Warn, found: one_line(&found.into()), fix }
    }

    pub fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { status: Status::Fail, ..Check::warn(name, found, fix) }
    }

    fn lack(name: &'static str, status: Status, lack: &Lack) -> Check {
        Check { status, ..Check::warn(name, lack.what(), lack.fix()) }
    }

    /// Of something that was tried: `found` when it worked, else what that means, with `status`.
    fn tried(name: &'static str, found: &str, status: Status, tried: Tried) -> Check {
        let Err(e) = tried else {
            return Check::ok(name, found);
        };
        match Lack::of_step(&e.step, e.errno) {
            Some(lack) => Check::lack(name, status, &lack),
            None => {
                let why = io_reason(&std::io::Error::from_raw_os_error(e.errno));
                let fix = "as root: dmesg | tail may say more";
                Check { status, ..Check::warn(name, format!("cannot {}: {why}", e.step), fix) }
            }
        }
    }
}

/// All lines and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The default profile can be fully enforced.
    pub ok: bool,
    pub verdict: String,
    /// Version of creel.
    pub version: &'static str,
    /// As `uname -r` says it.
    pub kernel: String,
    /// As `uname -m` says it.
    pub arch: String,
    /// The effective uid that all of this holds for.
    pub uid: u32,
    pub checks: Vec<Check>,
}

impl Diagnosis {
    pub fn of(checks: Vec<Check>) -> Diagnosis {
        let failed = checks.iter().filter(|c| c.status == Status::Fail).map(|c| c.name);
        let mut missing: Vec<&str> = failed.collect();
        if missing.len() > 1 {
            // It failed for one of the others.
            missing.retain(|name| *name != trial::NAME);
        }
        let uname = rustix::system::uname();
        Diagnosis {
            ok: missing.is_empty(),
            verdict: if missing.is_empty() {
                "the default profile can be fully enforced".into()
            } else {
                format!("the default profile can't be fully enforced; missing: {}", missing.join(", "))
            },
            version: env!("CARGO_PKG_VERSION"),
            kernel: uname.release().to_string_lossy().into_owned(),
            arch: uname.machine().to_string_lossy().into_owned(),
            uid: rustix::process::geteuid().as_raw(),
            checks,
        }
    }
}

/// Examines the host. The calling process must be single-threaded; it forks a child for each thing to try.
///
/// Leaves what any run leaves: creel's empty directory in the cgroup file system and, as root, `/run/creel`.
pub fn examine() -> Diagnosis {
    let cgroups = cgroup::probe();
    let (ids, id_check) = host_ids();
    let mut checks = kernel::checks();
    checks.extend(rooms::checks(&ids));
    checks.extend(id_check);
    checks.extend(limits::checks(&cgroups));
    checks.extend(guards::checks());
    checks.extend(places::checks());
    let all_well = checks.iter().all(|c| c.status != Status::Fail);
    // Its ids are free again for the trial.
    drop(ids);
    let trial = trial::check(&cgroups, all_well);
    let ahead = trial::ahead(&cgroups, &trial);
    checks.extend([trial, ahead]);
    Diagnosis::of(checks)
}

/// The ids that the probes run with, held while they are in use, and the lines on them.
fn host_ids() -> (Lease, Vec<Check>) {
    let caller = || Lease {
        ids: Ids::Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        lock: None,
    };
    if !rustix::process::geteuid().is_root() {
        let check = Check::ok("host ids", "sandboxes run as the caller's own uid");
        return (caller(), vec![check, places::subordinate_ids()]);
    }
    let lock = match ids::lease() {
        Ok(lease) => (lease, Check::ok("run directory", "/run/creel holds the locks of host ids")),
        Err(e) => {
            let found = format!("cannot take a host id from /run/creel: {}", io_reason(&e));
            let fix = "as root: mount -t tmpfs -o mode=0755 tmpfs /run, or mkdir -m 0700 /run/creel";
            (caller(), Check::fail("run directory", found, fix))
        }
    };
    let check = match Lack::host_ids(ids::ROOT_ID, ids::COUNT + 1) {
        Some(lack) => Check::lack("host ids", Status::Fail, &lack),
        None => Check::ok("host ids", format!("each sandbox has its own, from {} on", ids::FIRST_ID)),
    };
    (lock.0, vec![check, lock.1])
}
