//! The launcher's watch over one sandbox: from the order to go until everything in it is dead.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::cgroup::{Group, OomWatch};
use super::channel;
use super::disk::{DiskHold, Unlinked, free_bytes, over_limit};
use super::init::RESULT_LEN;
use super::outcome::{End, Event, Order, Outcome};
use super::slot::Waiting;
use super::spec::{KILL_WITHIN, Spec};
use super::template::StepError;

/// Time for the set-up itself; it takes milliseconds.
const SET_UP_WITHIN: Duration = Duration::from_secs(30);
/// Time for a slot to import its modules.
pub const PRELOAD_WITHIN: Duration = Duration::from_secs(120);
/// A slot that waits has no deadline; whoever made it ends it.
const WAITS_FOR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often the disk is looked at, at most.
const DISK_EVERY: Duration = Duration::from_millis(100);
/// v1 tells of an out-of-memory before it has killed: the counter is read again for so long, and at such steps.
const OOM_SETTLES: Duration = Duration::from_millis(500);
const OOM_STEP: Duration = Duration::from_millis(2);

const DELIVER: u8 = Order::Deliver as u8;
const HEAT: u8 = Order::Heat as u8;

/// The directories that must not grow over their limits.
pub struct Watched {
    pub work: OwnedFd,
    pub outputs: OwnedFd,
}

/// What is watched.
pub struct Watch<'a> {
    pub spec: &'a Spec,
    pub group: &'a Group,
    /// `None` when they could not be made.
    pub dirs: Option<Watched>,
    /// init
    pub pid: i32,
    pub pidfd: &'a OwnedFd,
    pub init: OwnedFd,
    /// From the payload: why it could not start, or end of file when its program runs. A fork of a zygote executes nothing.
    pub report: Option<OwnedFd>,
    /// The waiting Python of a sandbox that is made ahead.
    pub slot: Option<Waiting>,
    pub caller: &'a OwnedFd,
}

/// How far things are.
struct State {
    end: Option<End>,
    status: Option<i32>,
    cpu_us: Option<u64>,
    started: Option<Instant>,
    ended: Option<Instant>,
    report_open: bool,
    /// A slot that has said that it waits for a delivery.
    waits: bool,
    /// Its socket is at its end.
    closed: bool,
    paths_hidden: bool,
    deadline: Instant,
    next_look: Instant,
    oom_until: Option<Instant>,
    unlinked: Unlinked,
    free_at_start: u64,
}

impl Watch<'_> {
    /// Watches, ends what must be ended, kills the rest, and says how it was. `prepared`: what went wrong before the
    /// order to go. `on_start` is called once, when the program runs.
    pub fn until_the_end(self, prepared: Result<(), StepError>, on_start: impl FnOnce()) -> Outcome {
        let now = Instant::now();
        let mut state = State {
            end: None,
            status: None,
            cpu_us: None,
            started: None,
            ended: None,
            report_open: self.report.is_some(),
            waits: false,
            closed: false,
            paths_hidden: true,
            deadline: now + if self.slot.is_some() { PRELOAD_WITHIN } else { SET_UP_WITHIN },
            next_look: now + DISK_EVERY,
            oom_until: None,
            unlinked: Unlinked::default(),
            free_at_start: self.dirs.as_ref().map_or(0, |d| free_bytes(d.work.as_fd())),
        };
        match prepared {
            Ok(()) => {}
            Err(e) if e.errno == libc::ECANCELED => state.end = Some(End::Cancelled),
            Err(e) => {
                state.end = Some(End::SetUp { step: e.step, errno: e.errno });
                // What init says of itself came first, and explains more.
                if self.report.as_ref().is_some_and(ready) {
                    self.hear_report(&mut state);
                }
            }
        }
        let mut on_start = Some(on_start);
        while state.end.is_none() {
            self.turn(&mut state);
            if state.started.is_some()
                && let Some(on_start) = on_start.take()
            {
                on_start();
            }
        }
        // After init's word there is nothing left to kill; its own end is waited for later.
        let gone = matches!(state.end, Some(End::Exited)) || kill(self.group, self.pidfd);
        let oom_kills = self.group.oom_kills();
        let mut end = state.end.unwrap_or(End::Lost("no end was seen".into()));
        // Whoever ended by itself or got lost while the kernel killed for memory, ended for memory.
        if oom_kills > 0 && matches!(end, End::Exited | End::Lost(_)) {
            end = End::Oom;
        }
        if !gone {
            end = End::Lost(format!(
                "the sandbox did not die within {} s of being killed",
                KILL_WITHIN.as_secs()
            ));
        }
        let wall = match (state.started, state.ended) {
            (Some(from), Some(to)) => to - from,
            _ => Duration::ZERO,
        };
        Outcome {
            end,
            status: state.status,
            wall_us: wall.as_micros() as u64,
            cpu_us: state.cpu_us,
            memory_peak: None,
            pids_peak: None,
            oom_kills,
            paths_hidden: state.paths_hidden,
        }
    }

    /// Waits for the next thing to happen and takes note of it.
    fn turn(&self, state: &mut State) {
        let watching_disk = state.started.is_some() && self.spec.disk == DiskHold::Watch;
        let mut wake = state.deadline;
        if watching_disk {
            wake = wake.min(state.next_look);
        }
        if state.oom_until.is_some() {
            wake = wake.min(Instant::now() + OOM_STEP);
        }
        let wait = wake.saturating_duration_since(Instant::now());
        // Up to the next full microsecond, so that the deadline is not polled for.
        let wait = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: (wait.subsec_nanos() as i64 + 999).min(999_999_999),
        };
        let oom = match self.group.oom_watch() {
            OomWatch::Readable(fd) => Some((fd, PollFlags::IN)),
            OomWatch::Priority(fd) => Some((fd, PollFlags::PRI)),
            OomWatch::Nothing => None,
        };
        let mut fds = vec![PollFd::new(&self.init, PollFlags::IN), PollFd::new(self.caller, PollFlags::IN)];
        let report_at = self.report.as_ref().filter(|_| state.report_open).map(|report| {
            fds.push(PollFd::new(report, PollFlags::IN));
            fds.len() - 1
        });
        let slot_at = self.slot.as_ref().filter(|_| !state.closed && state.started.is_none()).map(|slot| {
            fds.push(PollFd::from_borrowed_fd(slot.socket(), PollFlags::IN));
            fds.len() - 1
        });
        let oom_at = oom.map(|(fd, flags)| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        });
        if poll(&mut fds, Some(&wait)).is_err() {
            return;
        }
        let happened = |at: usize| !fds[at].revents().is_empty();

        if report_at.is_some_and(happened) {
            self.hear_report(state);
        }
        // What it says of itself comes before init's word that it has ended.
        if state.end.is_none() && slot_at.is_some_and(happened) {
            self.hear_slot(state);
        }
        if oom_at.is_some_and(happened) {
            match self.group.oom_watch() {
                OomWatch::Readable(fd) => {
                    let _ = rustix::io::read(fd, &mut [0u8; 8]);
                    state.oom_until = Some(Instant::now() + OOM_SETTLES);
                }
                // v2 tells of every reclaim at the limit, and again when it has killed.
                _ if self.group.oom_kills() > 0 => return state.close(End::Oom),
                _ => {}
            }
        }
        if let Some(until) = state.oom_until {
            if self.group.oom_kills() > 0 {
                return state.close(End::Oom);
            }
            if Instant::now() > until {
                state.oom_until = None;
            }
        }
        if state.end.is_none() && happened(0) {
            self.hear_init(state);
        }
        if state.end.is_none() && happened(1) {
            let (order, fds) = channel::receive(self.caller.as_fd(), channel::LONG).unwrap_or_default();
            match (order.split_first(), &self.slot) {
                (Some((&DELIVER, delivery)), Some(slot)) if state.waits && state.started.is_none() => {
                    self.deliver(slot, delivery, fds, state);
                }
                (Some((&HEAT, _)), Some(slot)) if state.waits && state.started.is_none() => slot.heat(),
                (None, _) => state.close(self.unless_oom(End::Cancelled)),
                (Some(_), _) if order == [Order::Cancel as u8] => {
                    state.close(self.unless_oom(End::Cancelled))
                }
                _ => {}
            }
        }
        let now = Instant::now();
        if state.end.is_none() && now >= state.deadline {
            let end = match state.started {
                Some(_) => End::Timeout,
                None if self.slot.is_some() => {
                    End::SetUp { step: "get a slot ready in time".into(), errno: libc::ETIMEDOUT }
                }
                None => End::SetUp { step: "set up the sandbox in time".into(), errno: libc::ETIMEDOUT },
            };
            state.close(self.unless_oom(end));
        }
        if state.end.is_none() && watching_disk && now >= state.next_look {
            self.look_at_disk(state, now);
        }
    }

    /// An out-of-memory kill that came before we ended the run is why it ended.
    fn unless_oom(&self, end: End) -> End {
        if self.group.oom_kills() > 0 { End::Oom } else { end }
    }

    fn hear_report(&self, state: &mut State) {
        let mut text = [0u8; 1024];
        let n = self.report.as_ref().and_then(|r| rustix::io::read(r, &mut text).ok()).unwrap_or(0);
        state.report_open = false;
        let text = String::from_utf8_lossy(&text[..n]).into_owned();
        match text.split_once(' ') {
            Some((errno, step)) => state.close(
                self.unless_oom(End::SetUp { step: step.into(), errno: errno.parse().unwrap_or(libc::EIO) }),
            ),
            None if !text.is_empty() => {
                state.close(End::NotExecuted { errno: text.parse().unwrap_or(libc::EIO) })
            }
            // A slot's Python runs, not yet the program.
            None if self.slot.is_some() => {}
            None => self.start(state, self.spec.limits.timeout),
        }
    }

    /// The program runs, from now on and for `timeout` at most.
    fn start(&self, state: &mut State, timeout: Duration) {
        let now = Instant::now();
        state.started = Some(now);
        state.deadline = now + timeout;
        state.next_look = now + DISK_EVERY;
        let event = serde_json::to_vec(&Event::Started).unwrap_or_default();
        let outputs: Vec<_> = self.dirs.iter().map(|d| d.outputs.as_fd()).collect();
        let _ = channel::send(self.caller.as_fd(), &event, &outputs);
    }

    /// The waiting Python is ready, or says why it can't be.
    fn hear_slot(&self, state: &mut State) {
        let Some(slot) = &self.slot else { return };
        match slot.hear(self.spec, self.group) {
            // It has carried out what it was told while it waits.
            Ok(true) if state.waits => {}
            Ok(true) => {
                state.waits = true;
                state.deadline = Instant::now() + WAITS_FOR;
                let event = serde_json::to_vec(&Event::Ready).unwrap_or_default();
                let _ = channel::send(self.caller.as_fd(), &event, &[]);
            }
            // It has closed its end: init says how it ended.
            Ok(false) => state.closed = true,
            Err(e) => state.close(self.unless_oom(End::SetUp { step: e.step, errno: e.errno })),
        }
    }

    fn deliver(&self, slot: &Waiting, delivery: &[u8], fds: Vec<OwnedFd>, state: &mut State) {
        let Some(dirs) = &self.dirs else { return };
        match slot.deliver(self.spec, self.group, dirs.work.as_fd(), delivery, fds) {
            Ok((timeout, hidden)) => {
                state.paths_hidden = hidden;
                self.start(state, timeout);
            }
            Err(e) => state.close(self.unless_oom(End::SetUp { step: e.step, errno: e.errno })),
        }
    }

    /// init has said that everything else is dead, or has died without a word.
    fn hear_init(&self, state: &mut State) {
        let data =
            channel::receive(self.init.as_fd(), channel::SHORT).map(|(data, _)| data).unwrap_or_default();
        let Some((status, cpu)) = data.split_first_chunk::<4>().filter(|_| data.len() == RESULT_LEN) else {
            return state.close(End::Lost("PID 1 of the sandbox was killed".into()));
        };
        state.status = Some(i32::from_le_bytes(*status));
        state.cpu_us = cpu.try_into().ok().map(u64::from_le_bytes);
        // The reason for not starting may have come in the same moment.
        if state.report_open {
            self.hear_report(state);
        }
        if state.end.is_none() {
            // Nothing that a user sent ran: that is no end of a program.
            let end = match (&self.slot, state.started) {
                (Some(slot), None) => {
                    let said = slot.said();
                    let said = if said.is_empty() { said } else { format!(": {said}") };
                    End::Lost(format!("the waiting Python ended before it was given a program{said}"))
                }
                _ => End::Exited,
            };
            state.close(end);
        }
    }

    fn look_at_disk(&self, state: &mut State, now: Instant) {
        let owner = self.spec.ids.user();
        let Some(dirs) = &self.dirs else { return };
        let pids = super::processes::of(self.group, self.pid);
        let (unlinked, whole) = state.unlinked.look(&pids, owner);
        let limits = &self.spec.limits;
        let mut over = over_limit(dirs.work.as_fd(), dirs.outputs.as_fd(), limits, unlinked);
        // A program with so many mappings that they can't be counted in time hides what it deleted: then the space that is gone from the
        // file system since the start decides.
        let allowed = limits.work.saturating_add(limits.output).saturating_mul(2);
        if over.is_none()
            && !whole
            && state.free_at_start.saturating_sub(free_bytes(dirs.work.as_fd())) > allowed
        {
            over = Some("it maps too many files for /work to be measured, and the disk fills".into());
        }
        if let Some(what) = over {
            return state.close(self.unless_oom(End::DiskLimit(what)));
        }
        // A fifth of one CPU at most, however many files there are.
        let cost = now.elapsed();
        state.next_look = Instant::now() + DISK_EVERY.max(cost * 4);
    }
}

/// Kills the whole sandbox and waits until it is gone: the end of PID 1 comes after the end of everything in its pid namespace
/// (pid_namespaces(7)). False when that does not happen in time. Once it is gone, it stays so.
pub fn kill(group: &Group, pidfd: &OwnedFd) -> bool {
    let wait = Timespec { tv_sec: KILL_WITHIN.as_secs() as i64, tv_nsec: 0 };
    if !ready(pidfd) {
        group.kill();
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        if !rustix::io::retry_on_intr(|| poll(&mut fds, Some(&wait))).is_ok_and(|n| n > 0) {
            return false;
        }
    }
    match rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)) {
        // Reaped before.
        Ok(_) | Err(rustix::io::Errno::CHILD) => true,
        Err(_) => false,
    }
}

/// Whether something can be read now.
fn ready(fd: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|n| n > 0)
}

impl State {
    fn close(&mut self, end: End) {
        self.end = Some(end);
        self.ended = Some(Instant::now());
    }
}
