//! The spawner: a single-threaded process that is forked from a daemon before it has threads, and that forks every worker. Nothing is ever
//! forked from a process with threads.
//!
//! It knows no more of a job than its run id, keeps no descriptor of it, and reaps whoever ends: workers, which have become launchers, and sandboxes
//! that lost theirs. When one ended badly it has a process of its own clean up, and only then says that it is gone.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

use super::job::Job;
use super::prepare::Host;
use super::state::State;
use super::worker;
use crate::sandbox::cgroup::reclaim;
use crate::sandbox::channel;
use crate::sys;
use crate::sys::process::{Cloned, TitleArea, clone3, exit_now};

/// The daemon's side of the spawner.
#[derive(Debug)]
pub struct Spawner {
    /// Packets: [`Job`]s out; in, the run ids of workers that are gone, with all that they made.
    pub(super) socket: OwnedFd,
    pub(super) pidfd: OwnedFd,
}

/// Why there is no spawner.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the process that starts sandboxes: {0}; creel doctor tells what this host lacks")]
pub struct SpawnError(#[from] io::Error);

impl Spawner {
    /// Forks it. The calling process must be single-threaded; afterwards it may have threads, and needs no more rights than those over files and
    /// processes of other uids.
    ///
    /// # Errors
    /// When the socket or the process can't be made.
    pub fn start() -> Result<Spawner, SpawnError> {
        let (ours, theirs) = channel::pair()?;
        match clone3(0, None)? {
            Cloned::Parent { pidfd, .. } => Ok(Spawner { socket: ours, pidfd }),
            Cloned::Child => {
                // A panic must not unwind into the caller's code a second time.
                let code = catch_unwind(AssertUnwindSafe(|| match Serving::prepare(theirs) {
                    Ok(serving) => serving.until_the_end(),
                    Err(_) => 1,
                }));
                exit_now(code.unwrap_or(101))
            }
        }
    }
}

/// The state of the spawner's process.
struct Serving {
    host: Host,
    /// `None` when the daemon is gone: then it waits for those who are left.
    socket: Option<OwnedFd>,
    signals: OwnedFd,
    /// Run ids by pid.
    workers: HashMap<i32, String>,
    /// Processes that clean up, and after whom.
    sweepers: HashMap<i32, Vec<String>>,
    /// Run ids that the daemon has not been told yet, because its buffer is full.
    outbox: VecDeque<String>,
}

impl Serving {
    fn prepare(socket: OwnedFd) -> io::Result<Serving> {
        rustix::process::setsid()?;
        sys::signal::shut_out()?;
        let signals = sys::signal::block_and_watch(&[libc::SIGCHLD])?;
        sys::fds::close_all_except(&[0, 1, 2, socket.as_raw_fd(), signals.as_raw_fd()])?;
        // Whoever waits for the daemon's standard streams to end does not wait for this process. (The numbers stay taken, so that nothing of a job
        // gets them.)
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        (0..3).try_for_each(|n| sys::fds::install_std(null.as_fd(), n))?;
        drop(null);
        TitleArea::find()?.set("creel-spawner")?;
        set_child_subreaper(Some(getpid()))?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        Ok(Serving {
            host: Host::probe(),
            socket: Some(socket),
            signals,
            workers: HashMap::new(),
            sweepers: HashMap::new(),
            outbox: VecDeque::new(),
        })
    }

    /// Serves until the daemon is gone and nobody is left.
    fn until_the_end(mut self) -> i32 {
        // What was left by earlier daemons.
        self.sweep(Vec::new());
        while self.socket.is_some() || !self.workers.is_empty() || !self.sweepers.is_empty() {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if let Some(socket) = &self.socket {
                let out = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                fds.push(PollFd::new(socket, PollFlags::IN | out));
            }
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let child = !fds[0].revents().is_empty();
            let spoken_to =
                fds.get(1).is_some_and(|fd| fd.revents().intersects(PollFlags::IN | PollFlags::HUP));
            if child {
                while sys::signal::next(self.signals.as_fd()).is_some() {}
                self.reap();
            }
            if spoken_to {
                self.hear();
            }
            self.tell();
        }
        0
    }

    /// One job, or the end of the daemon.
    fn hear(&mut self) {
        let Some(socket) = &self.socket else { return };
        let (packet, fds) = match channel::receive(socket.as_fd(), channel::LONG) {
            Ok((packet, fds)) if !packet.is_empty() => (packet, fds),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            _ => {
                self.socket = None;
                return;
            }
        };
        let Some(id) = Job::run_id_of(&packet).map(str::to_owned) else { return };
        match clone3(0, None) {
            Ok(Cloned::Child) => {
                // What the spawner has is no launcher's: its buffers go with the launcher's close_all_except; the socket goes now, so that a worker
                // that hangs keeps no dead daemon's spawner alive.
                self.socket = None;
                let ran = catch_unwind(AssertUnwindSafe(|| worker::main(&self.host, &packet, fds)));
                exit_now(ran.map_or(101, |never| never))
            }
            Ok(Cloned::Parent { pid, .. }) => drop(self.workers.insert(pid, id)),
            // The control socket closes with `fds`, which the daemon takes for what it is.
            Err(_) => self.outbox.push_back(id),
        }
    }

    /// Takes everybody who has ended.
    fn reap(&mut self) {
        let mut badly = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if let Some(id) = self.workers.remove(&pid) {
                match status.exit_status() {
                    Some(0) => self.outbox.push_back(id),
                    _ => badly.push(id),
                }
            } else if let Some(ids) = self.sweepers.remove(&pid) {
                self.outbox.extend(ids);
            }
        }
        if !badly.is_empty() {
            self.sweep(badly);
        }
    }

    /// Has a process of its own clean up what was left: removing a tree may take long. `after`: who is gone when it is done.
    fn sweep(&mut self, after: Vec<String>) {
        match clone3(0, None) {
            Ok(Cloned::Child) => {
                self.socket = None;
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    // A sandbox that is still dying may hold its line in the ledger.
                    for id in &after {
                        let _ = reclaim(&self.host.cgroups, id);
                    }
                    if let Ok(state) = State::open() {
                        state.sweep(&self.host.cgroups, usize::MAX);
                    }
                }));
                exit_now(0)
            }
            Ok(Cloned::Parent { pid, .. }) => drop(self.sweepers.insert(pid, after)),
            // The next sweep finds it.
            Err(_) => self.outbox.extend(after),
        }
    }

    /// Tells the daemon who is gone, as far as it listens.
    fn tell(&mut self) {
        let Some(socket) = &self.socket else { return self.outbox.clear() };
        while let Some(id) = self.outbox.front() {
            match channel::send(socket.as_fd(), id.as_bytes(), &[]) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.outbox.clear(),
            }
        }
    }
}
