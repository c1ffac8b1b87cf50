//! PID 1 of a sandbox: forks the payload, reaps what is orphaned, tells how the payload ended. Never the user's program, since PID 1 has
//! odd signal rules.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroup::Group;
use super::channel;
use super::setup::Failure;
use super::spec::INSIDE_ID;
use super::template::StepError;
use crate::sys;
use crate::sys::process::{Cloned, clone3, exit_now};

/// What init sends when the payload has ended: wait status and CPU time in microseconds, both little-endian.
pub const RESULT_LEN: usize = 12;

/// What init and the payload inherit besides the plan.
pub struct Ends<'a> {
    /// To the launcher.
    pub control: &'a OwnedFd,
    /// The payload writes here why it could not start; end of file means that the program runs.
    pub report: &'a OwnedFd,
    pub group: &'a Group,
}

/// The life of PID 1, from its birth on. `plan` gives all but the root, which arrives with the order to go.
pub fn main(plan: impl FnOnce(&OwnedFd, i32) -> Failure, ends: &Ends<'_>, may_setgroups: bool) -> ! {
    // The maps are written by the launcher; until its packet comes this process has no identity to work with.
    let root = match channel::receive(ends.control.as_fd()) {
        Ok((data, fds)) if !data.is_empty() => fds.into_iter().next(),
        _ => exit_now(1),
    };
    let (Some(root), Ok((settled, unsettled))) = (root, pipe_with(PipeFlags::CLOEXEC)) else {
        fail(ends, StepError { step: "receive the root".into(), errno: libc::EBADF })
    };
    if let Err(e) = sys::process::set_title("init") {
        fail(ends, StepError { step: "take a title".into(), errno: e.raw_os_error().unwrap_or(0) });
    }
    if let Err(e) = ends.group.enter() {
        fail(ends, StepError { step: "enter the run's cgroup".into(), errno: e.raw_os_error().unwrap_or(0) });
    }
    let payload = match clone3(0, ends.group.payload_birth()) {
        Ok(Cloned::Child) => {
            drop(unsettled);
            let failure = plan(&root, settled.as_raw_fd());
            write_failure(ends.report, &failure);
            exit_now(125)
        }
        Ok(Cloned::Parent { pid, .. }) => pid,
        Err(e) => {
            fail(ends, StepError { step: "fork the payload".into(), errno: e.raw_os_error().unwrap_or(0) })
        }
    };
    if let Err(e) = give_up_everything(may_setgroups) {
        fail(ends, StepError { step: "drop init's privileges".into(), errno: e.raw_os_error().unwrap_or(0) });
    }
    // Closing `unsettled` lets the payload go on to its program: it never runs beside an init with privileges (CVE-2016-9962).
    let _ = sys::fds::close_all_except(&[ends.control.as_raw_fd()]);
    std::mem::forget((root, settled, unsettled));
    // A launcher that died before its death signal was set is seen here.
    let mut fds = [PollFd::new(ends.control, PollFlags::empty())];
    if poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP) {
        exit_now(1)
    }
    loop {
        match sys::process::wait_any() {
            Ok(Some(ended)) if ended.pid == payload => {
                let mut result = [0; RESULT_LEN];
                result[..4].copy_from_slice(&ended.status.to_le_bytes());
                result[4..].copy_from_slice(&ended.cpu_us.to_le_bytes());
                let _ = channel::send(ends.control.as_fd(), &result, &[]);
                // The end of PID 1 kills all that is left in its pid namespace.
                exit_now(0)
            }
            Ok(Some(_)) => {}
            _ => exit_now(1),
        }
    }
}

fn give_up_everything(may_setgroups: bool) -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Signal};
    sys::process::become_user(INSIDE_ID, INSIDE_ID, may_setgroups)?;
    sys::privileges::drop_bounding()?;
    sys::privileges::keep_only(0)?;
    rustix::thread::set_no_new_privs(true)?;
    // The payload has the same uid: only a process that is not dumpable keeps its /proc/1/mem and its ptrace closed.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // After the identity changes, which clear it (prctl(2)).
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

fn fail(ends: &Ends<'_>, error: StepError) -> ! {
    write_failure(ends.report, &Failure::Step(error));
    exit_now(1)
}

/// `errno step`, or `errno` alone when it was the execution of the program.
fn write_failure(report: &OwnedFd, failure: &Failure) {
    let text = match failure {
        Failure::Step(e) => format!("{} {}", e.errno, e.step),
        Failure::NotExecuted(errno) => errno.to_string(),
    };
    let _ = rustix::io::write(report, text.as_bytes());
}
