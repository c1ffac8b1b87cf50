//! What the integration tests share: a place of its own for each test, runs with a deadline, and looks at the host.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use mode::{Mode, mode};
use serde_json::Value;
use tempfile::TempDir;

pub mod footprint;
pub mod images;
pub mod mode;
pub mod user;

/// No run of these tests takes so long, however loaded the machine is: what does hangs, and is killed.
pub const HANG: Duration = Duration::from_secs(150);

/// A place for one test: working directory, output directory and state directory, all its own.
pub struct Ctx {
    dir: TempDir,
    /// Runs that started as the mode of the binary says, and others.
    ahead: AtomicUsize,
    not_applicable: AtomicUsize,
}

impl Ctx {
    /// None (and a line that says why) when the tests don't run as root.
    pub fn new() -> Option<Ctx> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: this test drives creel as root, and the tests run as an ordinary user");
            return None;
        }
        let dir = TempDir::with_prefix("creel-test-").unwrap();
        for part in ["cwd", "state"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        Some(Ctx { dir, ahead: AtomicUsize::new(0), not_applicable: AtomicUsize::new(0) })
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn cwd(&self) -> PathBuf {
        self.dir.path().join("cwd")
    }

    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Writes a file below the working directory and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.cwd().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// `creel`, in this test's working directory, with this test's state.
    pub fn creel(&self) -> Command {
        self.within(Command::new(env!("CARGO_BIN_EXE_creel")))
    }

    /// The same for a command that starts creel itself.
    pub fn within(&self, mut command: Command) -> Command {
        command.current_dir(self.cwd()).env("CREEL_STATE_DIR", self.state()).stdin(Stdio::null());
        command
    }

    /// `creel run --output OUT args…`, to be changed before it starts.
    pub fn run_command(&self, args: &[&str]) -> Command {
        let mut command = self.creel();
        command.arg("run").args(self.start(args)).arg("--output").arg(self.out()).args(args);
        command
    }

    /// The options that start `creel run args…` as the mode of this binary says; the run is counted.
    pub fn start(&self, args: &[&str]) -> Vec<&'static str> {
        let options = mode().options_for(args.iter().copied(), &self.cwd());
        let counter = if options.is_empty() { &self.not_applicable } else { &self.ahead };
        counter.fetch_add(1, Ordering::Relaxed);
        options
    }

    /// `creel run args…`, output passed through.
    pub fn run(&self, args: &[&str]) -> Ran {
        finish(spawn(&mut self.run_command(args)))
    }

    /// `creel run --json args…`.
    pub fn json(&self, args: &[&str]) -> Report {
        let mut command = self.creel();
        let start = self.start(args);
        command.args(["run", "--json"]).args(&start).arg("--output").arg(self.out()).args(args);
        let report = Report::of(finish(spawn(&mut command)));
        if !start.is_empty() {
            report.assert_started(mode());
        }
        report
    }

    /// `creel run --json options… script.py`.
    pub fn python(&self, options: &[&str], code: &str) -> Report {
        self.script("script.py", options, code)
    }

    /// `creel run --json options… script.sh`.
    pub fn bash(&self, options: &[&str], code: &str) -> Report {
        self.script("script.sh", options, code)
    }

    fn script(&self, name: &str, options: &[&str], code: &str) -> Report {
        let script = self.write(name, dedent(code));
        let mut args = options.to_vec();
        args.push(script.to_str().unwrap());
        self.json(&args)
    }

    /// Files under the output directory with their content; a symlink counts as a file named `NAME@`.
    pub fn outputs(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        collect(&self.out(), "", &mut found);
        found
    }

    /// Asserts that nothing of this test's runs is on the disk or mounted.
    pub fn assert_state_clean(&self) {
        footprint::assert_state_clean(&self.state());
    }
}

/// A test in which nothing started as it should has shown nothing about this mode.
impl Drop for Ctx {
    fn drop(&mut self) {
        if mode() == Mode::Cold || thread::panicking() {
            return;
        }
        let (ahead, others) = (*self.ahead.get_mut(), *self.not_applicable.get_mut());
        let word = mode().word();
        println!("{ahead} runs started {word}; not applicable (no Python script): {others}");
        assert!(ahead > 0, "nothing of this test started {word}: write cold_only! around it");
    }
}

fn collect(dir: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect(&entry.path(), &format!("{name}/"), found);
        } else if kind.is_symlink() {
            found.insert(format!("{name}@"), Vec::new());
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

/// How a command ended.
pub struct Ran {
    /// None if creel itself died by a signal.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
}

impl Ran {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ran {
        let short = |text: String| text.chars().take(3000).collect::<String>();
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", short(self.out()), short(self.err()));
        self
    }
}

/// The report of one run, and the exit code and stderr that came with it.
pub struct Report {
    pub json: Value,
    pub code: i32,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Report {
    /// Asserts that stdout is exactly one JSON object.
    #[track_caller]
    pub fn of(ran: Ran) -> Report {
        let json: Value = match serde_json::from_slice(&ran.stdout) {
            Ok(value) => value,
            Err(e) => panic!("no report ({e}), exit {:?}: {}\n{}", ran.code, ran.out(), ran.err()),
        };
        assert!(json.is_object(), "the report is no object: {json}");
        let code = ran.code.expect("creel died by a signal");
        Report { json, code, stderr: ran.err(), elapsed: ran.elapsed }
    }

    /// Asserts that the run started so, if it started at all.
    #[track_caller]
    pub fn assert_started(&self, mode: Mode) {
        let began = self.number("walltime_ms") > 0.0;
        assert!(!began || self.json["start"] == mode.word(), "it did not start {}: {self}", mode.word());
    }

    pub fn category(&self) -> &str {
        self.json["error_category"].as_str().unwrap_or_default()
    }

    pub fn stdout(&self) -> &str {
        self.json["stdout"].as_str().unwrap()
    }

    pub fn exit_code(&self) -> Option<i64> {
        self.json["exit_code"].as_i64()
    }

    pub fn number(&self, field: &str) -> f64 {
        self.json[field].as_f64().unwrap_or_else(|| panic!("{field} is no number: {}", self.json[field]))
    }

    /// Asserts category, exit code of creel and `exit_code` of the report.
    #[track_caller]
    pub fn expect(self, category: &str, code: i32, exit_code: Option<i64>) -> Report {
        assert_eq!((self.category(), self.code, self.exit_code()), (category, code, exit_code), "{self}");
        self
    }

    #[track_caller]
    pub fn expect_ok(self) -> Report {
        self.expect("ok", 0, Some(0))
    }

    /// What the program printed, as JSON.
    #[track_caller]
    pub fn inner(&self) -> Value {
        serde_json::from_str(self.stdout())
            .unwrap_or_else(|e| panic!("the program printed no JSON ({e}): {self}"))
    }

    /// `produced`, by path.
    pub fn produced(&self) -> BTreeMap<String, Value> {
        let list = self.json["produced"].as_array().unwrap();
        list.iter().map(|p| (p["path"].as_str().unwrap().to_owned(), p.clone())).collect()
    }

    /// `skipped`: name and reason.
    pub fn skipped(&self) -> BTreeMap<String, String> {
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        let list = self.json["skipped"].as_array().unwrap();
        list.iter().map(|s| (text(&s["name"]), text(&s["reason"]))).collect()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let text = serde_json::to_string_pretty(&self.json).unwrap();
        let text: String = text.chars().take(4000).collect();
        write!(f, "creel's exit code {}\n{text}\nstderr: {}", self.code, self.stderr)
    }
}

/// Starts a command with both outputs piped.
pub fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a child and takes what is left in its pipes; kills it and fails when it hangs.
#[track_caller]
pub fn finish(mut child: Child) -> Ran {
    let started = Instant::now();
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let status = wait_end(&mut child);
    let take = |pipe: Option<mpsc::Receiver<Vec<u8>>>| match pipe {
        // Whoever still holds the pipe after creel's end was left behind.
        Some(pipe) => {
            pipe.recv_timeout(Duration::from_secs(20)).expect("somebody holds creel's pipe after its end")
        }
        None => Vec::new(),
    };
    Ran { code: status.code(), stdout: take(stdout), stderr: take(stderr), elapsed: started.elapsed() }
}

/// Waits for the end of a child; kills it and fails when it hangs.
#[track_caller]
pub fn wait_end(child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    let ended = wait_until(
        || {
            status = child.try_wait().unwrap();
            status.is_some()
        },
        HANG,
    );
    if !ended {
        child.kill().ok();
        panic!("{} did not end in {} s", child.id(), HANG.as_secs());
    }
    status.unwrap()
}

fn drain(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).ok();
        tx.send(bytes).ok();
    });
    rx
}

/// Polls a condition of the host that nothing announces (a process's end, a mount's going) until it holds or the time
/// is over; says whether it came to hold. The only place where these tests wait by the clock.
pub fn wait_until(mut condition: impl FnMut() -> bool, deadline: Duration) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal by number to a process that this test started (or a descendant of one).
pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).ok();
}

/// Reads one line of a pipe, byte for byte, so that nothing behind it is taken.
pub fn read_line(pipe: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while pipe.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Takes off the indentation that the first line with text has.
pub fn dedent(code: &str) -> String {
    let code = code.strip_prefix('\n').unwrap_or(code);
    let first = code.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    let mut lines: Vec<&str> =
        code.lines().map(|l| l.strip_prefix(indent).unwrap_or(l.trim_start())).collect();
    while lines.last().is_some_and(|l| l.trim().is_empty()) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

/// A word that no other process on this host has on its command line.
pub fn marker(what: &str) -> String {
    let id = TempDir::with_prefix(format!("marker-{what}-")).unwrap();
    id.path().file_name().unwrap().to_str().unwrap().to_owned()
}
