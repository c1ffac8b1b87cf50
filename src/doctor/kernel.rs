//! The kernel itself: its version, faults that are known, system calls.

use std::fs;

use super::{Check, Status};
use crate::sandbox::host::{LEAST_KERNEL, Lack, probe, version};
use crate::sandbox::seccomp::Arch;

type Version = (u32, u32, u32);

/// A fault of the kernel that lets a sandboxed program change files of the host or worse.
struct Fault {
    name: &'static str,
    /// The first version that has it.
    from: Version,
    /// The first release without it in each stable series; the highest one is free of it with all that follow.
    fixed: &'static [Version],
    /// Debian's kernels of this day and later are free of it, whatever their number.
    debian_since: &'static str,
    /// What creel does about it.
    remark: &'static str,
}

/// Only faults that can be reached without capabilities or namespaces of one's own, neither of which a payload has.
const FAULTS: [Fault; 3] = [
    Fault {
        name: "Dirty Pipe, CVE-2022-0847",
        from: (5, 8, 0),
        fixed: &[(5, 10, 102), (5, 15, 25), (5, 16, 11), (5, 17, 0)],
        debian_since: "2022-03-07",
        remark: "a program can write into files that it may only read",
    },
    Fault {
        name: "StackRot, CVE-2023-3269",
        from: (6, 1, 0),
        fixed: &[(6, 1, 37), (6, 3, 11), (6, 4, 1), (6, 5, 0)],
        debian_since: "2023-08-01",
        remark: "a program can take over the kernel",
    },
    Fault {
        name: "Copy Fail, CVE-2026-31431",
        from: (4, 14, 0),
        // Series before 6.12 were mended at the end of April 2026; their numbers could not be checked, so they are warned of.
        fixed: &[(6, 12, 85), (6, 18, 22), (6, 19, 12), (7, 0, 0)],
        debian_since: "2026-06-01",
        remark: "closed in the sandbox: the filter refuses AF_ALG, but open to others on this host",
    },
];

pub fn checks() -> Vec<Check> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    vec![kernel(&release), architecture(&uname.machine().to_string_lossy()), calls(&release)]
}

fn kernel(release: &str) -> Check {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let long = read("/proc/version");
    let upstream = upstream(release, &read("/proc/version_signature"), &long);
    let day = debian_day(&long);
    let Some(upstream) = upstream else {
        return Check::ok("kernel", format!("Linux {release}"));
    };
    if (upstream.0, upstream.1) < LEAST_KERNEL {
        let (major, minor) = LEAST_KERNEL;
        return Check::fail(
            "kernel",
            format!("Linux {release}"),
            format!("boot Linux {major}.{minor} or newer"),
        );
    }
    let faults: Vec<String> = FAULTS
        .iter()
        .filter(|f| has(f, upstream) && day.is_none_or(|d| d < f.debian_since))
        .map(|f| format!("{}: {}", f.name, f.remark))
        .collect();
    if faults.is_empty() {
        return Check::ok("kernel", format!("Linux {release}"));
    }
    let found = format!("Linux {release} may have {}", faults.join("; "));
    Check::warn(
        "kernel",
        found,
        "boot your distribution's newest kernel (it may have the fix under an older number)",
    )
}

fn has(fault: &Fault, version: Version) -> bool {
    let series = |v: Version| (v.0, v.1);
    let in_series = fault.fixed.iter().find(|f| series(**f) == series(version));
    let for_good = fault.fixed.last().copied().unwrap_or(fault.from);
    version >= fault.from && version < for_good && in_series.is_none_or(|f| version < *f)
}

/// The version of kernel.org that this kernel was made from. Ubuntu and Debian number theirs differently and say so elsewhere:
/// `Ubuntu 5.15.0-91.101-generic 5.15.131` in version_signature, `… Debian 6.1.76-1 (2024-02-01)` in version.
fn upstream(release: &str, signature: &str, long: &str) -> Option<Version> {
    let ubuntu = signature.split_whitespace().last().and_then(version);
    // The compiler's own "Debian 12.2.0-14" comes before it.
    let debian = long.rsplit_once(" Debian ").and_then(|(_, rest)| version(rest));
    ubuntu.or(debian).or_else(|| version(release))
}

/// The day at the end of `… Debian 6.1.76-1 (2024-02-01)`.
fn debian_day(long: &str) -> Option<&str> {
    let (_, rest) = long.trim_end().rsplit_once(" Debian ")?;
    let day = rest.split_once(" (")?.1.strip_suffix(')')?;
    (day.len() == 10 && day.starts_with("20")).then_some(day)
}

fn architecture(machine: &str) -> Check {
    match Arch::native() {
        Some(_) => Check::ok("architecture", machine),
        None => Check::lack("architecture", Status::Fail, &Lack::Architecture),
    }
}

fn calls(release: &str) -> Check {
    const NAME: &str = "system calls";
    let absent = probe::absent_calls();
    if absent.is_empty() {
        return Check::ok(NAME, "clone3, pidfd, close_range, openat2 and the mount API are there");
    }
    let new_enough = version(release).is_none_or(|v| (v.0, v.1) >= LEAST_KERNEL);
    let what = format!("use {}", absent.join(", "));
    Check::lack(NAME, Status::Fail, &Lack::Call { what, release: release.into(), new_enough })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(release: &str) -> Vec<&'static str> {
        let version = version(release).unwrap();
        FAULTS.iter().filter(|f| has(f, version)).map(|f| f.name.split(',').next().unwrap()).collect()
    }

    #[test]
    fn dirty_pipe_cve_2022_0847_and_its_kin_are_told_by_version() {
        assert_eq!(faults("5.13.19"), ["Dirty Pipe", "Copy Fail"]);
        assert_eq!(faults("5.15.24"), ["Dirty Pipe", "Copy Fail"]);
        assert_eq!(faults("5.15.25"), ["Copy Fail"]);
        assert_eq!(faults("5.17.0"), ["Copy Fail"]);
        assert_eq!(faults("6.1.36"), ["StackRot", "Copy Fail"]);
        assert_eq!(faults("6.2.9"), ["StackRot", "Copy Fail"]);
        assert_eq!(faults("6.12.84"), ["Copy Fail"]);
        for good in ["6.12.85", "6.18.44", "6.19.12", "7.0.0", "7.1.3"] {
            assert!(faults(good).is_empty(), "{good}");
        }
    }

    #[test]
    fn distributions_number_their_kernels_themselves() {
        let ubuntu =
            upstream("5.15.0-91-generic", "Ubuntu 5.15.0-91.101-generic 5.15.131\n", "Linux version 5.15.0");
        assert_eq!(ubuntu, Some((5, 15, 131)));
        let debian = "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, \
                      GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)";
        assert_eq!(upstream("6.1.0-18-amd64", "", debian), Some((6, 1, 76)));
        assert_eq!(debian_day(debian), Some("2024-02-01"));
        assert_eq!(
            debian_day("Linux version 6.12.1 (gcc (Debian 12.2.0-14) 12.2.0) #1 Mon Nov 30 2026"),
            None
        );
        assert_eq!(upstream("6.18.44-fc", "", "Linux version 6.18.44-fc"), Some((6, 18, 44)));
        assert_eq!(upstream("what", "", ""), None);
    }
}
