//! What the host says of itself, for telling why it refused something.

use std::fs;
use std::path::Path;

use rustix::fs::{FileType, major, minor, stat};

use super::{Lack, NoNamespace, UserNamespaces};
use crate::sandbox::landlock::DEVICES;
use crate::sandbox::template::NUMBERS;
use crate::sys;

/// The oldest Linux that has all that creel uses: landlock came last.
pub const LEAST_KERNEL: (u32, u32) = (5, 13);

/// Namespaces of a sandbox besides the user namespace, by their names in `/proc/self/ns`.
const KINDS: [&str; 6] = ["mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Settings and restrictions that decide about namespaces. A file that is absent or unreadable is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Effective uid 0.
    pub root: bool,
    pub release: String,
    pub max_user_namespaces: Option<u64>,
    /// Debian: `kernel.unprivileged_userns_clone`.
    pub userns_clone: Option<u64>,
    /// Ubuntu: `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_restricts: Option<u64>,
    /// A seccomp filter is on this process already.
    pub filtered: bool,
    pub chroot: bool,
    /// Root has CAP_SYS_ADMIN.
    pub may_administer: bool,
    /// Kinds whose `user.max_*_namespaces` is 0.
    pub none_allowed: Vec<&'static str>,
    /// Kinds that this kernel was built without.
    pub not_built: Vec<&'static str>,
    /// The first device node of creel's that is missing or not the right device.
    pub wrong_device: Option<String>,
    /// Where this program lies.
    pub exe: String,
}

impl Facts {
    /// Looks at `/proc` and `/dev`: a dozen small reads, only done when something failed.
    pub fn gather() -> Facts {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let root_is_mount = mounts.lines().any(|l| l.split(' ').nth(4) == Some("/"));
        let exe = std::env::current_exe().map_or("/usr/local/bin/creel".into(), |p| p.display().to_string());
        const SYS_ADMIN: u64 = 1 << 21;
        Facts {
            root: rustix::process::geteuid().is_root(),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            max_user_namespaces: sysctl("user/max_user_namespaces"),
            userns_clone: sysctl("kernel/unprivileged_userns_clone"),
            apparmor_restricts: sysctl("kernel/apparmor_restrict_unprivileged_userns"),
            filtered: field("Seccomp:") == Some("2"),
            chroot: !mounts.is_empty() && !root_is_mount,
            may_administer: sys::privileges::effective().is_ok_and(|caps| caps & SYS_ADMIN != 0),
            none_allowed: of_kinds(|k| sysctl(&format!("user/max_{k}_namespaces")) == Some(0)),
            not_built: of_kinds(|k| {
                Path::new("/proc/self/ns").is_dir() && !Path::new("/proc/self/ns").join(k).is_symlink()
            }),
            wrong_device: DEVICES
                .iter()
                .zip(NUMBERS)
                .find(|(n, d)| !is_device(n, *d))
                .map(|(n, _)| (*n).into()),
            exe,
        }
    }

    /// Whether the kernel is at least [`LEAST_KERNEL`].
    pub fn new_enough(&self) -> bool {
        version(&self.release).is_none_or(|(major, minor, _)| (major, minor) >= LEAST_KERNEL)
    }

    /// Why the kernel refused a user namespace with `errno`.
    pub(super) fn no_user_namespace(&self, errno: i32) -> Lack {
        let refused = UserNamespaces::Refused(errno);
        Lack::UserNamespaces(match errno {
            // EUSERS: nested too deeply, on kernels before 4.9.
            libc::ENOSPC | libc::EUSERS => UserNamespaces::Limit(self.max_user_namespaces.unwrap_or(0)),
            libc::EINVAL => UserNamespaces::NotBuilt,
            libc::EPERM | libc::EACCES if self.chroot => UserNamespaces::Chroot,
            libc::EPERM | libc::EACCES if !self.root && self.userns_clone == Some(0) => {
                UserNamespaces::DebianSwitch
            }
            libc::EPERM | libc::EACCES if !self.root && self.apparmor_restricts == Some(1) => {
                UserNamespaces::AppArmor { exe: self.exe.clone() }
            }
            libc::EPERM | libc::EACCES if self.root && !self.may_administer => {
                return Lack::Capability("CAP_SYS_ADMIN");
            }
            libc::EPERM | libc::EACCES if self.filtered => UserNamespaces::Filter,
            _ => refused,
        })
    }

    /// Why the kernel refused namespaces, a user namespace perhaps among them, with `errno`.
    pub(super) fn no_namespace(&self, errno: i32) -> Option<Lack> {
        match errno {
            libc::ENOSPC => {
                let few = self.max_user_namespaces.is_some_and(|n| n < 2);
                match self.none_allowed.first().filter(|_| !few) {
                    Some(kind) => Some(Lack::Namespace { kind, why: NoNamespace::Limit }),
                    None => Some(self.no_user_namespace(errno)),
                }
            }
            libc::EINVAL => {
                self.not_built.first().map(|kind| Lack::Namespace { kind, why: NoNamespace::NotBuilt })
            }
            libc::EPERM | libc::EACCES => Some(self.no_user_namespace(errno)),
            _ => None,
        }
    }
}

fn of_kinds(holds: impl Fn(&str) -> bool) -> Vec<&'static str> {
    KINDS.into_iter().filter(|k| holds(k)).collect()
}

/// A number below /proc/sys.
fn sysctl(name: &str) -> Option<u64> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?.trim().parse().ok()
}

fn is_device(name: &str, (want_major, want_minor): (u32, u32)) -> bool {
    stat(Path::new("/dev").join(name)).is_ok_and(|s| {
        FileType::from_raw_mode(s.st_mode) == FileType::CharacterDevice
            && (major(s.st_rdev), minor(s.st_rdev)) == (want_major, want_minor)
    })
}

/// `6.1.0-18-amd64` → (6, 1, 0). A missing third number is 0.
pub fn version(release: &str) -> Option<(u32, u32, u32)> {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    let mut numbers = release[..end].split('.').map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

/// Whether the lines of a `uid_map` or `gid_map` map `count` ids from `first` on, as seen inside (user_namespaces(7)).
pub(super) fn maps_all(map: &str, first: u64, count: u64) -> bool {
    let mut ranges: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            Some((*numbers.first()?, *numbers.get(2)?))
        })
        .collect();
    ranges.sort_unstable();
    let mut next = first;
    for (start, length) in ranges {
        if start <= next && next < start + length {
            next = start + length;
        }
    }
    next >= first + count
}
