//! The compiler of system-call filters: what it refuses and how it says so, its limits, and that its programs decide as
//! those of seccompiler, and as a plain reading of the rules.

use std::collections::BTreeMap;

use creel::sandbox::seccomp::{Arch, compile};
use proptest::prelude::*;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

mod bpf;
use bpf::{Call, Subject, run};

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;

/// The whole chain of causes, as a user sees it.
fn refusal(json: &str) -> String {
    let error: Box<dyn std::error::Error> = Box::new(compile(json, "p.json").unwrap_err());
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn with_call(call: &str) -> String {
    format!(r#"{{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{call}]}}"#)
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let entry = |name: &str, rest: &str| with_call(&format!(r#"{{"names":["{name}"],"action":{rest}}}"#));
    let arg = |name: &str, arg: &str| entry(name, &format!(r#""SCMP_ACT_ALLOW","args":[{arg}]"#));
    let eq = |name: &str, index: u32, value: u64| {
        arg(name, &format!(r#"{{"index":{index},"value":{value},"op":"SCMP_CMP_EQ"}}"#))
    };
    let cases = [
        ("{\n  \"defaultAction\": oops }".to_owned(), vec!["p.json", "line 2 column"]),
        ("{}".to_owned(), vec!["missing field `defaultAction`"]),
        (r#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#.to_owned(), vec!["SCMP_ACT_NOTIFY", "SCMP_ACT_ALLOW"]),
        (entry("read", r#""SCMP_ACT_TRACE""#), vec!["SCMP_ACT_TRACE", "line 1 column"]),
        (entry("raed", r#""SCMP_ACT_ALLOW""#), vec!["p.json", "unknown system call raed"]),
        (
            r#"{"defaultAction":"SCMP_ACT_ALLOW","flags":["SECCOMP_FILTER_FLAG_LOG"]}"#.to_owned(),
            vec!["`flags`"],
        ),
        (r#"{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/x"}"#.to_owned(), vec!["`listenerPath`"]),
        (entry("read", r#""SCMP_ACT_ERRNO","errnoret":1"#), vec!["`errnoret`"]),
        (entry("read", r#""SCMP_ACT_ERRNO","errnoRet":4096"#), vec!["errnoRet 4096 is above 4095"]),
        (entry("read", r#""SCMP_ACT_ALLOW","errnoRet":1"#), vec!["errnoRet is given to an action"]),
        (eq("ioctl", 6, 1), vec!["ioctl", "argument 6"]),
        (eq("getpid", 0, 1), vec!["getpid", "argument 0"]),
        (eq("ioctl", 1, 1 << 32), vec!["ioctl", "4294967296 does not fit argument 1"]),
        (eq("mknod", 1, 0x10000), vec!["mknod", "65536 does not fit"]),
        (arg("socket", r#"{"index":0,"value":1,"op":"SCMP_CMP_XX"}"#), vec!["SCMP_CMP_XX"]),
        (arg("socket", r#"{"index":0,"value":1,"valueTwo":2,"op":"SCMP_CMP_MASKED_EQ"}"#), vec!["never 2"]),
        (arg("socket", r#"{"index":0,"value":1,"valueTwo":2,"op":"SCMP_CMP_EQ"}"#), vec!["valueTwo"]),
        (
            arg(
                "kill",
                r#"{"index":1,"value":1,"op":"SCMP_CMP_GE"},{"index":1,"value":9,"op":"SCMP_CMP_LE"}"#,
            ),
            vec!["kill", "argument 1 is tested twice"],
        ),
        (
            with_call(
                r#"{"names":["kill"],"action":"SCMP_ACT_ALLOW"},{"names":["kill"],"action":"SCMP_ACT_TRAP"}"#,
            ),
            vec!["kill", "earlier entry"],
        ),
        (
            r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_S390X"]}"#.to_owned(),
            vec!["lack SCMP"],
        ),
        (r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["x86"]}"#.to_owned(), vec!["x86 is no"]),
    ];
    for (json, parts) in cases {
        let text = refusal(&json);
        for part in parts {
            assert!(text.contains(part), "{json}\n gives {text:?}\n without {part:?}");
        }
    }
}

/// One `ioctl` rule for each of `count` commands: command n answers errno n.
fn many_rules(count: u32) -> String {
    let rule = |n| {
        format!(
            r#"{{"names":["ioctl"],"action":"SCMP_ACT_ERRNO","errnoRet":{n},
                "args":[{{"index":1,"value":{n},"op":"SCMP_CMP_EQ"}}]}}"#
        )
    };
    with_call(&(1..=count).map(rule).collect::<Vec<_>>().join(","))
}

#[test]
fn jumps_longer_than_255_and_the_limit() {
    let text = refusal(&many_rules(2000));
    assert!(text.contains("instructions, the kernel takes 4096"), "{text}");
    for subject in Subject::both(&many_rules(1300)) {
        assert!(subject.filter.instructions().len() > 3900);
        for command in 1..=1300 {
            subject.expect("ioctl", &[0, command], 0x0005_0000 | command as u32);
        }
        subject.expect("ioctl", &[0, 1301], EPERM);
        subject.expect("read", &[], EPERM);
        assert_eq!(subject.by_number(900, &[]).verdict, ENOSYS);
    }
}

#[test]
fn every_action_and_empty_profiles() {
    let actions = [
        ("ALLOW", ALLOW),
        ("ERRNO", EPERM),
        ("KILL", 0),
        ("KILL_THREAD", 0),
        ("KILL_PROCESS", KILL_PROCESS),
        ("TRAP", 0x0003_0000),
        ("LOG", 0x7ffc_0000),
    ];
    for (action, verdict) in actions {
        for subject in Subject::both(&format!(r#"{{"defaultAction":"SCMP_ACT_{action}"}}"#)) {
            assert!((0..=471).all(|n| subject.by_number(n, &[]).verdict == verdict), "{action}");
        }
        let json = with_call(&format!(r#"{{"names":["kill"],"action":"SCMP_ACT_{action}","args":null}}"#));
        for subject in Subject::both(&json) {
            subject.expect("kill", &[], verdict);
            subject.expect("tkill", &[], EPERM);
        }
    }
}

/// Calls with an argument to compare: `(name, index, seccompiler's width)`.
const COMPARED: &[(&str, u8, bool)] = &[
    ("ioctl", 1, false),
    ("ioctl", 2, true),
    ("fcntl", 2, true),
    ("mmap", 2, true),
    ("kill", 1, false),
    ("prctl", 0, false),
    ("prctl", 1, true),
    ("socket", 0, false),
    ("unshare", 0, true),
    ("clone", 0, false),
    ("sendto", 3, false),
];
const OPERATORS: [&str; 7] = ["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"];

/// Few values, so that comparisons meet their edges.
fn value() -> impl Strategy<Value = u64> {
    let half = prop_oneof![Just(0u32), Just(1), Just(2), Just(7), Just(0x8000_0000), Just(u32::MAX)];
    (half.clone(), half).prop_map(|(high, low)| u64::from(high) << 32 | u64::from(low))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same allow-list through our compiler and through seccompiler's linear one.
    #[test]
    fn agrees_with_seccompiler(
        plain in prop::collection::vec(0usize..320, 0..200),
        rules in prop::collection::vec((0..COMPARED.len(), 0..OPERATORS.len(), value(), value()), 0..24),
        asked in prop::collection::vec(prop::array::uniform6(value()), 8),
    ) {
        for (arch, target) in [(Arch::X86_64, TargetArch::x86_64), (Arch::Aarch64, TargetArch::aarch64)] {
            let empty = Subject::new(r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#, arch);
            let mut entries = Vec::new();
            let mut theirs: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
            for &(which, op, value, mask) in &rules {
                let (name, index, long) = COMPARED[which];
                let (value, mask) = if long { (value, mask) } else { (value & 0xffff_ffff, mask & 0xffff_ffff) };
                let masked = OPERATORS[op] == "MASKED_EQ";
                let (first, second) = if masked { (mask, value & mask) } else { (value, 0) };
                entries.push(format!(
                    r#"{{"names":["{name}"],"action":"SCMP_ACT_ALLOW","args":[{{"index":{index},
                        "value":{first},"valueTwo":{second},"op":"SCMP_CMP_{}"}}]}}"#, OPERATORS[op]));
                let operator = match OPERATORS[op] {
                    "NE" => SeccompCmpOp::Ne,
                    "LT" => SeccompCmpOp::Lt,
                    "LE" => SeccompCmpOp::Le,
                    "EQ" => SeccompCmpOp::Eq,
                    "GE" => SeccompCmpOp::Ge,
                    "GT" => SeccompCmpOp::Gt,
                    _ => SeccompCmpOp::MaskedEq(mask),
                };
                let width = if long { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
                let condition = SeccompCondition::new(index, width, operator, value).unwrap();
                let number = i64::from(empty.number(name).unwrap());
                theirs.entry(number).or_default().push(SeccompRule::new(vec![condition]).unwrap());
            }
            for &which in &plain {
                let (number, name, _) = empty.table[which];
                if !COMPARED.iter().any(|(compared, ..)| *compared == name) {
                    entries.push(format!(r#"{{"names":["{name}"],"action":"SCMP_ACT_ALLOW"}}"#));
                    theirs.insert(i64::from(number), Vec::new());
                }
            }
            let json = format!(r#"{{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"syscalls":[{}]}}"#,
                entries.join(","));
            let ours = Subject::new(&json, arch);
            let theirs = SeccompFilter::new(theirs, SeccompAction::Errno(38), SeccompAction::Allow, target).unwrap();
            let theirs: Vec<libc::sock_filter> = seccompiler::BpfProgram::try_from(theirs).unwrap().iter()
                .map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
            for number in 0..520 {
                for args in &asked {
                    let call = Call { number, arch: ours.audit, args: *args };
                    let (a, b) = (run(ours.filter.instructions(), &call), run(&theirs, &call));
                    prop_assert_eq!(a.verdict, b.verdict, "{:?}\n{}", call, json);
                }
            }
        }
    }
}

/// Tests of `sendto`, whose arguments are of both widths: `(index, operator, value, second)`.
type Tests = Vec<(usize, usize, u64, u64)>;

/// What the profile's text means, written down plainly: the first rule whose tests all hold.
fn model(rules: &[Tests], args: &[u64; 6]) -> u32 {
    let holds = |&(index, op, value, second): &(usize, usize, u64, u64)| {
        let arg = if [1, 2, 4].contains(&index) { args[index] } else { args[index] & 0xffff_ffff };
        match OPERATORS[op] {
            "NE" => arg != value,
            "LT" => arg < value,
            "LE" => arg <= value,
            "EQ" => arg == value,
            "GE" => arg >= value,
            "GT" => arg > value,
            _ => arg & value == second,
        }
    };
    let first = rules.iter().position(|tests| tests.iter().all(holds));
    0x0005_0000 | first.map_or(38, |n| n as u32 + 100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rules of several tests, all with different answers, and few values, so that rules share tests.
    #[test]
    fn the_first_rule_that_holds_decides(
        rules in prop::collection::vec(
            prop::collection::vec((0usize..6, 0..OPERATORS.len(), value(), value()), 1..4), 1..20),
        asked in prop::collection::vec(prop::array::uniform6(value()), 40),
    ) {
        let mut cleaned: Vec<Tests> = Vec::new();
        let mut entries = Vec::new();
        for (n, rule) in rules.into_iter().enumerate() {
            let mut tests = Tests::new();
            for (index, op, value, second) in rule {
                let mask = if [1, 2, 4].contains(&index) { u64::MAX } else { 0xffff_ffff };
                let second = if OPERATORS[op] == "MASKED_EQ" { value & second & mask } else { 0 };
                if tests.iter().all(|(other, ..)| *other != index) {
                    tests.push((index, op, value & mask, second));
                }
            }
            let args: Vec<String> = tests.iter().map(|(index, op, value, second)| format!(
                r#"{{"index":{index},"value":{value},"valueTwo":{second},"op":"SCMP_CMP_{}"}}"#, OPERATORS[*op]
            )).collect();
            entries.push(format!(
                r#"{{"names":["sendto"],"action":"SCMP_ACT_ERRNO","errnoRet":{},"args":[{}]}}"#,
                n + 100, args.join(",")));
            cleaned.push(tests);
        }
        let json = format!(r#"{{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"syscalls":[{}]}}"#,
            entries.join(","));
        for subject in Subject::both(&json) {
            for args in &asked {
                prop_assert_eq!(subject.ask("sendto", args), Some(model(&cleaned, args)), "{:x?}\n{}", args, json);
            }
        }
    }
}
