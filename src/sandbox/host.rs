//! What a host can lack, in words: one line that says what is missing and what mends it.
//!
//! The one place for these words. `creel run` stops with them and `creel doctor` prints them, so that both say the same. A step of the
//! set-up that failed is traced back to what is missing by [`Lack::of_step`].

mod facts;
mod limits;
pub mod probe;

use std::fmt;
use std::io;

use crate::limits::LimitKind;
use crate::sandbox::cgroup::Found;
use crate::sandbox::landlock::LEAST_ABI;

pub use facts::{Facts, LEAST_KERNEL, version};
pub use limits::LimitsLack;

/// Something that the host does not give to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// Filters can be made for x86_64 and aarch64 only.
    Architecture,
    /// The kernel answers ENOSYS: it is older than [`LEAST_KERNEL`], or a filter around creel hides the call.
    Call {
        what: String,
        release: String,
        new_enough: bool,
    },
    UserNamespaces(UserNamespaces),
    /// Root without the capability to make namespaces: a container's root.
    Capability(&'static str),
    /// Another kind of namespace (`pid`, `net`, …).
    Namespace {
        kind: &'static str,
        why: NoNamespace,
    },
    /// Limits that no cgroup can hold here.
    Limits(LimitsLack),
    Landlock {
        abi: i32,
    },
    Seccomp,
    /// A user namespace may mount proc only where a full one is visible (`mount_too_revealing` in the kernel).
    MaskedProc,
    /// This process's user namespace has no such host ids to give away.
    HostIds {
        first: u32,
        last: u32,
    },
    /// A device node that can't be shown or made.
    Device {
        name: String,
        why: String,
    },
    /// Bundles need it; `/work` and the like are shown as binds without it, with their paths on the host.
    Overlay {
        errno: i32,
    },
}

/// Why no user namespace can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserNamespaces {
    /// `user.max_user_namespaces` is this low (a run needs two), or all of them are in use.
    Limit(u64),
    /// Debian's switch.
    DebianSwitch,
    /// Ubuntu's, from 23.10 on; the path is creel's own, for a profile.
    AppArmor {
        exe: String,
    },
    /// In a chroot the kernel refuses.
    Chroot,
    /// A container's system-call filter.
    Filter,
    NotBuilt,
    Refused(i32),
}

/// Why no namespace of some other kind can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoNamespace {
    /// `user.max_KIND_namespaces` is 0 or used up.
    Limit,
    NotBuilt,
}

impl Lack {
    /// The limits that can't hold on this host, less those that the caller allows to stay unenforced.
    pub fn limits(found: &Found, allowed: impl Fn(LimitKind) -> bool) -> Option<Lack> {
        LimitsLack::of(found, allowed).map(Lack::Limits)
    }

    /// `Some` when `abi`, the kernel's landlock version, is not enough.
    pub fn landlock(abi: i32) -> Option<Lack> {
        (abi < LEAST_ABI).then_some(Lack::Landlock { abi })
    }

    /// What the failure of a set-up step means, if it is something that the host lacks. Steps are named as in `launcher`, `template` and
    /// `setup`.
    pub fn of_step(step: &str, errno: i32) -> Option<Lack> {
        Lack::of_step_here(step, errno, &Facts::gather())
    }

    pub(crate) fn of_step_here(step: &str, errno: i32, facts: &Facts) -> Option<Lack> {
        if errno == libc::ENOSYS {
            let release = facts.release.clone();
            return Some(Lack::Call { what: step.into(), release, new_enough: facts.new_enough() });
        }
        match step {
            USER_NAMESPACE | MAP_CALLER => Some(facts.no_user_namespace(errno)),
            MOUNT_NAMESPACE | NAMESPACES | CGROUP_NAMESPACE | LAYERS_NAMESPACE => facts.no_namespace(errno),
            PROC if errno == libc::EPERM => Some(Lack::MaskedProc),
            OVERLAY if matches!(errno, libc::ENODEV | libc::EPERM) => Some(Lack::Overlay { errno }),
            HOST_DEVICES if matches!(errno, libc::ENODEV | libc::ENOENT | libc::EACCES) => {
                let name = facts.wrong_device.clone()?;
                Some(Lack::Device { name, why: "is missing or is another device".into() })
            }
            _ if step.starts_with(MAKE_DEVICE) && errno == libc::EPERM => Some(Lack::Device {
                name: step[MAKE_DEVICE.len()..].to_owned(),
                why: "can't be made without CAP_MKNOD in the initial user namespace".into(),
            }),
            _ => None,
        }
    }

    /// `Some` when this process's user namespace lacks host ids among the `count` from `first` on.
    pub fn host_ids(first: u32, count: u32) -> Option<Lack> {
        let has_all = |map: &str| {
            std::fs::read_to_string(map)
                .map_or(true, |text| facts::maps_all(&text, first.into(), count.into()))
        };
        let complete = has_all("/proc/self/uid_map") && has_all("/proc/self/gid_map");
        (!complete).then_some(Lack::HostIds { first, last: first + (count - 1) })
    }

    /// `host.reason`, for the run report.
    pub fn code(&self) -> &'static str {
        match self {
            Lack::Architecture => "host.architecture",
            Lack::Call { .. } => "host.kernel",
            Lack::UserNamespaces(_) => "host.user_namespaces",
            Lack::Capability(_) => "host.capability",
            Lack::Namespace { .. } => "host.namespaces",
            Lack::Limits(_) => "host.unenforceable",
            Lack::Landlock { .. } => "host.landlock",
            Lack::Seccomp => "host.seccomp",
            Lack::MaskedProc => "host.proc",
            Lack::HostIds { .. } => "host.ids",
            Lack::Device { .. } => "host.devices",
            Lack::Overlay { .. } => "host.overlay",
        }
    }

    /// What is missing.
    pub fn what(&self) -> String {
        match self {
            Lack::Architecture => "creel has no system-call filter for this machine's architecture".into(),
            Lack::Call { what, release, new_enough: false } => {
                format!("this kernel ({release}) is too old: it can't {what}")
            }
            Lack::Call { what, .. } => format!("a system-call filter around creel makes it impossible to {what}"),
            Lack::UserNamespaces(why) => format!("no user namespace can be made: {}", why.what()),
            Lack::Capability(name) => format!("root has no {name} here, so it can make no namespaces"),
            Lack::Namespace { kind, why: NoNamespace::Limit } => {
                format!("no {kind} namespace can be made: user.max_{kind}_namespaces is too low")
            }
            Lack::Namespace { kind, why: NoNamespace::NotBuilt } => {
                format!("this kernel has no {kind} namespaces")
            }
            Lack::Limits(lack) => lack.what(),
            Lack::Landlock { .. } => "this kernel has no landlock, or it is switched off".into(),
            Lack::Seccomp => "this kernel has no seccomp filters".into(),
            Lack::MaskedProc => "/proc can't be mounted in a sandbox: parts of this host's own /proc are hidden (a container does that)".into(),
            Lack::HostIds { first, last } => {
                format!("the host ids {first} to {last}, which sandboxes of root run as, don't exist in this user namespace")
            }
            Lack::Device { name, why } => format!("/dev/{name} {why}"),
            Lack::Overlay { errno: libc::EPERM } => {
                "an ordinary user may mount no overlay here: bundles can't be run".into()
            }
            Lack::Overlay { .. } => "this kernel has no overlay file system: bundles can't be run, and paths of the host show in mountinfo".into(),
        }
    }

    /// What mends it: a command where there is one.
    pub fn fix(&self) -> String {
        const OLDEST: &str = "boot Linux 5.13 or newer";
        match self {
            Lack::Architecture => "run creel on x86_64 or aarch64".into(),
            Lack::Call { new_enough: false, .. } => OLDEST.into(),
            Lack::Call { .. } => CONTAINER_FILTER.into(),
            Lack::UserNamespaces(why) => why.fix(),
            Lack::Capability(_) => {
                "run creel as an ordinary user, or give the container the capability (docker run --privileged)".into()
            }
            Lack::Namespace { kind, why: NoNamespace::Limit } => {
                format!("as root: sysctl -w user.max_{kind}_namespaces={MANY}")
            }
            Lack::Namespace { kind, why: NoNamespace::NotBuilt } => {
                format!("boot a kernel with CONFIG_{}=y", config_of(kind))
            }
            Lack::Limits(lack) => lack.fix(),
            Lack::Landlock { .. } => {
                "boot Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK=y and with landlock in the lsm= kernel parameter (cat /sys/kernel/security/lsm)".into()
            }
            Lack::Seccomp => "boot a kernel with CONFIG_SECCOMP_FILTER=y".into(),
            Lack::MaskedProc => {
                "start that container with --security-opt systempaths=unconfined (docker), --security-opt unmask=ALL (podman), procMount: Unmasked (Kubernetes), or umount what covers parts of /proc".into()
            }
            Lack::HostIds { .. } => {
                "run creel as an ordinary user in this container, or as root outside of it".into()
            }
            Lack::Device { .. } => {
                "as root: mount -t devtmpfs none /dev; in a container, run creel as an ordinary user or add --cap-add MKNOD".into()
            }
            Lack::Overlay { errno: libc::EPERM } => "boot Linux 5.11 or newer, or run creel as root".into(),
            Lack::Overlay { .. } => "as root: modprobe overlay".into(),
        }
    }
}

/// `what; fix`: the line.
impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.fix())
    }
}

impl UserNamespaces {
    fn what(&self) -> String {
        match self {
            UserNamespaces::Limit(0) => "user.max_user_namespaces is 0".into(),
            UserNamespaces::Limit(n) => {
                format!("the limit user.max_user_namespaces, {n}, is reached (a run needs two)")
            }
            UserNamespaces::DebianSwitch => "kernel.unprivileged_userns_clone is 0".into(),
            UserNamespaces::AppArmor { .. } => {
                "AppArmor restricts them (kernel.apparmor_restrict_unprivileged_userns is 1)".into()
            }
            UserNamespaces::Chroot => "creel runs in a chroot, where the kernel refuses them".into(),
            UserNamespaces::Filter => "a system-call filter around creel refuses it".into(),
            UserNamespaces::NotBuilt => "this kernel was built without them".into(),
            UserNamespaces::Refused(errno) => {
                let why = crate::text::io_reason(&io::Error::from_raw_os_error(*errno));
                format!("{why} (a chroot, or a security module)")
            }
        }
    }

    fn fix(&self) -> String {
        match self {
            UserNamespaces::Limit(n) => {
                format!("as root: sysctl -w user.max_user_namespaces={}", n.saturating_mul(2).max(MANY))
            }
            UserNamespaces::DebianSwitch => "as root: sysctl -w kernel.unprivileged_userns_clone=1".into(),
            UserNamespaces::AppArmor { exe } => format!(
                "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or allow only creel: \
                 printf 'abi <abi/4.0>,\\nprofile creel {exe} flags=(unconfined) {{ userns, }}\\n' > /etc/apparmor.d/creel && \
                 apparmor_parser -r /etc/apparmor.d/creel"
            ),
            UserNamespaces::Chroot => {
                "start creel outside of the chroot, or enter that directory with systemd-nspawn -D".into()
            }
            UserNamespaces::Filter => CONTAINER_FILTER.into(),
            UserNamespaces::NotBuilt => "boot a kernel with CONFIG_USER_NS=y".into(),
            UserNamespaces::Refused(_) => {
                "start creel outside of any chroot; as root: dmesg | tail names a security module that refused it"
                    .into()
            }
        }
    }
}

/// A limit of namespaces that no host runs into by accident.
const MANY: u64 = 15_000;

const CONTAINER_FILTER: &str = "start the container that creel runs in with --security-opt seccomp=unconfined, or with a filter that lets clone3, \
     unshare and the mount calls through";

fn config_of(kind: &str) -> String {
    match kind {
        "mnt" => "NAMESPACES".into(),
        "cgroup" => "CGROUPS".into(),
        other => format!("{}_NS", other.to_uppercase()),
    }
}

/// Names of steps as `launcher`, `template` and `setup` give them; a test holds them together.
pub(crate) const USER_NAMESPACE: &str = "make a user namespace";
pub(crate) const MAP_CALLER: &str = "map the caller's ids";
pub(crate) const MOUNT_NAMESPACE: &str = "make a mount namespace";
pub(crate) const NAMESPACES: &str = "make the sandbox's namespaces";
pub(crate) const CGROUP_NAMESPACE: &str = "make a cgroup namespace";
pub(crate) const LAYERS_NAMESPACE: &str = "make the user namespace of the layers";
pub(crate) const PROC: &str = "mount /proc";
pub(crate) const OVERLAY: &str = "mount the overlay of the image";
pub(crate) const HOST_DEVICES: &str = "clone the device nodes";
pub(crate) const MAKE_DEVICE: &str = "make dev/";

#[cfg(test)]
mod tests;
