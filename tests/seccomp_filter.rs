//! The system-call filters decide as the profiles promise: every number, and the corners of arguments. Runs the compiled
//! programs in an interpreter; that the kernel agrees is in `seccomp_kernel.rs`.

use std::collections::{BTreeMap, BTreeSet};

use creel::sandbox::seccomp::Arch;

mod bpf;
use bpf::{Call, Subject, run};

const DEFAULT: &str = include_str!("../profiles/seccomp/default.json");
const STRICT: &str = include_str!("../profiles/seccomp/strict.json");

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;
const ENOPROTOOPT: u32 = 0x0005_005c;
const EPROTONOSUPPORT: u32 = 0x0005_005d;
const EAFNOSUPPORT: u32 = 0x0005_0061;

/// Rubbish in the half of a register that the kernel does not read.
const HIGH: u64 = 0xdead_beef_0000_0000;

#[test]
fn every_number_answers_as_the_table_says() {
    for subject in Subject::both(DEFAULT) {
        let known: BTreeMap<u32, _> =
            subject.table.iter().map(|(n, name, answer)| (*n, (*name, *answer))).collect();
        for number in 0..1024 {
            let (name, answer) = known.get(&number).copied().unwrap_or(("unknown", "ENOSYS"));
            // Two patterns: an answer that takes no arguments must not change with them.
            let (a, b) = (subject.by_number(number, &[0; 6]), subject.by_number(number, &[u64::MAX; 6]));
            if answer == "arguments" {
                assert!(a.read_args && b.read_args, "{number} {name} looks at no argument");
                continue;
            }
            let verdict = match answer {
                "allow" => ALLOW,
                "EPERM" => EPERM,
                "ENOSYS" => ENOSYS,
                other => panic!("{other}?"),
            };
            assert_eq!((a.verdict, b.verdict), (verdict, verdict), "{number} {name}");
            assert!(
                !a.read_args,
                "{number} {name}: the kernel can't remember an answer that reads arguments"
            );
        }
    }
}

#[test]
fn short_enough_to_be_fast() {
    for subject in Subject::both(DEFAULT).iter().chain(&Subject::both(STRICT)) {
        assert!(subject.filter.instructions().len() < 250, "{}", subject.filter.instructions().len());
        let longest = subject.table.iter().map(|(n, ..)| subject.by_number(*n, &[0; 6]).steps).max();
        assert!(longest < Some(40), "{longest:?} steps");
    }
}

#[test]
fn strict_differs_only_where_it_should() {
    for (default, strict) in Subject::both(DEFAULT).into_iter().zip(Subject::both(STRICT)) {
        let differ: BTreeSet<&str> = (default.table.iter())
            .filter(|(n, ..)| default.by_number(*n, &[0; 6]).verdict != strict.by_number(*n, &[0; 6]).verdict)
            .map(|(_, name, _)| *name)
            .collect();
        let expected = ["io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit"];
        let expected = expected.into_iter().chain(["mknod", "mknodat", "remap_file_pages", "vmsplice"]);
        assert_eq!(differ, expected.filter(|name| default.number(name).is_some()).collect());
        for family in 0..50 {
            for kind in [1, 2, 3, 5] {
                strict.expect("socket", &[family, kind, 0], if family == 1 { ALLOW } else { EAFNOSUPPORT });
            }
        }
        for name in ["mknod", "mknodat"] {
            strict.expect(name, &[0, 0x1000, 0x1000], EPERM);
        }
    }
}

/// x32 numbers, whatever they mean, and -1 with which a tracer skips a call.
#[test]
fn x32_numbers_are_refused() {
    let [x86_64, aarch64] = Subject::both(DEFAULT);
    for number in (0..1024).map(|n| 0x4000_0000 + n).chain([0x7fff_ffff, 0x8000_0000, u32::MAX]) {
        for subject in [&x86_64, &aarch64] {
            assert_eq!(subject.by_number(number, &[0; 6]).verdict, ENOSYS, "{number:#x}");
        }
    }
    // Also where the profile allows by default.
    let open =
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["ptrace"],"action":"SCMP_ACT_ERRNO"}]}"#;
    let open = Subject::new(open, Arch::X86_64);
    assert_eq!(open.by_number(0x4000_0000 + 101, &[]).verdict, ENOSYS);
    assert_eq!(open.by_number(101, &[]).verdict, EPERM);
    assert_eq!(open.by_number(600, &[]).verdict, ALLOW);
}

/// i386 by `int 0x80`, arm, and the other 64-bit architecture.
#[test]
fn foreign_architectures_are_killed() {
    for subject in Subject::both(DEFAULT) {
        for arch in [0x4000_0003, 0x4000_0028, 0xc000_003e, 0xc000_00b7, 0xc000_00f3, 0, u32::MAX] {
            for number in 0..512 {
                let outcome = run(subject.filter.instructions(), &Call { number, arch, args: [0; 6] });
                assert_eq!(outcome.verdict == KILL_PROCESS, arch != subject.audit, "{arch:#x} {number}");
            }
        }
    }
}

/// CVE-2022-0185, CVE-2023-32233, CVE-2024-1086: no new user namespace, the key to each of them.
#[test]
fn clone_with_any_namespace_flag_is_refused() {
    let namespaces =
        [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    for subject in Subject::both(DEFAULT) {
        for bit in 0..64 {
            let verdict = if namespaces.contains(&(1u64 << bit)) { EPERM } else { ALLOW };
            subject.expect("clone", &[1 << bit], verdict);
            subject.expect("clone", &[1 << bit | 0x11], verdict);
        }
        subject.expect("clone", &[0x003d_0f00], ALLOW); // pthread_create
        subject.expect("clone", &[0x0120_0011], ALLOW); // fork
        subject.expect("clone", &[0x4111], ALLOW); // vfork, posix_spawn
        subject.expect("clone", &[HIGH | 0x1000_0011], EPERM);
        subject.expect("clone3", &[0, 88], ENOSYS); // EPERM would break threads (moby#42680)
        subject.expect("unshare", &[0x1000_0000], EPERM);
    }
}

/// CVE-2019-7303, CVE-2019-10063: the kernel reads the low half only, so the filter must.
#[test]
fn the_high_half_of_an_int_does_not_matter() {
    for subject in Subject::both(DEFAULT) {
        for command in [0x5412, 0x541c, 0x541d, 0x5423] {
            for high in [0, 1 << 32, HIGH, 0xffff_ffff_0000_0000] {
                subject.expect("ioctl", &[0, command | high, 0], EPERM);
                subject.expect("ioctl", &[high, (command + 0x100) | high, high], ALLOW);
            }
        }
        for command in [0x5401, 0x5413, 0x5421, 0x541b, 0x8008_5430] {
            subject.expect("ioctl", &[0, command, 0x5412], ALLOW); // TCGETS, TIOCGWINSZ, FIONBIO, FIONREAD …
        }
        subject.expect("socket", &[HIGH | 40, 1, 0], EAFNOSUPPORT);
        subject.expect("socket", &[HIGH | 2, HIGH | 1, HIGH], ALLOW);
        subject.expect("socket", &[2, HIGH | 3, 0], EPERM);
        subject.expect("personality", &[HIGH | 0xffff_ffff], ALLOW);
        subject.expect("personality", &[HIGH | 0x0004_0000], EPERM);
        subject.expect("prctl", &[HIGH | 35, 1], EPERM);
        subject.expect("seccomp", &[1, HIGH | 8], EPERM);
        subject.expect("setsockopt", &[3, HIGH | 6, HIGH | 31], ENOPROTOOPT);
        // A mode has 16 bits in the kernel.
        subject.expect("mknodat", &[0, 0, HIGH | 0xabcd_2000, 0x103], EPERM);
        subject.expect("mknodat", &[0, 0, HIGH | 0xabcd_1000, 0], ALLOW);
    }
}

#[test]
fn socket_families_types_and_protocols() {
    for subject in Subject::both(DEFAULT) {
        let flags = [0, 0x0008_0000, 0x800, 0x0008_0800]; // SOCK_CLOEXEC, SOCK_NONBLOCK
        for (family, flag) in (0..50).flat_map(|family| flags.map(|flag| (family, flag))) {
            for (kind, protocol) in
                (0..16).flat_map(|kind| [0, 1, 2, 6, 15, 17, 58, 132, 262].map(|p| (kind, p)))
            {
                let verdict = match (family, kind, protocol) {
                    (1, _, _) | (16, _, 0) => ALLOW,
                    (2 | 10, 1, 0 | 6) | (2 | 10, 2, 0 | 1 | 17 | 58) => ALLOW,
                    (2 | 10, 3 | 10, _) => EPERM,
                    (2 | 10, _, _) => EPROTONOSUPPORT,
                    _ => EAFNOSUPPORT, // ALG 38 (CVE-2026-31431), VSOCK 40, PACKET 17 (CVE-2020-14386)
                };
                subject.expect("socket", &[family, kind | flag, protocol], verdict);
            }
            let pair = if family == 1 { ALLOW } else { EAFNOSUPPORT };
            subject.expect("socketpair", &[family, 1 | flag, 0, 0], pair);
        }
        // AF_UNIX as a negative or huge family.
        subject.expect("socket", &[0xffff_ffff, 1, 0], EAFNOSUPPORT);
        subject.expect("socket", &[0x8000_0002, 1, 0], EAFNOSUPPORT);
    }
}

#[test]
fn the_other_arguments() {
    for subject in Subject::both(DEFAULT) {
        subject.expect("personality", &[0], ALLOW);
        for persona in [8, 0x0002_0000, 0x0002_0008, 0x0004_0000, 0x0040_0000, 0xffff_fffe] {
            subject.expect("personality", &[persona], EPERM);
        }
        for (kind, verdict) in
            [(0, ALLOW), (1, ALLOW), (2, EPERM), (4, EPERM), (6, EPERM), (8, ALLOW), (12, ALLOW)]
        {
            subject.expect("mknod", &[0, kind << 12 | 0o644, 0], verdict);
            subject.expect("mknodat", &[0, 0, kind << 12 | 0o644, 0], verdict);
        }
        subject.expect("seccomp", &[1, 1, 0], ALLOW); // TSYNC
        for flags in [8, 9, 0x18, 0x28] {
            subject.expect("seccomp", &[1, flags, 0], EPERM);
        }
        for option in [1, 4, 15, 22, 36, 38, 53, 0x5356_4d41, 0x5961_6d61] {
            subject.expect("prctl", &[option, 35, 62], ALLOW);
        }
        subject.expect("prctl", &[62], EPERM);
        subject.expect("setsockopt", &[3, 6, 1], ALLOW); // TCP_NODELAY
        subject.expect("setsockopt", &[3, 1, 31], ALLOW);
    }
}

/// Init has the payload's uid: whoever may make it idle or pin it can make a finished run look like a timeout.
#[test]
fn the_schedule_and_limits_of_init_are_out_of_reach() {
    let by_pid = ["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"];
    let by_kind = [("setpriority", 0), ("ioprio_set", 1)]; // PRIO_PROCESS, IOPRIO_WHO_PROCESS
    for subject in Subject::both(DEFAULT).into_iter().chain(Subject::both(STRICT)) {
        // A pid is an int: the kernel drops the high half.
        for high in [0, 1 << 32, HIGH, 0xffff_ffff_0000_0000] {
            for (pid, verdict) in [(0, ALLOW), (1, EPERM), (2, ALLOW), (257, ALLOW), (0x8000_0001, ALLOW)]
                .into_iter()
                .chain([(0x1_0001, ALLOW), (0xffff_ffff, ALLOW)])
            {
                for name in by_pid {
                    subject.expect(name, &[pid | high, 1, 1, 1], verdict);
                    subject.expect(name, &[pid | high, 0, 0, 0], verdict);
                }
                for (name, process) in by_kind {
                    subject.expect(name, &[process | high, pid | high, 19], verdict);
                    subject.expect(name, &[process, pid | high, 0], verdict);
                }
            }
        }
    }
}
