use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::super::testing::{line, run, with};
use super::*;
use crate::executor::request::{Lang, Program};

fn script(request: Request) -> (Lang, String, Vec<OsString>) {
    match request.program {
        Program::Script { lang, code, args } => (lang, String::from_utf8(code).unwrap(), args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn code_and_arguments() {
    let request = run(&["-c", "print(1)", "--", "a", "-b", "--json"]).unwrap();
    assert_eq!(request.image, "host");
    assert!(request.pass_through && request.run_id.starts_with("run_") && request.notes.is_empty());
    assert_eq!(
        script(request),
        (Lang::Python, "print(1)".into(), vec!["a".into(), "-b".into(), "--json".into()])
    );
    assert_eq!(script(run(&["-c", "-1"]).unwrap()).1, "-1");
    assert_eq!(script(run(&["--lang", "bash", "-c", "echo 你好"]).unwrap()).0, Lang::Bash);
    assert!(!run(&["--json", "-c", ""]).unwrap().pass_through);
}

#[test]
fn scripts_by_suffix_and_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (name, text, lang) in [
        ("分析.py", "#!/bin/bash", Lang::Python),
        ("a.sh", "", Lang::Bash),
        ("b.bash", "", Lang::Bash),
        ("tool", "#!/usr/bin/env bash\n", Lang::Bash),
        ("plain", "x", Lang::Python),
    ] {
        std::fs::write(at(name), text).unwrap();
        assert_eq!(script(run(&[&at(name)]).unwrap()), (lang, text.to_owned(), vec![]), "{name}");
    }
    assert_eq!(script(run(&["--lang", "python", &at("a.sh"), "--", "x"]).unwrap()).0, Lang::Python);
    assert!(
        line(&[&at("nosuch.py")])
            .starts_with(&format!("script '{}' does not exist (give a file", at("nosuch.py")))
    );
    assert!(line(&[&at("")]).contains("is a directory, not a regular file"));
    assert!(line(&["/dev/null"]).contains("is a character device"));
    File::create(at("big.py")).unwrap().set_len(program::PROGRAM_MAX + 1).unwrap();
    assert!(line(&[&at("big.py")]).starts_with("program over 8 MB: '"));
    File::create(at("full.py")).unwrap().set_len(program::PROGRAM_MAX).unwrap();
    assert!(run(&[&at("full.py")]).is_ok());
}

#[test]
fn commands() {
    let request = with(&[OsStr::new("--"), OsStr::new("/bin/echo"), OsStr::from_bytes(b"\xff")]).unwrap();
    assert_eq!(request.program, Program::Command(vec!["/bin/echo".into(), OsString::from_vec(vec![0xff])]));
    assert_eq!(run(&["--image", "./src"]).unwrap().program, Program::ImageDefault);
    assert!(line(&[]).starts_with("no program given"));
    assert!(line(&["--", ""]).contains("empty string"));
    assert!(line(&["--lang", "bash", "--", "ls"]).contains("--lang goes with a script"));
    assert!(line(&["--lang", "ruby", "-c", "1"]).contains("unknown language 'ruby'; accepted: python, bash"));
    assert!(line(&["--", "a\0b"]).contains("contains a NUL"));
}

#[test]
fn images() {
    assert!(line(&["--image", "nosuch", "-c", ""]).starts_with("no image 'nosuch' (there are: host"));
    assert!(line(&["--image", "", "-c", ""]).starts_with("no image ''"));
    assert!(line(&["--image", "src", "-c", ""]).ends_with("is given with a slash: ./src)"));
    assert_eq!(line(&["--image", "./nosuch", "-c", ""]), "--image: './nosuch' does not exist");
    assert_eq!(line(&["--image", "./Cargo.toml", "-c", ""]), "--image: './Cargo.toml' is not a directory");
}

#[test]
fn flags_go_over_the_profile() {
    let request = run(&[
        "--memory",
        "1g",
        "--cpus",
        "2",
        "--pids",
        "64",
        "--tmp",
        "256m",
        "--output-max",
        "1MiB",
        "--timeout",
        "1.5",
        "-c",
        "",
    ]);
    let limits = request.unwrap().limits;
    assert_eq!((limits.memory, limits.cpu_millis, limits.pids), (1 << 30, 2000, 64));
    assert_eq!((limits.tmp, limits.output, limits.timeout.as_millis()), (256 << 20, 1 << 20, 1500));
    let strict = run(&["--profile", "strict", "--pids", "40", "-c", ""]).unwrap();
    assert_eq!((strict.limits.pids, strict.limits.memory, &*strict.seccomp.name), (40, 256 << 20, "strict"));
    assert!(
        line(&["--profile", "nosuch", "-c", ""])
            .starts_with("no profile 'nosuch'; there are: default, strict, office")
    );
}

#[test]
fn a_timeout_over_the_maximum_is_clamped_and_noted() {
    let request = run(&["--timeout", "600", "-c", ""]).unwrap();
    assert_eq!(request.limits.timeout.as_secs(), 120);
    assert_eq!(request.notes, ["timeout clamped from 600 s to 120 s, the maximum of profile default"]);
    assert!(run(&["--timeout", "120", "-c", ""]).unwrap().notes.is_empty());
}

#[test]
fn tmpfs_follow_the_memory() {
    let request = run(&["--memory", "64m", "-c", ""]).unwrap();
    assert!(request.limits.tmp + request.limits.shm + request.limits.run <= 32 << 20);
    assert_eq!(request.notes.len(), 1);
    let conflict = line(&["--memory", "64m", "--tmp", "64m", "-c", ""]);
    assert!(conflict.starts_with("a /tmp of 64m does not fit into a memory of 64m"), "{conflict}");
}

#[test]
fn bad_limits() {
    for option in ["--timeout", "--memory", "--cpus", "--pids", "--tmp", "--output-max"] {
        for value in
            ["0", "-1", "-1.5", "nan", "inf", "", "five", "1e3", "99999999999999999999", "0x10", "数"]
        {
            let got = line(&[option, value, "-c", "1"]);
            assert!(
                got.starts_with(&format!("{option}: '{value}' ")) && got.contains("; accepted: "),
                "{got}"
            );
        }
        let got = line(&[option, "--json", "-c", "1"]);
        assert_eq!(got, format!("{option} needs a value, and '--json' follows it"));
    }
    assert!(
        line(&["--memory", "1m", "-c", "1"]).starts_with("--memory: '1m' is too small; accepted: 4m to 1p")
    );
    assert!(line(&["--pids", "4194305", "-c", "1"]).contains("is too large"));
}

#[test]
fn environment() {
    let env = run(&["--env", "A=1", "--env", "B=x=y", "--env", "C=", "--env", "A=销", "-c", ""]).unwrap().env;
    let want = [("A", "销"), ("B", "x=y"), ("C", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(env.into_iter().collect::<Vec<_>>(), want);
    assert!(line(&["--env", "A", "-c", ""]).starts_with("--env: 'A' has no '='"));
    for name in ["", "A\nB", "\u{7f}"] {
        assert!(
            line(&["--env", &format!("{name}=x"), "-c", ""]).contains("is no name for a variable"),
            "{name}"
        );
    }
    assert!(line(&["--env", "A=b\0", "-c", ""]).contains("contains a NUL"));
    assert!(
        line(&["--env", &format!("A={}", "x".repeat(200_000)), "-c", ""]).contains("longer than 128 KiB")
    );
}

#[test]
fn network_is_none_or_refused() {
    assert!(run(&["--net", "none", "-c", ""]).is_ok());
    assert_eq!(line(&["--net", "", "-c", ""]), "--net: the list is empty; accepted: none");
    for list in ["pypi.org:443", "all", "None", ",", " none"] {
        assert!(line(&["--net", list, "-c", ""]).contains("not in this version"), "{list}");
    }
}

#[test]
fn limits_that_may_be_unenforced() {
    let request = run(&["--allow-unenforced", "memory,cpu", "--allow-unenforced", "pids", "-c", ""]).unwrap();
    assert_eq!(request.allow_unenforced.len(), 3);
    for bad in ["all", "", "memory,", "Memory"] {
        assert!(
            line(&["--allow-unenforced", bad, "-c", ""]).contains("accepted: memory, pids, cpu"),
            "{bad}"
        );
    }
}
