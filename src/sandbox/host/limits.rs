//! Limits that no cgroup can hold, and what mends that.

use crate::limits::LimitKind;
use crate::sandbox::cgroup::{self, Found, Mounted};

/// Which limits can't hold here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsLack {
    pub kinds: Vec<LimitKind>,
    /// Why the first of them can't.
    pub reason: String,
    place: Place,
}

/// What there is to be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// No cgroup file system.
    Nothing,
    /// cgroup v2 has the controllers, but not for us.
    NotDelegated { root: bool },
    /// cgroup v1 belongs to root.
    V1 { root: bool },
    /// A controller is missing in cgroup v2.
    V2Controller { root: bool },
    /// A controller is missing in cgroup v1.
    V1Controller,
}

impl LimitsLack {
    pub(super) fn of(found: &Found, allowed: impl Fn(LimitKind) -> bool) -> Option<LimitsLack> {
        let missing: Vec<(LimitKind, String)> = [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu]
            .into_iter()
            .filter(|k| !allowed(*k))
            .filter_map(|k| Some((k, found.missing(k)?)))
            .collect();
        let (_, reason) = missing.first()?.clone();
        let root = rustix::process::geteuid().is_root();
        let place = match found {
            Found::V2(_) => Place::V2Controller { root },
            Found::V1(_) => Place::V1Controller,
            Found::None { .. } => match cgroup::mounted() {
                Mounted::Nothing => Place::Nothing,
                Mounted::V1 => Place::V1 { root },
                Mounted::V2 => Place::NotDelegated { root },
            },
        };
        Some(LimitsLack { kinds: missing.into_iter().map(|(k, _)| k).collect(), reason, place })
    }

    /// `memory,pids`, as `--allow-unenforced` takes them.
    pub fn names(&self) -> String {
        self.kinds.iter().map(|k| k.name()).collect::<Vec<_>>().join(",")
    }

    pub(super) fn what(&self) -> String {
        format!("this host can't enforce {}: {}", self.names(), self.reason)
    }

    pub(super) fn fix(&self) -> String {
        let names = self.names();
        let first = self.kinds.first().map_or("memory", |k| k.name());
        let mend = match self.place {
            Place::Nothing => "as root: mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
            Place::NotDelegated { root: false } => format!("delegate a cgroup ({USER_SCOPE})"),
            Place::NotDelegated { root: true } => {
                "delegate a cgroup (systemd-run --scope -p Delegate=yes creel run …)".to_owned()
            }
            Place::V1 { root: false } => {
                format!("run creel as root, or on a host with cgroup v2 delegate a cgroup ({USER_SCOPE})")
            }
            Place::V1 { root: true } => format!(
                "as root of the host: mount -o remount,rw /sys/fs/cgroup/{first} (and the other two), or delegate a cgroup of a v2 host"
            ),
            Place::V2Controller { root: false } => format!(
                "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=memory pids cpu\\n' > \
                 /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload, log in again and delegate a cgroup ({USER_SCOPE})"
            ),
            Place::V2Controller { root: true } => format!(
                "as root: echo +{first} > cgroup.subtree_control in each cgroup above, or boot with cgroup_enable={first}"
            ),
            Place::V1Controller => {
                format!(
                    "as root: mkdir -p /sys/fs/cgroup/{first} && mount -t cgroup -o {first} none /sys/fs/cgroup/{first}"
                )
            }
        };
        format!("{mend}, or accept it with --allow-unenforced {names}")
    }
}

const USER_SCOPE: &str = "systemd-run --user --scope -p Delegate=yes creel run …";
