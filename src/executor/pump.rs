//! The caller's loop while a run lives: streams in and out, signals, and what the launcher says.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpid;

use super::streams::{Input, Output};
use crate::sandbox::cgroup::{Found, reclaim};
use crate::sandbox::channel;
use crate::sandbox::launcher::Launcher;
use crate::sandbox::outcome::{Event, Order, Outcome};
use crate::sys;

/// Text, count of all bytes, whether something is missing.
pub type Kept = (String, u64, bool);

/// Everything that the loop waits for, ready before the launcher is forked.
#[derive(Debug)]
pub struct Pump {
    stdin: Option<Input>,
    stdout: Output,
    stderr: Output,
    signals: OwnedFd,
}

/// How it went.
#[derive(Debug)]
pub struct Ended {
    /// `None`: the launcher died without a word.
    pub outcome: Option<Outcome>,
    pub started: Option<Instant>,
    pub over: Instant,
    /// The run's `/outputs`.
    pub outputs: Option<OwnedFd>,
    pub stdout: Kept,
    pub stderr: Kept,
    /// Why our standard output or error did not take what the program wrote.
    pub lost: Option<io::Error>,
    /// The signal that cancelled the run.
    pub signal: Option<i32>,
    /// Exit code of the launcher, when it ended by itself.
    pub launcher_status: Option<i32>,
}

impl Pump {
    /// `signals`: a signalfd for those that cancel the run. Makes this process the one that inherits the sandbox should the launcher
    /// die.
    pub fn new(signals: OwnedFd, stdin: Option<Input>, stdout: Output, stderr: Output) -> io::Result<Pump> {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(Pump { stdin, stdout, stderr, signals })
    }

    /// Lets the sandbox start with the system-call filter `go` (or, without one, end) and serves it until everything in it is dead and its output
    /// has been taken.
    pub fn until_the_end(
        mut self,
        launcher: &Launcher,
        go: Option<&[u8]>,
        cgroups: &Found,
        run_id: &str,
    ) -> Ended {
        let control = launcher.control.as_fd();
        let mut outcome = None;
        let (mut started, mut over, mut outputs, mut signal) = (None, None, None, None);
        match go {
            Some(filter) => order(control, Order::Go, filter),
            None => order(control, Order::Cancel, &[]),
        }
        loop {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if over.is_none() {
                fds.push(PollFd::from_borrowed_fd(control, PollFlags::IN));
            }
            let first_stream = fds.len();
            let wants =
                [self.stdout.wants(), self.stderr.wants(), self.stdin.as_ref().and_then(Input::wants)];
            let mut at = [None; 3];
            for (n, (fd, flags)) in wants.into_iter().enumerate().filter_map(|(n, w)| Some((n, w?))) {
                at[n] = Some(fds.len());
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
            // Once the sandbox is dead, only output that still lies in the pipes keeps the loop going.
            if over.is_some() && at[0].is_none() && at[1].is_none() {
                break;
            }
            // Who cancels does not wait for a reader that is stuck.
            let hurry = over.is_some() && signal.is_some();
            let at_once = rustix::event::Timespec::default();
            match poll(&mut fds, hurry.then_some(&at_once)) {
                Ok(0) if hurry => break,
                Ok(_) => {}
                Err(_) => continue,
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[0]
                && let Some(s) = sys::signal::next(self.signals.as_fd())
            {
                if over.is_some() || signal.is_some() {
                    // Somebody who asks again does not want to wait for a reader that is stuck.
                    self.stdout.stop_passing();
                    self.stderr.stop_passing();
                }
                signal = Some(s);
                order(control, Order::Cancel, &[]);
            }
            if first_stream == 2 && ready[1] {
                match hear(control) {
                    Some((Event::Started, fd)) => {
                        started = Some(Instant::now());
                        outputs = fd;
                    }
                    Some((Event::Ended(o), _)) => {
                        outcome = Some(o);
                        over = Some(Instant::now());
                    }
                    Some((Event::Ready, _)) => {}
                    None => {
                        // The launcher is dead, and so is the sandbox, by init's death signal; should anything be left, it ends now.
                        let _ = reclaim(cgroups, run_id);
                        over = Some(Instant::now());
                    }
                }
            }
            let is_ready = |n: usize| at[n].is_some_and(|i: usize| ready[i]);
            if is_ready(0) {
                self.stdout.step();
            }
            if is_ready(1) {
                self.stderr.step();
            }
            if is_ready(2)
                && let Some(stdin) = &mut self.stdin
            {
                stdin.step();
            }
        }
        Ended {
            lost: self.stdout.lost.take().or(self.stderr.lost.take()),
            outcome,
            started,
            over: over.unwrap_or_else(Instant::now),
            outputs,
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            signal,
            launcher_status: None,
        }
    }
}

impl Ended {
    /// Waits for the launcher, and for a sandbox that it left to us, to be gone.
    pub fn reap(&mut self, launcher: i32) {
        while let Ok(Some(ended)) = sys::process::wait_any() {
            if ended.pid == launcher && libc::WIFEXITED(ended.status) {
                self.launcher_status = Some(libc::WEXITSTATUS(ended.status));
            }
        }
    }
}

fn order(control: BorrowedFd<'_>, order: Order, rest: &[u8]) {
    // A launcher that is gone is noticed where its events are read.
    let _ = channel::send(control, &[&[order as u8], rest].concat(), &[]);
}

fn hear(control: BorrowedFd<'_>) -> Option<(Event, Option<OwnedFd>)> {
    let (data, fds) = channel::receive(control, channel::SHORT).ok()?;
    Some((serde_json::from_slice(&data).ok()?, fds.into_iter().next()))
}
