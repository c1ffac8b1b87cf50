//! Promise: what can't be run is refused with exit code 126 and one clear line, and nothing was started or left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A place with one of each kind of file, in which `creel run` is started.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("good.py"), "print('started')").unwrap();
        std::fs::write(at("数据.csv"), "a,b\n").unwrap();
        std::fs::create_dir(at("目录")).unwrap();
        std::fs::File::create(at("big.py")).unwrap().set_len((8 << 20) + 1).unwrap();
        std::fs::File::create(at("giant")).unwrap().set_len(1 << 41).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        Place(dir)
    }

    fn run(&self, words: &[&OsStr], stdin: Stdio) -> Output {
        let started = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_creel"))
            .arg("run")
            .args(words)
            .current_dir(self.0.path())
            .stdin(stdin)
            .output()
            .unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "{words:?} took {:?}", started.elapsed());
        output
    }

    /// The one line on stderr of a run that is refused, without `creel: `.
    fn refused(&self, words: &[&str]) -> String {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        self.check(&words, self.run(&words, Stdio::null()))
    }

    fn check(&self, words: &[&OsStr], output: Output) -> String {
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(126), "{words:?}: {stderr}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
        assert!(stderr.len() < 700, "{words:?}: {stderr}");
        assert!(!self.0.path().join("outputs").exists(), "{words:?}");
        stderr.trim_end().strip_prefix("creel: ").unwrap_or_else(|| panic!("{stderr}")).to_owned()
    }

    /// As [`Self::refused`], and the line contains each of `parts`.
    fn says(&self, words: &[&str], parts: &[&str]) {
        let line = self.refused(words);
        for part in parts {
            assert!(line.contains(part), "{words:?}: {line:?} lacks {part:?}");
        }
    }
}

#[test]
fn options() {
    let place = Place::new();
    let see = "(see creel run --help)";
    place.says(
        &["--memroy", "1g", "good.py"],
        &["unexpected argument '--memroy'", "did you mean --memory?", see],
    );
    place
        .says(&["good.py", "a"], &["unexpected argument 'a'", "arguments of the program come after --", see]);
    place.says(&["-x"], &["unexpected argument '-x'", see]);
    place.says(&["good.py", "-c", "1"], &["cannot be used with", see]);
    place.says(&["good.py", "--image"], &["a value is required for '--image <NAME>'", see]);
    place.says(&["--memory", "1g", "--memory", "2g", "good.py"], &["cannot be used multiple times", see]);
    place.says(&["--json=yes", "good.py"], &["--json", see]);
    place.says(&[], &["no program given", "-c CODE"]);
    place.says(&["--", ""], &["the command after -- is an empty string"]);
    // What the caller typed can't break the line or reach the terminal.
    place.says(&["--a\nb\x1b[2J"], &["\\n", "\\u{1b}[2J"]);
    let long = format!("--{}", "x".repeat(100_000));
    assert!(place.refused(&[&long]).len() < 600);
    let odd = [OsStr::from_bytes(b"--\xff\xfe")];
    assert!(place.check(&odd, place.run(&odd, Stdio::null())).contains("unexpected argument"));
    let odd = [OsStr::new("--memory"), OsStr::from_bytes(b"\xff"), OsStr::new("good.py")];
    assert!(place.check(&odd, place.run(&odd, Stdio::null())).contains("--memory: '\\xFF' is not UTF-8"));
}

#[test]
fn scripts() {
    let place = Place::new();
    place.says(&["nosuch.py"], &["script 'nosuch.py' does not exist"]);
    place.says(&["目录"], &["script '目录' is a directory, not a regular file"]);
    place.says(&["fifo"], &["script 'fifo' is a FIFO (named pipe), not a regular file"]);
    place.says(&["/dev/zero"], &["script '/dev/zero' is a character device"]);
    place.says(&["dangling"], &["script 'dangling' does not exist"]);
    place.says(&["big.py"], &["program over 8 MB: 'big.py'"]);
    place.says(&["good.py/x"], &["script 'good.py/x' can't be read: not a directory"]);
    place.says(&[""], &["script '' does not exist"]);
    place.says(&["--lang", "perl", "good.py"], &["unknown language 'perl'; accepted: python, bash"]);
    place.says(&["--stdin", "-", "-"], &["can't be both the program"]);
    let big = [OsStr::new("-")];
    let zeros = || Stdio::from(std::fs::File::open("/dev/zero").unwrap());
    assert!(place.check(&big, place.run(&big, zeros())).contains("program over 8 MB: standard input"));
}

#[test]
fn inputs() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.0.path().join("socket")).unwrap();
    let input = |value: &str, part: &str| {
        place.says(&["--input", "数据.csv", "--input", value, "good.py"], &[part]);
    };
    input("nosuch", "input 'nosuch' does not exist");
    input("目录", "input '目录' is a directory, not a regular file");
    input("fifo", "input 'fifo' is a FIFO (named pipe), not a regular file");
    input("socket", "input 'socket' is a socket, not a regular file");
    input("/dev/zero", "input '/dev/zero' is a character device, not a regular file");
    input("dangling", "input 'dangling' does not exist");
    input("giant", "the inputs are larger than 2 GiB together, at 'giant'");
    input("数据.csv=", "empty name");
    input("nosuch=销售.csv", "input 'nosuch' does not exist");
    input("", "the path is an empty string");
    let odd = [OsStr::new("--input"), OsStr::from_bytes(b"caf\xe9\n"), OsStr::new("good.py")];
    let line = place.check(&odd, place.run(&odd, Stdio::null()));
    assert!(line.contains("input 'caf\\xE9\\n' does not exist"), "{line}");
}

/// A file that its reader has no right to; root has, so this one drops its rights.
#[test]
fn unreadable_files() {
    let place = Place::new();
    let at = |name: &str| place.0.path().join(name);
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    std::fs::write(at("秘密"), "x").unwrap();
    mode(&at("秘密"), 0);
    mode(place.0.path(), 0o777);
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_creel"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut command, 65534);
            std::os::unix::process::CommandExt::gid(&mut command, 65534);
        }
        // Another user may be unable to reach the program; then there is nothing to test.
        command.arg("run").args(words).current_dir(place.0.path()).stdin(Stdio::null()).output()
    };
    match run(&["秘密"]) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
        output => {
            let line = place.check(&[], output.unwrap());
            assert!(line.contains("script '秘密' can't be read: permission denied"), "{line}");
        }
    }
    let line = place.check(&[], run(&["--stdin", "秘密", "good.py"]).unwrap());
    assert!(line.contains("'秘密' can't be read: permission denied"), "{line}");
    std::fs::create_dir(at("locked")).unwrap();
    mode(&at("locked"), 0o555);
    let line = place.check(&[], run(&["--output", "locked/x", "good.py"]).unwrap());
    assert!(line.contains("locked' can't be written: permission denied"), "{line}");
}

#[test]
fn limits() {
    let place = Place::new();
    for option in ["--timeout", "--memory", "--cpus", "--pids", "--tmp", "--output-max"] {
        for (value, what) in [
            ("0", "is zero"),
            ("-1", "is negative"),
            ("-0.5", "is negative"),
            ("nan", "is not a number"),
            ("", "is empty"),
            ("lots", "is not a number"),
            ("99999999999999999999999", "is too large"),
        ] {
            let quoted = format!("{option}: '{value}' {what}");
            place.says(&[option, value, "good.py"], &[&quoted, "; accepted: "]);
            place.says(&[&format!("{option}={value}"), "good.py"], &[&quoted]);
        }
    }
    place.says(&["--memory", "2p", "good.py"], &["--memory: '2p' is too large"]);
    place.says(&["--memory", "1m", "good.py"], &["--memory: '1m' is too small; accepted: 4m to 1p"]);
    place.says(&["--pids", "4194305", "good.py"], &["--pids: '4194305' is too large"]);
    place.says(
        &["--memory", "64m", "--tmp", "1g", "good.py"],
        &["/tmp of 1g does not fit into a memory of 64m"],
    );
}

#[test]
fn everything_else() {
    let place = Place::new();
    place.says(&["--image", "nosuch", "good.py"], &["no image 'nosuch'", "host"]);
    place.says(&["--image", "目录", "good.py"], &["no image '目录'", "./目录"]);
    place.says(&["--image", "./nosuch", "good.py"], &["--image: './nosuch' does not exist"]);
    place.says(&["--env", "NOVALUE", "good.py"], &["--env: 'NOVALUE' has no '='"]);
    place.says(&["--env", "A\nB=1", "good.py"], &["is no name for a variable"]);
    place.says(&["--net", "", "good.py"], &["--net: the list is empty; accepted: none"]);
    place.says(&["--net", "pypi.org:443", "good.py"], &["not in this version; accepted: none"]);
    place.says(&["--skill", "nosuch", "good.py"], &["--skill: 'nosuch' does not exist"]);
    place.says(&["--skill", "目录", "good.py"], &["--skill: '目录' is no id"]);
    place.says(&["--skill", "目录=a", "--skill", "目录=a", "good.py"], &["two skills have the id 'a'"]);
    place.says(&["--stdin", "nosuch", "good.py"], &["--stdin: 'nosuch' does not exist"]);
    place.says(&["--stdin", "目录", "good.py"], &["--stdin: '目录' is a directory"]);
    place.says(&["--output", "good.py", "good.py"], &["good.py' is not a directory"]);
    place.says(&["--allow-unenforced", "disk", "good.py"], &["no limit 'disk'; accepted: memory, pids, cpu"]);
    place.says(
        &["--profile", "nosuch", "good.py"],
        &["no profile 'nosuch'; there are: default, strict, office"],
    );
    std::fs::write(place.0.path().join("财务.toml"), "[limits]\n\nmemroy = '1g'\n").unwrap();
    place
        .says(&["--profile", "财务.toml", "good.py"], &["财务.toml:3: unknown key 'memroy'; known: timeout"]);
    place.says(&["--profile", "./nosuch.toml", "good.py"], &["profile './nosuch.toml' does not exist"]);
}

#[test]
fn commands() {
    for (words, part) in [
        (&["serve"][..], "'serve' is not in this version (see creel --help)"),
        (&["image", "nosuch"], "'nosuch' is no command; there are: build, pull, import, export, ls"),
        (&["bench"], "no measurement given; there are: cold, warm, throughput, density"),
        (&["bench", "cold", "--nosuch"], "unexpected argument '--nosuch' (see creel bench --help)"),
        (&["frobnicate"], "'frobnicate' is no command; there are: run, doctor, image, bench, gc"),
        (&[], "no command given"),
        (&["--nosuch"], "unexpected argument '--nosuch' (see creel --help)"),
        (&["doctor", "--nosuch"], "unexpected argument '--nosuch' (see creel doctor --help)"),
        (&["gc", "now"], "unexpected argument 'now' (see creel gc --help)"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_creel")).args(words).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(126), "{words:?}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.lines().count() == 1, "{words:?}: {stderr}");
        assert!(stderr.starts_with("creel: ") && stderr.contains(part), "{words:?}: {stderr}");
    }
}

#[test]
fn a_refusal_under_json_is_an_object_too() {
    let place = Place::new();
    let output = place.run(&["--json", "--timeout", "0", "-c", "1"].map(OsStr::new), Stdio::null());
    assert_eq!(output.status.code(), Some(126));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error_category"], "rejected");
    assert!(
        report["exit_code"].is_null() && report["error"]["message"].as_str().unwrap().contains("timeout")
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}
