//! creel as an ordinary user: an id that is in no passwd file, no groups, no capabilities, a home of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::mode::{Mode, mode};
use super::{Ran, Report, dedent, finish, spawn};

pub const UID: u32 = 4242;

/// A directory that belongs to the user, with a copy of the program that the user can read (target/ may be private).
pub struct User {
    dir: TempDir,
}

impl User {
    /// None (and a line that says why) when the tests can't become another user.
    pub fn new() -> Option<User> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can become the ordinary user of this test");
            return None;
        }
        if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("SKIPPED: setpriv (util-linux) is not installed");
            return None;
        }
        let dir = TempDir::with_prefix("creel-user-").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = dir.path().join("creel");
        fs::copy(env!("CARGO_BIN_EXE_creel"), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        for part in ["home", "cwd"] {
            fs::create_dir(dir.path().join(part)).unwrap();
            chown(dir.path().join(part), Some(UID), Some(UID)).unwrap();
        }
        Some(User { dir })
    }

    pub fn path(&self, part: &str) -> PathBuf {
        self.dir.path().join(part)
    }

    pub fn state(&self) -> PathBuf {
        self.path("home/state/creel")
    }

    /// Writes a file of the user's below the working directory.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("cwd").join(name);
        fs::write(&path, content).unwrap();
        chown(&path, Some(UID), Some(UID)).unwrap();
        path
    }

    /// A program as the user, with the user's home and nothing else of ours.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &UID.to_string(), "--regid", &UID.to_string(), "--clear-groups", "--"])
            .arg(program);
        command.current_dir(self.path("cwd")).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path("home"));
        // The state goes where this variable says.
        command.env("XDG_STATE_HOME", self.path("home/state"));
        command
    }

    /// `creel args…` as the user.
    pub fn creel(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.path("creel"));
        command.args(args);
        command
    }

    /// `creel run args…`.
    pub fn run(&self, args: &[&str]) -> Ran {
        finish(spawn(&mut self.creel(&[&["run"], args].concat())))
    }

    /// `creel run --json --allow-unenforced memory,pids,cpu args…`: what works on a host that delegates nothing.
    pub fn json(&self, args: &[&str]) -> Report {
        let options = ["run", "--json", "--allow-unenforced", "memory,pids,cpu"];
        // An ordinary user has no zygote.
        let mode = if mode() == Mode::Zygote { Mode::Cold } else { mode() };
        let start = mode.options_for(args.iter().copied(), &self.path("cwd"));
        let report = Report::of(finish(spawn(&mut self.creel(&[&options, &start[..], args].concat()))));
        if !start.is_empty() {
            report.assert_started(mode);
        }
        report
    }

    /// The same for a Python program.
    pub fn python(&self, options: &[&str], code: &str) -> Report {
        let script = self.write("script.py", dedent(code));
        let mut args = options.to_vec();
        args.push(script.to_str().unwrap());
        self.json(&args)
    }
}
