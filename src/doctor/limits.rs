//! Memory, tasks and CPU, and swap.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Check, Status};
use crate::limits::LimitKind;
use crate::sandbox::cgroup::{Found, OURS};
use crate::sandbox::host::Lack;

pub fn checks(cgroups: &Found) -> Vec<Check> {
    vec![limits(cgroups), swap(cgroups)]
}

/// One line, the one that `creel run` would stop with.
fn limits(cgroups: &Found) -> Check {
    const NAME: &str = "limits";
    if let Some(lack) = Lack::limits(cgroups, |_| false) {
        return Check::lack(NAME, Status::Fail, &lack);
    }
    match cgroups {
        Found::V2(host) => {
            Check::ok(NAME, format!("memory, pids and cpu by cgroup v2 in {}", host.ours().display()))
        }
        Found::V1(host) => {
            let hybrid =
                if host.unified.is_some() { ", hybrid: cgroup v2 without controllers beside it" } else { "" };
            let points: Vec<String> = host.ours().take(3).map(|p| p.display().to_string()).collect();
            Check::ok(NAME, format!("memory, pids and cpu by cgroup v1 in {}{hybrid}", points.join(", ")))
        }
        // Without a cgroup every limit is missing.
        Found::None { reason } => Check::fail(NAME, reason.as_str(), "see above"),
    }
}

/// Pages that are swapped out do not count against memory unless swap is counted too.
fn swap(cgroups: &Found) -> Check {
    const NAME: &str = "swap";
    let on = fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1;
    if !on {
        return Check::ok(NAME, "none on this host");
    }
    if cgroups.missing(LimitKind::Memory).is_some() {
        return Check::ok(NAME, "is on; not limited, as memory is not");
    }
    let counted: Option<PathBuf> = match cgroups {
        Found::V2(host) => Some(host.ours().join("init/memory.swap.max")),
        Found::V1(host) => {
            host.memory.as_deref().map(|p: &Path| p.join(OURS).join("memory.memsw.limit_in_bytes"))
        }
        Found::None { .. } => None,
    };
    // On v1 creel's directory is made by the first run; the root's own file tells the same.
    let counted = counted.is_some_and(|p| p.exists() || above(&p).is_some_and(|p| p.exists()));
    if counted {
        return Check::ok(NAME, "is on; sandboxes get none of it");
    }
    Check::warn(
        NAME,
        "is on and not counted for cgroups: a sandbox may be swapped out to more than its memory",
        "as root: swapoff -a, or boot with swapaccount=1",
    )
}

/// The file of the same name one directory up.
fn above(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.parent()?.join(path.file_name()?))
}
