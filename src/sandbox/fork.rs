//! A slot's two processes as forks of a zygote. The launcher asks for them over the zygote's socket and leads them, step by step, into
//! the sandbox that it makes.
//!
//! ```text
//! launcher                      fork 1 (PID 1)               fork 2 (payload, PID 2)
//!   ask ───► zygote ──clone3──►   born
//!   maps of the user namespace    enters its cgroup (v1)
//!                                 forks ──────────────────►  born
//!   script, trees ────────────►   uid, executes creel's init
//!                                 namespaces, root; gives up everything
//!                    ◄─────────   mounted
//!   cgroup (v2)
//!   script, pidfd of PID 1 ───────────────────────────────►  joins, gives up everything, landlock, filter
//!                    ◄─────────────────────────────────────  ready
//! ```
//!
//! The zygote has no rights at all: each fork is born into a user namespace below the zygote's, and has rights in that only.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::channel::{self, receive_within};
use super::init::{InitPlan, MOUNTED};
use super::script::{Payload, Script};
use super::setup::resource_limits;
use super::slot::{ANSWER_WITHIN, Showing, Waiting, complaint};
use super::spec::{Ids, NOFILE, Spec};
use super::template::{StepError, step};
use super::trees::{Trees, userns_of};
use crate::sys::userns::{IdMap, parent_of, write_maps_inside};
use crate::sys::{self};

/// Two processes on their way.
pub struct Fork {
    to_init: OwnedFd,
    to_payload: OwnedFd,
    /// Host pids.
    pub init: i32,
    pub payload: i32,
}

const BORN: &[u8] = b"born";

impl Fork {
    /// Asks `zygote` for them. They are under the limits of the cgroup with these `entrances` from their birth on (v1).
    pub fn ask(zygote: &OwnedFd, entrances: &[BorrowedFd<'_>]) -> Result<Fork, StepError> {
        let (to_init, init_end) = step("make a socket", channel::pair())?;
        let (to_payload, payload_end) = step("make a socket", channel::pair())?;
        for end in [&to_init, &to_payload] {
            step("ask for senders", channel::tell_senders(end.as_fd()))?;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let program = step("open creel", rustix::fs::open("/proc/self/exe", flags, Mode::empty()))?;
        let mut fds = vec![init_end.as_fd(), payload_end.as_fd(), program.as_fd()];
        fds.extend_from_slice(entrances);
        step("ask the zygote for a fork", channel::send(zygote.as_fd(), b"fork", &fds))?;
        drop((init_end, payload_end));
        let init = born(&to_init, "PID 1")?;
        let payload = born(&to_payload, "the payload")?;
        Ok(Fork { to_init, to_payload, init, payload })
    }

    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        let pid = Pid::from_raw(self.init).ok_or(io::ErrorKind::NotFound)?;
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }

    /// Writes the maps of the new user namespace, which is gone when the processes are.
    pub fn give_identity(&self, ids: Ids) -> Result<OwnedFd, StepError> {
        let Ids::Own { root, .. } = ids else {
            return Err(StepError { step: "give a fork an identity".into(), errno: libc::EINVAL });
        };
        let userns = step("open the user namespace", userns_of(self.init))?;
        let parent = step("find the zygote's user namespace", parent_of(userns.as_fd()))?;
        // The zygote's own map begins at `root`, with 0.
        let seen = |map: Vec<IdMap>| -> Vec<IdMap> {
            map.into_iter().map(|m| IdMap { outside: m.outside - root, ..m }).collect()
        };
        let (uids, gids) = ids.maps();
        let written = write_maps_inside(parent.as_fd(), self.init, &seen(uids), &seen(gids));
        step("write the identity maps", written)?;
        Ok(userns)
    }

    /// Leads both to where they wait for a program.
    pub fn build(
        &self,
        spec: &Spec,
        init: &InitPlan,
        filter: &[u8],
        trees: &Trees,
        pid_1: BorrowedFd<'_>,
    ) -> Result<(), StepError> {
        let last_capability = sys::privileges::last();
        let script = Script::for_init(spec.role, last_capability);
        let to_init = self.to_init.as_fd();
        step("lead PID 1", channel::send(to_init, script.text().as_bytes(), &[]))?;
        let plan = serde_json::to_vec(init).map_err(io::Error::from);
        step("tell init its plan", plan.and_then(|plan| channel::send(to_init, &plan, &[])))?;
        step("start init", trees.send(to_init, filter, &[]))?;
        let word = step("wait for init", receive_within(to_init, channel::SHORT, ANSWER_WITHIN))?;
        if word.data != MOUNTED {
            return Err(if word.data.is_empty() { gone("PID 1") } else { complaint(&word.data) });
        }
        // Ready to be chosen first when memory runs out, as a payload that is executed.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", self.payload), "500");
        let mut writable = spec.role.writable().to_vec();
        writable.extend(spec.scratch.iter().map(|s| s.target.as_str()));
        let number = |n: Option<u64>| n.unwrap_or(u64::MAX);
        let rlimits = resource_limits(spec.command.nofile.min(NOFILE));
        let rlimits = rlimits.map(|(_, which, l)| (which as u32, number(l.current), number(l.maximum)));
        let script = Script::for_payload(
            spec.role,
            &Payload {
                landlock_abi: spec.landlock_abi,
                writable: &writable,
                filter,
                rlimits: rlimits.to_vec(),
                last_capability,
            },
        );
        let sent = channel::send(self.to_payload.as_fd(), script.text().as_bytes(), &[pid_1]);
        step("lead the fork into the slot", sent)
    }

    /// What the launcher keeps: the socket to init, and the one to the waiting Python.
    pub fn settle(self, showing: Option<Showing>) -> (OwnedFd, Waiting) {
        (self.to_init, Waiting::new(self.to_payload, None, self.init, showing))
    }
}

/// The pid of a process that says that it is there.
fn born(end: &OwnedFd, who: &str) -> Result<i32, StepError> {
    let word = receive_within(end.as_fd(), channel::SHORT, ANSWER_WITHIN);
    let word = step(format!("wait for the zygote to fork {who}"), word)?;
    match (word.data.as_slice(), word.sender) {
        (BORN, Some(pid)) => Ok(pid),
        ([], _) => Err(gone(who)),
        (data, _) => Err(complaint(data)),
    }
}

fn gone(who: &str) -> StepError {
    StepError { step: format!("wait for {who} of a slot: it or its zygote has ended"), errno: libc::ECHILD }
}
