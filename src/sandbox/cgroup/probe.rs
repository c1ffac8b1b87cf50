//! What the host's cgroups offer to this process.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::{v1, v2};
use crate::limits::LimitKind;

/// The backend for this host.
#[derive(Debug, Clone)]
pub enum Found {
    V2(v2::Host),
    V1(v1::Host),
    /// None that this process may use, and why.
    None {
        reason: String,
    },
}

impl Found {
    /// The same without the directory that a sandbox is born in on a hybrid host: a fork of a zygote is born in the zygote's, and moving it would
    /// take a global lock. The other hierarchies count and limit without it.
    pub fn without_birth(mut self) -> Found {
        if let Found::V1(host) = &mut self {
            host.unified = None;
        }
        self
    }

    /// Why `kind` can't be enforced, or `None` when it can.
    pub fn missing(&self, kind: LimitKind) -> Option<String> {
        match self {
            Found::V2(host) => host.missing(kind),
            Found::V1(host) => host.missing(kind),
            Found::None { reason } => Some(reason.clone()),
        }
    }

    /// On v2, the directory in which the cgroups of runs lie.
    pub fn place(&self) -> Option<PathBuf> {
        match self {
            Found::V2(host) => Some(host.ours()),
            Found::V1(_) | Found::None { .. } => None,
        }
    }

    /// The word for the report: which backend holds `kind`.
    pub fn holder(&self) -> &'static str {
        match self {
            Found::V2(_) => "cgroup2",
            Found::V1(_) => "cgroup1",
            Found::None { .. } => "unenforced",
        }
    }
}

/// One cgroup mount, from /proc/self/mountinfo (proc_pid_mountinfo(5)).
#[derive(Debug, PartialEq)]
pub(super) struct CgroupMount {
    pub point: PathBuf,
    /// `None`: cgroup v2. Else the v1 controllers.
    pub controllers: Option<Vec<String>>,
}

pub(super) fn mounts(mountinfo: &str) -> Vec<CgroupMount> {
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = left.split(' ').nth(4) else {
            continue;
        };
        let mut right = right.split(' ');
        let controllers = match right.next() {
            Some("cgroup2") => None,
            Some("cgroup") => Some(right.nth(1).unwrap_or("").split(',').map(str::to_owned).collect()),
            _ => continue,
        };
        found.push(CgroupMount { point: PathBuf::from(unescape(point)), controllers });
    }
    found
}

/// Undoes the octal escapes of mountinfo (`\040` for a space).
fn unescape(s: &str) -> String {
    let mut out = String::new();
    let mut rest = s;
    while let Some(i) = rest.find('\\') {
        out.push_str(&rest[..i]);
        match rest.get(i + 1..i + 4).and_then(|o| u8::from_str_radix(o, 8).ok()) {
            Some(c) => {
                out.push(c as char);
                rest = &rest[i + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[i + 1..];
            }
        }
    }
    out + rest
}

/// Which cgroup file system of those that hold limits can be reached here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounted {
    Nothing,
    V1,
    V2,
}

/// What is mounted, whoever may use it.
pub fn mounted() -> Mounted {
    let mounts = reachable();
    let on_v1 =
        |c: &&str| mounts.iter().any(|m| m.controllers.as_ref().is_some_and(|v| v.iter().any(|x| x == *c)));
    if ["memory", "pids", "cpu"].iter().any(on_v1) {
        Mounted::V1
    } else if mounts.iter().any(|m| m.controllers.is_none()) {
        Mounted::V2
    } else {
        Mounted::Nothing
    }
}

/// The cgroup mounts that no other mount covers.
fn reachable() -> Vec<CgroupMount> {
    /// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of linux/magic.h.
    const MAGIC: [u64; 2] = [0x0027_e0eb, 0x6367_7270];
    let mut mounts = mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    mounts.retain(|m| rustix::fs::statfs(&m.point).is_ok_and(|s| MAGIC.contains(&(s.f_type as u64))));
    mounts
}

/// Looks at the host: prefers v2 when it has all three controllers, else v1.
pub fn probe() -> Found {
    let mounts = reachable();
    let unified = mounts.iter().find(|m| m.controllers.is_none()).map(|m| m.point.clone());
    let v1_with =
        |c: &str| mounts.iter().find(|m| m.controllers.as_ref().is_some_and(|v| v.iter().any(|x| x == c)));
    let on_v1 = ["memory", "pids", "cpu"].iter().any(|c| v1_with(c).is_some());
    match unified {
        Some(point) if !on_v1 => {
            v2::Host::find(&point).map_or_else(|reason| Found::None { reason }, Found::V2)
        }
        unified => {
            if !on_v1 {
                return Found::None {
                    reason: "no cgroup file system with memory, pids and cpu is mounted".into(),
                };
            }
            let point = |c| v1_with(c).map(|m| m.point.clone());
            let host = v1::Host {
                memory: point("memory"),
                pids: point("pids"),
                cpu: point("cpu"),
                accounting: point("cpuacct").filter(|p| Some(p) != point("cpu").as_ref() && writable(p)),
                unified: unified.filter(|u| writable(u)),
            };
            let points = [&host.memory, &host.pids, &host.cpu];
            let closed = points.into_iter().flatten().find(|p| !writable(p)).cloned();
            match closed {
                Some(p) => Found::None { reason: format!("no right to make a cgroup in {}", p.display()) },
                None => Found::V1(host),
            }
        }
    }
}

/// Whether this process may make a cgroup below `dir` (or in our directory there, when somebody made that for us).
pub(super) fn writable(dir: &Path) -> bool {
    let ours = dir.join(super::OURS);
    let dir = if ours.is_dir() { &ours } else { dir };
    rustix::fs::access(dir, Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_of_a_hybrid_host() {
        let text = "40 32 0:35 / /sys/fs/cgroup/cpu\\040x rw - cgroup cgroup rw,cpu,cpuacct\n\
                    50 32 0:45 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
                    22 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let found = mounts(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].point, Path::new("/sys/fs/cgroup/cpu x"));
        assert!(found[0].controllers.as_ref().unwrap().contains(&"cpuacct".to_owned()));
        assert_eq!(found[1], CgroupMount { point: "/sys/fs/cgroup/unified".into(), controllers: None });
    }
}
