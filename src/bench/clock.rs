//! The stop-watch: one program from just before it is started until it is reaped and its output read to the end. The same code for all.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::procs;
use super::stop::{Stop, Woken};
use crate::text::io_reason;

/// What the clock measures, for people.
pub const CLOCK: &str = "from just before the program is started (fork and exec of `creel run --json`, of the peer, or of the \
bare command) until its exit was reaped and its output, on one pipe, read to the end; CLOCK_MONOTONIC, in this process";

/// A program that takes longer than this hangs, and is ended.
pub const HANG: Duration = Duration::from_secs(60);
/// How long a program may take to end when told to, before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// So much of a program's output is kept.
const OUTPUT_MAX: usize = 1 << 20;

/// How a running program is made to end without leaving anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGTERM: it cleans up itself.
    Ask,
    /// Its program is killed, by pid; it then cleans up and follows. (A SIGTERM would be passed on to a PID 1 that ignores it.)
    Inside,
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct Job {
    /// The first is a path.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(String, OsString)>,
    pub dir: Option<PathBuf>,
    pub end: End,
    /// Run after it was ended by us: what its end alone does not take away. May be empty.
    pub undo: Vec<OsString>,
}

/// A program that has ended by itself.
#[derive(Debug)]
pub struct Timed {
    pub ms: f64,
    /// 128+n for signal n.
    pub code: i32,
    pub output: Vec<u8>,
}

/// Why there is no time.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("does not start: {}", io_reason(.0))]
    Start(io::Error),
    #[error("hung: no end within {} s", .0.as_secs())]
    Hung(Duration),
    #[error("stopped")]
    Stopped,
}

/// Starts a program and waits for it.
///
/// # Errors
/// [`Failure`]; the program is gone in each case.
pub fn time(job: &Job, stop: &Stop) -> Result<Timed, Failure> {
    let (reader, writer) = io::pipe().map_err(Failure::Start)?;
    let mut command = job.command(writer).map_err(Failure::Start)?;
    let begun = Instant::now();
    let child = command.spawn();
    // Its copies of the pipe's writing end.
    drop(command);
    let mut running = Running::of(child.map_err(Failure::Start)?, job.clone())?;
    let deadline = begun + HANG;
    let fd = OwnedFd::from(reader);
    let mut file = std::fs::File::from(fd.try_clone().map_err(Failure::Start)?);
    let mut output = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        wait(stop, &fd, deadline)?;
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) if output.len() < OUTPUT_MAX => output.extend_from_slice(&buffer[..n]),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Failure::Start(e)),
        }
    }
    wait(stop, &running.pidfd, deadline)?;
    let status = running.child.wait().map_err(Failure::Start)?;
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    running.over = true;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(-1);
    Ok(Timed { ms, code, output })
}

fn wait(stop: &Stop, fd: &OwnedFd, deadline: Instant) -> Result<(), Failure> {
    match stop.wait(Some(fd), Some(deadline)) {
        Woken::Ready => Ok(()),
        Woken::Stopped => Err(Failure::Stopped),
        Woken::Late => Err(Failure::Hung(HANG)),
    }
}

impl Job {
    /// The command with both outputs on `output`, in a process group of its own: the terminal's Ctrl-C is for us, we end it in its way.
    fn command(&self, output: io::PipeWriter) -> io::Result<Command> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).env_clear().envs(self.env.iter().map(|(k, v)| (k, v))).process_group(0);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        // Not /dev/null: crun and runc give the streams that they start with to the container's user, and the host's device would be his.
        let (nothing, _) = io::pipe()?;
        command.stdin(nothing).stdout(output.try_clone()?).stderr(output);
        Ok(command)
    }
}

/// A program that is running. Dropped, it is ended.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    job: Job,
    over: bool,
}

impl Running {
    /// Starts a program in the background and waits for its first output.
    ///
    /// # Errors
    /// [`Failure`]; with `Ok(Err(text))` it ended instead, and `text` is what it said.
    pub fn start(job: &Job, stop: &Stop) -> Result<Result<Running, String>, Failure> {
        let (reader, writer) = io::pipe().map_err(Failure::Start)?;
        let mut command = job.command(writer).map_err(Failure::Start)?;
        let child = command.spawn();
        drop(command);
        let running = Running::of(child.map_err(Failure::Start)?, job.clone())?;
        let fd = OwnedFd::from(reader);
        let deadline = Instant::now() + HANG;
        wait(stop, &fd, deadline)?;
        let mut file = std::fs::File::from(fd);
        let mut said = vec![0; 4096];
        let n = file.read(&mut said).map_err(Failure::Start)?;
        if said[..n].starts_with(b"\n") {
            return Ok(Ok(running));
        }
        Ok(Err(String::from_utf8_lossy(&said[..n]).into_owned()))
    }

    fn of(mut child: Child, job: Job) -> Result<Running, Failure> {
        match pid_of(&child).and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?)) {
            Ok(pidfd) => Ok(Running { child, pidfd, job, over: false }),
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure::Start(e))
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, without waiting: many end faster together.
    pub fn ask(&self) {
        if self.over {
            return;
        }
        match self.job.end {
            End::Ask => send(self.child.id(), Signal::TERM),
            End::Inside => {
                for pid in procs::descendants(self.child.id()).into_iter().rev() {
                    send(pid, Signal::KILL);
                }
            }
        }
    }

    /// Ends it; true if it went without being killed.
    pub fn end(&mut self) -> bool {
        if self.over {
            return true;
        }
        let until = Instant::now() + PATIENCE;
        let mut went = false;
        self.ask();
        while !went && Instant::now() < until {
            if self.job.end == End::Inside {
                // Again: a runtime that was just starting has new children.
                self.ask();
            }
            went = ended(&self.pidfd, Duration::from_millis(200));
        }
        if !went {
            for pid in procs::descendants(self.child.id()).into_iter().rev() {
                send(pid, Signal::KILL);
            }
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        self.over = true;
        if let Some((program, args)) = self.job.undo.split_first() {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = command.process_group(0).status();
        }
        went
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn ended(pidfd: &OwnedFd, patience: Duration) -> bool {
    Stop::never().is_ok_and(|s| s.wait(Some(pidfd), Some(Instant::now() + patience)) == Woken::Ready)
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let raw = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone already: that is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &[&str]) -> Job {
        let argv = words.iter().map(OsString::from).collect();
        Job { argv, env: Vec::new(), dir: None, end: End::Ask, undo: Vec::new() }
    }

    #[test]
    fn output_and_exit_code_of_a_program() {
        let stop = Stop::never().unwrap();
        let timed = time(&job(&["/bin/sh", "-c", "echo a; echo b >&2; exit 7"]), &stop).unwrap();
        assert_eq!((timed.code, timed.output.as_slice()), (7, &b"a\nb\n"[..]));
        assert!(timed.ms > 0.0);
        assert_eq!(time(&job(&["/bin/sh", "-c", "kill -9 $$"]), &stop).unwrap().code, 137);
        assert!(matches!(time(&job(&["/nonexistent"]), &stop), Err(Failure::Start(_))));
    }

    #[test]
    fn one_in_the_background_is_ended() {
        let stop = Stop::never().unwrap();
        let mut running =
            Running::start(&job(&["/bin/sh", "-c", "echo; exec sleep 600"]), &stop).unwrap().unwrap();
        let pid = running.pid();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        assert!(running.end());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        let said = Running::start(&job(&["/bin/sh", "-c", "echo no"]), &stop).unwrap().unwrap_err();
        assert_eq!(said, "no\n");
    }
}
