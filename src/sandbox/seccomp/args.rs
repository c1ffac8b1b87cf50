//! How wide each argument is in the kernel.
//!
//! A filter sees six 64-bit registers, but the kernel looks only at the low half of an `int`: an `ioctl` command of
//! `TIOCSTI | 1 << 32` is TIOCSTI to the kernel and something else to a filter that compares 64 bits
//! (CVE-2019-7303). The other way round, a pointer or size compared by its low half can be given any high half. OCI
//! profiles carry no widths, so they are kept here; a rule on an argument that is not listed is an error, never a
//! guess.

/// How much of an argument's register the kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// `umode_t`: the low 16 bits.
    Mode,
    /// `int`, `unsigned int`, `pid_t`, `uid_t` …: the low 32 bits.
    Int,
    /// Pointers, `size_t`, `unsigned long`, `loff_t`: all 64 bits.
    Long,
}

impl Width {
    /// The bits that count.
    pub(super) fn mask(self) -> u64 {
        match self {
            Width::Mode => 0xffff,
            Width::Int => 0xffff_ffff,
            Width::Long => u64::MAX,
        }
    }
}

/// `(call, its arguments in order)`: m = [`Width::Mode`], i = [`Width::Int`], l = [`Width::Long`]. Sorted.
///
/// From the `SYSCALL_DEFINE` lines of Linux. `clone` has `unsigned long` flags, but the kernel takes
/// `lower_32_bits(clone_flags)`; `unshare` really uses all 64 bits; `mmap` takes six `unsigned long` on both
/// architectures.
#[rustfmt::skip]
const WIDTHS: &[(&str, &str)] = &[
    ("accept", "ill"), ("accept4", "illi"), ("access", "li"), ("arch_prctl", "il"), ("bind", "ili"),
    ("bpf", "ili"), ("chmod", "lm"), ("clock_adjtime", "il"), ("clock_settime", "il"), ("clone", "illll"),
    ("clone3", "ll"), ("close_range", "iii"), ("connect", "ili"), ("creat", "lm"), ("dup3", "iii"),
    ("epoll_create1", "i"), ("eventfd2", "ii"), ("execveat", "illli"), ("faccessat2", "ilii"),
    ("fallocate", "iill"), ("fanotify_init", "ii"), ("fchmod", "im"), ("fchmodat", "ilm"), ("fchmodat2", "ilmi"),
    ("fcntl", "iil"), ("flock", "ii"), ("futex", "liilli"), ("getpriority", "ii"), ("getrlimit", "il"),
    ("getsockopt", "iiill"), ("inotify_init1", "i"), ("io_uring_setup", "il"), ("ioctl", "iil"),
    ("ioprio_get", "ii"), ("ioprio_set", "iii"), ("kcmp", "iiill"), ("keyctl", "illll"), ("kill", "ii"),
    ("linkat", "ilili"), ("listen", "ii"), ("lseek", "ili"), ("madvise", "lli"), ("mbind", "llllli"),
    ("membarrier", "iii"), ("memfd_create", "li"), ("memfd_secret", "i"), ("mkdir", "lm"), ("mkdirat", "ilm"),
    ("mknod", "lmi"), ("mknodat", "ilmi"), ("mlock2", "lli"), ("mlockall", "i"), ("mmap", "llllll"),
    ("mount", "lllll"), ("mprotect", "lll"), ("mremap", "lllll"), ("msgget", "ii"), ("msync", "lli"),
    ("open", "lim"), ("openat", "ilim"), ("perf_event_open", "liiil"), ("personality", "i"), ("pidfd_open", "ii"),
    ("pidfd_send_signal", "iili"), ("pipe2", "li"), ("pkey_mprotect", "llli"), ("prctl", "illll"),
    ("prlimit64", "iill"), ("ptrace", "llll"), ("quotactl", "ilil"), ("reboot", "iiil"), ("recvfrom", "illill"),
    ("renameat2", "ilili"), ("sched_setaffinity", "iil"), ("sched_setattr", "ili"),
    ("sched_setparam", "il"), ("sched_setscheduler", "iil"), ("seccomp", "iil"), ("semget", "iii"),
    ("sendto", "illili"), ("set_mempolicy", "ill"), ("setns", "ii"), ("setpriority", "iii"), ("setrlimit", "il"),
    ("setsockopt", "iiili"), ("shmget", "ili"), ("shutdown", "ii"), ("signalfd4", "illi"), ("socket", "iii"),
    ("socketpair", "iiil"), ("statx", "iliil"), ("syslog", "ili"), ("tgkill", "iii"), ("timerfd_create", "ii"),
    ("tkill", "ii"), ("umount2", "li"), ("unlinkat", "ili"), ("unshare", "l"), ("userfaultfd", "i"),
    ("wait4", "ilil"), ("waitid", "iilil"),
];

/// The width of argument `index` (0 to 5) of the call `name`; `None` if it is not known or there is no such argument.
pub(super) fn width(name: &str, index: u32) -> Option<Width> {
    let at = WIDTHS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    match WIDTHS[at].1.as_bytes().get(usize::try_from(index).ok()?)? {
        b'm' => Some(Width::Mode),
        b'i' => Some(Width::Int),
        _ => Some(Width::Long),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn sorted_known_and_well_formed() {
        assert!(WIDTHS.windows(2).all(|w| w[0].0 < w[1].0));
        for (name, widths) in WIDTHS {
            assert!(table::find(name).is_some(), "{name} is no system call");
            assert!(widths.len() <= 6 && widths.bytes().all(|b| b"mil".contains(&b)), "{name}");
        }
    }

    #[test]
    fn no_guess_for_what_is_not_listed() {
        assert_eq!(width("ioctl", 1), Some(Width::Int));
        assert_eq!(width("ioctl", 2), Some(Width::Long));
        assert_eq!(width("mknodat", 2), Some(Width::Mode));
        assert_eq!(width("ioctl", 3), None);
        assert_eq!(width("getpid", 0), None);
    }
}
