//! The zygote: a Python that has imported modules, in a template sandbox, and that is forked for each slot (fork.rs).
//!
//! It has an image's root, an id of its own, no capability, no network, and its own limits; and, unlike a payload, neither landlock nor a
//! system-call filter, for its forks mount their roots after they are born. It runs nothing but the image's own modules: whoever may put files into an
//! image can run code here.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::mount::MountAttrFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroup;
use super::channel;
use super::go::Go;
use super::launcher::{LEFT_BEHIND, Own, failed, limit, places, prepare_self, tell};
use super::mounts::new_fs;
use super::outcome::{End, Event, Order, Outcome};
use super::role::Role;
use super::setup::{self, Failure, Plan};
use super::slot::{complaint, waiting_room};
use super::spec::{Ids, Spec};
use super::template::{StepError, step};
use super::trees::{Trees, give_identity};
use super::watch::{self, PRELOAD_WITHIN};
use crate::sys::process::{Cloned, clone3, exit_now};

/// Bytes of what a zygote says on its streams that are kept to explain its end.
const SAID: usize = 2048;

/// Makes the calling process, which must be single-threaded and forked for this, the launcher of a zygote, whose image, limits, environment and ids
/// stand in `spec` (`Ids::Template`, `Role::Zygote`, no `slot`). It imports `preload` and serves `requests`, the zygote's end of the socket that slots
/// are asked for by ([`Slot::Forked`](super::spec::Slot)). Events on `control` as from a launcher: `Ready` when it can be forked, `Ended` when it can't
/// any more. `finish` as for `launcher::run_here`.
pub fn run_here(
    mut spec: Spec,
    control: OwnedFd,
    requests: OwnedFd,
    preload: Vec<String>,
    finish: impl FnOnce(&Spec, &OwnedFd, bool) -> bool,
) -> ! {
    spec.held.push(requests);
    spec.role = Role::Zygote { id: 0 };
    let mut own = match prepare_self(&spec, &control) {
        Ok(own) => own,
        Err(e) => {
            tell(&control, &Event::Ended(failed(e)));
            exit_now(if finish(&spec, &control, true) { 0 } else { LEFT_BEHIND })
        }
    };
    let _ = own.title.set(&format!("creel-zygote {}", spec.run_id));
    let mut zygote = None;
    let ended = run(&mut spec, &control, &mut own, &preload, &mut zygote);
    let gone = zygote.is_none_or(|pidfd| watch::kill(&own.group, &pidfd));
    let outcome = ended.map(|end| Outcome { end, ..failed(StepError { step: String::new(), errno: 0 }) });
    tell(&control, &Event::Ended(outcome.unwrap_or_else(failed)));
    let clean = own.group.remove().is_ok() && gone;
    exit_now(if finish(&spec, &control, clean) && clean { 0 } else { LEFT_BEHIND })
}

fn run(
    spec: &mut Spec,
    control: &OwnedFd,
    own: &mut Own,
    preload: &[String],
    zygote: &mut Option<OwnedFd>,
) -> Result<End, StepError> {
    let Ids::Template { user, root } = spec.ids else {
        return Err(StepError { step: "make a zygote as an ordinary user".into(), errno: libc::EPERM });
    };
    let Some(requests) = spec.held.pop() else {
        return Err(StepError { step: "find the zygote's socket".into(), errno: libc::EBADF });
    };
    spec.role = Role::Zygote { id: user - root };
    let (socket, end) = step("make a socket", channel::pair())?;
    let text =
        ["zygote"].into_iter().chain(preload.iter().map(String::as_str)).collect::<Vec<_>>().join("\n");
    step("tell the zygote what to import", channel::send(socket.as_fd(), text.as_bytes(), &[]))?;
    let room = waiting_room(spec)?;
    let (said, says) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    step("make a pipe", rustix::fs::fcntl_setfl(&said, OFlags::NONBLOCK))?;
    let (report, report_write) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    let report_write = step("duplicate a descriptor", rustix::io::fcntl_dupfd_cloexec(&report_write, 64))?;
    let (go_end, our_end) = step("make a socket", channel::pair())?;
    let output = vec![step("duplicate a descriptor", says.try_clone())?, says];
    let more = vec![end, room, requests];

    limit(&mut own.group, spec)?;
    let group = &own.group;
    let birth = group.payload_birth().or(group.init_birth());
    let pid = match step("make the zygote's namespaces", clone3(libc::CLONE_NEWUSER, birth))? {
        Cloned::Parent { pid, pidfd } => {
            *zygote = Some(pidfd);
            pid
        }
        Cloned::Child => {
            drop(our_end);
            let failure = become_zygote(spec, &output, &more, &go_end, report_write.as_raw_fd());
            if let Failure::Step(e) = failure {
                let _ = rustix::io::write(&report_write, format!("{} {}", e.errno, e.step).as_bytes());
            } else if let Failure::NotExecuted(errno) = failure {
                let _ = rustix::io::write(&report_write, format!("{errno} execute its Python").as_bytes());
            }
            exit_now(125)
        }
    };
    drop((go_end, report_write, output, more));
    let ids = spec.ids;
    let mut trees = Trees::make(spec, |template| give_identity(ids, pid, template))?;
    // Its forks may mount a /proc of their own only where one that shows everything is visible (user_namespaces(7)). Other processes' entries
    // are hidden from it: it has no business with the host's.
    let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = step("mount the zygote's /proc", new_fs("proc", &[("hidepid", Some("invisible"))], attrs))?;
    trees.dirs.binds.insert(0, (proc, "/proc".into()));
    // No filter is installed; the packet has room for one.
    step("start the zygote", trees.send(our_end.as_fd(), &[0; 8], &group.entrances()))?;
    drop(trees);
    wait(control, &socket, report, &said)
}

/// The way of the process that becomes the zygote.
fn become_zygote(spec: &Spec, output: &[OwnedFd], more: &[OwnedFd], go: &OwnedFd, report: RawFd) -> Failure {
    let gone = || Failure::Step(StepError { step: "hear from the launcher".into(), errno: libc::EPIPE });
    if let Err(e) = setup::early(spec.role) {
        return Failure::Step(e);
    }
    let Some(go) = Go::receive(go.as_fd()) else { return gone() };
    if let Err(e) = step("enter the zygote's cgroup", cgroup::enter(&go.entrances)) {
        return Failure::Step(e);
    }
    // No init comes before it.
    let Ok((settled, _)) = pipe_with(PipeFlags::CLOEXEC) else { return gone() };
    let plan = Plan {
        role: spec.role,
        command: &spec.command,
        landlock_abi: spec.landlock_abi,
        may_setgroups: true,
        go: &go,
        places: &places(spec),
        stdin: None,
        output,
        more,
        init_settled: settled.as_raw_fd(),
    };
    setup::run(&plan, report)
}

/// Waits until it is ready, tells so, and then until it ends or is to.
fn wait(control: &OwnedFd, socket: &OwnedFd, report: OwnedFd, said: &OwnedFd) -> Result<End, StepError> {
    let until = Instant::now() + PRELOAD_WITHIN;
    let (mut ready, mut report, mut words) = (false, Some(report), Vec::new());
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = vec![
            PollFd::new(control, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(said, PollFlags::IN),
        ];
        fds.extend(report.iter().map(|r| PollFd::new(r, PollFlags::IN)));
        match poll(&mut fds, (!ready).then_some(&left)) {
            Ok(0) => {
                return Err(StepError {
                    step: "import the zygote's modules in time".into(),
                    errno: libc::ETIMEDOUT,
                });
            }
            Err(rustix::io::Errno::INTR) => continue,
            other => step("wait for the zygote", other)?,
        };
        let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if happened[2] {
            let mut chunk = [0; 4096];
            if let Ok(n) = rustix::io::read(said, &mut chunk) {
                words.extend_from_slice(&chunk[..n]);
                let extra = words.len().saturating_sub(SAID);
                words.drain(..extra);
            }
        }
        if happened.get(3).copied().unwrap_or(false)
            && let Some(pipe) = report.take()
        {
            let mut text = [0; 1024];
            let n = rustix::io::read(&pipe, &mut text).unwrap_or(0);
            let text = String::from_utf8_lossy(&text[..n]);
            if let Some((errno, what)) = text.split_once(' ') {
                return Err(StepError { step: what.to_owned(), errno: errno.parse().unwrap_or(libc::EIO) });
            }
        }
        if happened[0] {
            let order = channel::receive(control.as_fd(), channel::LONG).unwrap_or_default().0;
            // It needs no order to go.
            if order.first() != Some(&(Order::Go as u8)) {
                return Ok(End::Cancelled);
            }
        }
        if happened[1] {
            match channel::receive(socket.as_fd(), channel::SHORT).unwrap_or_default().0.as_slice() {
                [] => {
                    let words = String::from_utf8_lossy(&words).trim().to_owned();
                    let words = if words.is_empty() { words } else { format!(": {words}") };
                    return Ok(End::Lost(format!("the zygote ended{words}")));
                }
                b"ready" => {
                    ready = true;
                    tell(control, &Event::Ready);
                }
                data => return Err(complaint(data)),
            }
        }
    }
}
