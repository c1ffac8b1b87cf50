//! One whole sandbox from beginning to end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::Value;

use super::{Check, Status};
use crate::executor::report::Report;
use crate::executor::request::{Lang, Program, Request, Stdin};
use crate::executor::run::run;
use crate::executor::run_id::new_run_id;
use crate::executor::service::once::{self, Start};
use crate::executor::state::State;
use crate::limits::LimitKind;
use crate::profile::{self, DEFAULT, fit::fit_tmpfs};
use crate::sandbox::cgroup::Found;
use crate::sys::process::{Cloned, clone3, exit_now};

pub(super) const NAME: &str = "trial run";
/// Time for the sandbox, and a little more for all around it.
const LIMIT: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs of which every host has one, with arguments that make them do nothing.
const PROGRAMS: [&[&str]; 4] =
    [&["/usr/bin/true"], &["/bin/true"], &["/usr/bin/bash", "-c", ":"], &["/usr/bin/python3", "-c", ""]];

/// Runs a program that does nothing with all that can be enforced here. `all_well`: no check before has failed.
pub fn check(cgroups: &Found, all_well: bool) -> Check {
    let missing: BTreeSet<LimitKind> = [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu]
        .into_iter()
        .filter(|k| cgroups.missing(*k).is_some())
        .collect();
    let names: Vec<&str> = missing.iter().map(|k| k.name()).collect();
    let without = if names.is_empty() { String::new() } else { format!(", without {}", names.join(", ")) };
    let made = Made::note();
    let report = request(missing).and_then(|request| in_child(|| run(request)));
    made.undo();
    let fix = if all_well {
        "creel doctor does not know what this is: please report it with the output of creel doctor"
    } else {
        "mend what is marked FAIL above"
    };
    match report {
        Ok(report) if report["error_category"] == "ok" => {
            let ms = report["timings_ms"]["total"].as_f64().unwrap_or(0.0);
            Check::ok(NAME, format!("a sandbox was made, ran and was removed in {ms:.0} ms{without}"))
        }
        Ok(report) => {
            let message = report["error"]["message"].as_str().unwrap_or("the program failed");
            Check::fail(NAME, message, fix)
        }
        Err(e) => Check::fail(NAME, e, fix),
    }
}

/// Whether sandboxes can be made ahead, tried with a Python that waits and, as root, with a fork of one. Nothing of `creel run` depends on it.
pub fn ahead(cgroups: &Found, trial: &Check) -> Check {
    const NAME: &str = "warm start";
    if !matches!(trial.status, Status::Ok) {
        return Check::warn(NAME, "not tried: the trial run failed", "mend what is marked FAIL above");
    }
    if !Path::new(PYTHON).exists() {
        return Check::warn(NAME, format!("not tried: this host has no {PYTHON}"), "apt install python3");
    }
    let missing = [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu];
    let missing: BTreeSet<LimitKind> =
        missing.into_iter().filter(|k| cgroups.missing(*k).is_some()).collect();
    let attempt = |start| {
        let program = Program::Script { lang: Lang::Python, code: b"pass\n".to_vec(), args: Vec::new() };
        let request = Request { program, ..request(missing.clone())? };
        let made = Made::note();
        let report = in_child(move || once::run(request, start, Vec::new()));
        made.undo();
        let report = report?;
        match report["error_category"].as_str() {
            Some("ok") => Ok(()),
            _ => Err(report["error"]["message"].as_str().unwrap_or("the program failed").to_owned()),
        }
    };
    if let Err(why) = attempt(Start::Warm) {
        return Check::warn(NAME, format!("no sandbox can be made ahead: {why}"), "every run starts cold");
    }
    if !rustix::process::geteuid().is_root() {
        return Check::ok(NAME, "a waiting Python works; forks of one (zygote) need root");
    }
    match attempt(Start::Zygote) {
        Ok(()) => Check::ok(NAME, "a waiting Python and a fork of one (zygote) ran"),
        Err(why) => {
            let fix = "pools without a zygote work; a fork needs user namespaces inside user namespaces, and ctypes";
            Check::warn(NAME, format!("a waiting Python works, a fork of one (zygote) does not: {why}"), fix)
        }
    }
}

/// The Python of the image `host`.
const PYTHON: &str = "/usr/bin/python3";

fn request(allow_unenforced: BTreeSet<LimitKind>) -> Result<Request, String> {
    let mut profile = profile::load(DEFAULT).map_err(|e| e.to_string())?;
    profile.limits.timeout = profile.limits.timeout.min(LIMIT);
    fit_tmpfs(&mut profile.limits, false).map_err(|e| e.to_string())?;
    let program = PROGRAMS.iter().find(|p| Path::new(p[0]).exists()).unwrap_or(&PROGRAMS[0]);
    Ok(Request {
        run_id: new_run_id().map_err(|e| format!("no random bytes: {e}"))?,
        image: "host".into(),
        program: Program::Command(program.iter().map(Into::into).collect()),
        inputs: Vec::new(),
        skills: Vec::new(),
        stdin: Stdin::Null,
        env: profile.env,
        limits: profile.limits,
        seccomp: profile.seccomp,
        // Nothing is produced, so it is not made.
        output_dir: PathBuf::from("/nonexistent"),
        allow_unenforced,
        pass_through: false,
        notes: Vec::new(),
    })
}

/// The executor changes the process it runs in (signals, capabilities), so it gets one of its own.
fn in_child(run: impl FnOnce() -> Report) -> Result<Value, String> {
    let (mut read, write) = pipe_with(PipeFlags::CLOEXEC)
        .map(|(r, w)| (File::from(r), w))
        .map_err(|e| format!("cannot make a pipe: {e}"))?;
    match clone3(0, None).map_err(|e| format!("cannot fork: {e}"))? {
        Cloned::Child => {
            drop(read);
            let report = run();
            let text = serde_json::to_vec(&report).unwrap_or_default();
            let _ = File::from(write).write_all(&text);
            exit_now(0)
        }
        Cloned::Parent { pidfd, .. } => {
            drop(write);
            let mut text = Vec::new();
            let told = read_until_end(&mut read, &mut text);
            if !told {
                // The sandbox dies with it; what it leaves on the disk goes at the next start.
                let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::TERM);
            }
            let ended = rustix::process::WaitIdOptions::EXITED;
            let _ = rustix::process::waitid(rustix::process::WaitId::PidFd(pidfd.as_fd()), ended);
            if !told {
                return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
            }
            serde_json::from_slice(&text).map_err(|_| "it ended without a report".to_owned())
        }
    }
}

/// False when the writer is not done in time.
fn read_until_end(from: &mut File, text: &mut Vec<u8>) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let mut block = [0u8; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&wait));
        match ready {
            Ok(0) => return false,
            Ok(_) => match from.read(&mut block) {
                Ok(0) => return true,
                Ok(n) => text.extend_from_slice(&block[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Directories that the trial will make for the state, innermost first.
struct Made(Vec<PathBuf>);

impl Made {
    fn note() -> Made {
        let Ok(path) = State::location() else {
            return Made(Vec::new());
        };
        let runs = path.join("runs");
        // The deepest first, and the ledger before the directory that holds it.
        let ledger = Some(path.join("ledger")).filter(|p| p.symlink_metadata().is_err());
        let dirs = runs.ancestors().take_while(|p| p.symlink_metadata().is_err()).map(Path::to_owned);
        Made(ledger.into_iter().chain(dirs).collect())
    }

    /// Takes them away again, as far as nobody else has put something there.
    fn undo(self) {
        for path in self.0 {
            // A ledger without a live run in it is all zeroes.
            let empty_ledger = std::fs::read(&path).is_ok_and(|text| text.iter().all(|&b| b == 0));
            let removed = if empty_ledger { std::fs::remove_file(&path) } else { std::fs::remove_dir(&path) };
            if removed.is_err() {
                break;
            }
        }
    }
}
