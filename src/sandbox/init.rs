//! PID 1 of a sandbox: forks the payload, reaps what is orphaned, tells how the payload ended. Never the user's program, since PID 1 has
//! odd signal rules.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::cgroup::{self, Group};
use super::channel;
use super::go::Go;
use super::role::Role;
use super::setup::{self, Failure};
use super::template::{StepError, step};
use crate::sys;
use crate::sys::process::{Cloned, Ended, TitleArea, clone3, exit_now};

/// What init sends when the payload has ended and everything else in the sandbox is dead: wait status and CPU time in microseconds, both little-endian.
pub const RESULT_LEN: usize = 12;

/// What init and the payload inherit besides the plan.
pub struct Ends<'a> {
    /// To the launcher.
    pub control: &'a OwnedFd,
    /// The payload writes here why it could not start; end of file means that the program runs.
    pub report: &'a OwnedFd,
    pub group: &'a Group,
}

/// The life of PID 1, from its birth on. `payload` becomes the program, see `setup::run`.
pub fn main(
    payload: impl FnOnce(&Go, i32) -> Failure,
    ends: &Ends<'_>,
    role: Role,
    title: TitleArea,
    may_setgroups: bool,
) -> ! {
    if let Err(e) = step("take a title", title.set("init")).and_then(|()| setup::early(role)) {
        fail(ends, e);
    }
    // The launcher's packet comes when it has written the maps; until then this process has no identity to work with.
    let Some(go) = Go::receive(ends.control.as_fd()) else { exit_now(1) };
    let Ok((settled, unsettled)) = pipe_with(PipeFlags::CLOEXEC) else { exit_now(1) };
    if let Err(e) = cgroup::enter(&go.entrances) {
        fail(ends, StepError { step: "enter the run's cgroup".into(), errno: e.raw_os_error().unwrap_or(0) });
    }
    let main = match clone3(0, ends.group.payload_birth()) {
        Ok(Cloned::Child) => {
            drop(unsettled);
            let failure = payload(&go, settled.as_raw_fd());
            write_failure(ends.report, &failure);
            exit_now(125)
        }
        Ok(Cloned::Parent { pid, .. }) => pid,
        Err(e) => {
            fail(ends, StepError { step: "fork the payload".into(), errno: e.raw_os_error().unwrap_or(0) })
        }
    };
    if let Err(e) = give_up_everything(role, may_setgroups) {
        fail(ends, StepError { step: "drop init's privileges".into(), errno: e.raw_os_error().unwrap_or(0) });
    }
    // Closing `unsettled` lets the payload go on to its program: it never runs beside an init with privileges (CVE-2016-9962).
    let _ = sys::fds::close_all_except(&[ends.control.as_raw_fd()]);
    std::mem::forget((go, settled, unsettled));
    // A launcher that died before its death signal was set is seen here.
    let mut fds = [PollFd::new(ends.control, PollFlags::empty())];
    if poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP) {
        exit_now(1)
    }
    let result = loop {
        match sys::process::wait_any() {
            Ok(Some(ended)) if ended.pid == main => break ended,
            Ok(Some(_)) => {}
            _ => exit_now(1),
        }
    };
    end_all(ends.control, &result)
}

/// The end of the main process is the end of all.
fn end_all(control: &OwnedFd, main: &Ended) -> ! {
    // Nobody escapes: who has a SIGKILL pending can't fork, and orphans come here.
    let _ = sys::process::kill_all_others();
    while let Ok(Some(_)) = sys::process::wait_any() {}
    let mut result = [0; RESULT_LEN];
    result[..4].copy_from_slice(&main.status.to_le_bytes());
    result[4..].copy_from_slice(&main.cpu_us.to_le_bytes());
    // Now everything but this process is dead. Its own end, with that of the namespaces, need not be waited for to tell so.
    let _ = channel::send(control.as_fd(), &result, &[]);
    exit_now(0)
}

/// What the init of a slot that was forked from a zygote must know; its first packet, as JSON. The second is the order to go.
#[derive(Debug, Serialize, Deserialize)]
pub struct InitPlan {
    pub role: Role,
    pub places: setup::Places,
}

/// What it answers when its root is built and its privileges are gone.
pub const MOUNTED: &[u8] = b"mounted";
/// Its socket.
const CONTROL: RawFd = 3;
/// The payload, which the same process has forked before it executed this program.
const PAYLOAD: i32 = 2;

/// Becomes the init of a slot when this program was executed as one, else does nothing. The first thing in `main` of every program that makes slots
/// from a zygote: their PID 1 executes `/proc/self/exe` of the launcher.
pub fn become_if_asked() {
    if std::env::args_os().eq(["init"]) && std::process::id() == 1 {
        executed();
    }
}

/// The life of a PID 1 that was forked from a zygote and has executed this program: in new user and pid namespaces with all rights in them, its
/// launcher at descriptor 3. Another process of the zygote's, the payload, waits to join the namespaces that it makes.
fn executed() -> ! {
    let Ok(control) = sys::fds::take(CONTROL) else { exit_now(1) };
    if let Err(e) = build(&control) {
        let _ = channel::send(control.as_fd(), format!("e{} {}", e.errno, e.step).as_bytes(), &[]);
        exit_now(1)
    }
    let _ = sys::fds::close_all_except(&[control.as_raw_fd()]);
    let _ = channel::send(control.as_fd(), MOUNTED, &[]);
    // Its parent, the zygote, may end whenever it likes: it is the launcher whose end ends all.
    let Ok(children) = sys::signal::block_and_watch(&[libc::SIGCHLD]) else { exit_now(1) };
    loop {
        match sys::process::wait_ended() {
            Ok(Some(ended)) if ended.pid == PAYLOAD => end_all(&control, &ended),
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => exit_now(1),
        }
        let mut fds = [PollFd::new(&children, PollFlags::IN), PollFd::new(&control, PollFlags::empty())];
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            exit_now(1)
        }
        let _ = sys::signal::next(children.as_fd());
    }
}

fn build(control: &OwnedFd) -> Result<(), StepError> {
    let title = step("find the title", TitleArea::find())?;
    step("take a title", title.set("init"))?;
    step("block signals", sys::signal::shut_out())?;
    let nothing = || StepError { step: "hear from the launcher".into(), errno: libc::EPIPE };
    let plan = channel::receive(control.as_fd(), channel::LONG).map_err(|_| nothing())?.0;
    let plan: InitPlan = serde_json::from_slice(&plan).map_err(|_| nothing())?;
    setup::early(plan.role)?;
    let go = Go::receive(control.as_fd()).ok_or_else(nothing)?;
    setup::build_root(plan.role, &plan.places, &go)?;
    step("drop init's privileges", give_up_everything(plan.role, true))?;
    step("clear the death signal", rustix::process::set_parent_process_death_signal(None))?;
    Ok(())
}

fn give_up_everything(role: Role, may_setgroups: bool) -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Signal};
    sys::process::become_user(role.inside(), role.inside(), may_setgroups)?;
    sys::privileges::keep_only(role.init_capabilities())?;
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
