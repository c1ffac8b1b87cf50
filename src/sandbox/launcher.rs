//! The launcher: a small single-threaded process that makes a sandbox, is its only parent, watches over it and tells how it ended.
//!
//! It is forked before the caller does anything else, keeps the privileges that the caller then drops, and lives in a mount namespace of
//! its own (template.rs). When the caller dies it kills the sandbox; when it dies itself, the kernel kills the sandbox (init's death
//! signal), and the caller cleans up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::Mode;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroup::Group;
use super::channel;
use super::fork::Fork;
use super::go::Go;
use super::init::{self, Ends, InitPlan};
use super::outcome::{End, Event, Order, Outcome};
use super::role::Role;
use super::run_dirs::{RunDirs, clear_quota};
use super::setup::{self, Plan};
use super::slot::{Python, Waiting};
use super::spec::{Ids, Inputs, Slot, Spec};
use super::template::{StepError, step};
use super::trees::{Trees, give_identity};
use super::watch::{self, Watch, Watched};
use crate::sys;
use crate::sys::process::{Cloned, TitleArea, clone3, exit_now};
use crate::sys::userns::IdMap;

/// The caller's side of a launcher.
#[derive(Debug)]
pub struct Launcher {
    /// Packets: [`Event`]s in, [`Order`]s out.
    pub control: OwnedFd,
    pub pid: i32,
}

/// Forks the launcher for one sandbox. The caller must be single-threaded.
///
/// # Errors
/// When the socket or the process can't be made; everything later arrives as an [`Event`].
pub fn start(spec: Spec) -> io::Result<Launcher> {
    let (ours, theirs) = channel::pair()?;
    match clone3(0, None)? {
        Cloned::Child => {
            drop(ours);
            run_here(spec, theirs, |_, _, _| true)
        }
        Cloned::Parent { pid, .. } => Ok(Launcher { control: ours, pid }),
    }
}

/// Exit code of a launcher that could not remove the run's cgroup.
pub const LEFT_BEHIND: i32 = 3;

/// Makes the calling process, which must be single-threaded and forked for this, the launcher of a sandbox. `control`: the launcher's end.
/// `finish` is called last, when all is dead, with what is still open (every descriptor but the spec's and `control` was closed), and with
/// whether the processes and the cgroup are gone; it says whether nothing was left.
pub fn run_here(mut spec: Spec, control: OwnedFd, finish: impl FnOnce(&Spec, &OwnedFd, bool) -> bool) -> ! {
    let mut own = match prepare_self(&spec, &control) {
        Ok(own) => own,
        Err(e) => {
            tell(&control, &Event::Ended(failed(e)));
            exit_now(if finish(&spec, &control, true) { 0 } else { LEFT_BEHIND })
        }
    };
    let mut init = None;
    let outcome = match run(&mut spec, &control, &mut own, &mut init) {
        Ok(outcome) => outcome,
        Err(e) => failed(e),
    };
    tell(&control, &Event::Ended(outcome));
    // init may still be on its way out, with the namespaces; the caller harvests meanwhile.
    clear_quota(&spec);
    let gone = init.is_none_or(|pidfd| watch::kill(&own.group, &pidfd));
    let gone = own.group.remove().is_ok() && gone;
    exit_now(if finish(&spec, &control, gone) && gone { 0 } else { LEFT_BEHIND })
}

pub fn failed(e: StepError) -> Outcome {
    Outcome {
        end: End::SetUp { step: e.step, errno: e.errno },
        status: None,
        wall_us: 0,
        cpu_us: None,
        memory_peak: None,
        pids_peak: None,
        oom_kills: 0,
        paths_hidden: false,
    }
}

pub fn tell(control: &OwnedFd, event: &Event) {
    // When the caller is gone, there is nobody to tell; the watch loop notices.
    let _ = channel::send(control.as_fd(), &serde_json::to_vec(event).unwrap_or_default(), &[]);
}

/// What the launcher has for itself.
pub struct Own {
    pub group: Group,
    pub title: TitleArea,
    /// The mount namespace that it came from.
    pub host: std::fs::File,
}

/// Makes a launcher of a forked caller: no terminal signals, no descriptors but the run's, namespaces of its own, and the cgroup, whose path
/// is out of reach later.
pub fn prepare_self(spec: &Spec, control: &OwnedFd) -> Result<Own, StepError> {
    let cgroup = match &spec.slot {
        Some(Slot::Forked { .. }) => spec.cgroup.clone().without_birth(),
        // Its forks stay where it was born until they enter their own.
        None if matches!(spec.role, Role::Zygote { .. }) => spec.cgroup.clone().without_birth(),
        _ => spec.cgroup.clone(),
    };
    step("start a session", rustix::process::setsid())?;
    step("block signals", sys::signal::shut_out())?;
    step("leave the working directory", rustix::process::chdir("/"))?;
    let title = step("find the title", TitleArea::find())?;
    step("take a title", title.set(&format!("creel-launcher {}", spec.run_id)))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let group = Group::create(&cgroup, &spec.run_id)
        .map_err(|e| StepError { step: format!("make the run's cgroup ({e})"), errno: e.errno() })?;
    free_of_callers_limits();
    let mut keep = vec![control.as_raw_fd(), spec.place.as_raw_fd()];
    keep.extend(spec.run_dir.iter().map(AsRawFd::as_raw_fd));
    if let Inputs::Staged(dir) = &spec.inputs {
        keep.push(dir.as_raw_fd());
    }
    if let Some(Slot::Forked { zygote }) = &spec.slot {
        keep.push(zygote.as_raw_fd());
    }
    keep.extend(spec.stdin.iter().chain(&spec.output).chain(&spec.held).map(AsRawFd::as_raw_fd));
    keep.extend(spec.root.binds.iter().map(|b| b.source.as_raw_fd()));
    keep.extend(spec.root.layers.iter().map(AsRawFd::as_raw_fd));
    keep.extend(spec.root.upper.iter().flat_map(|u| [u.files.as_raw_fd(), u.scratch.as_raw_fd()]));
    keep.extend(spec.shown.iter().map(|s| s.source.as_raw_fd()));
    keep.extend(group.descriptors());
    let entered = step("close descriptors", sys::fds::close_all_except(&keep)).and_then(|()| {
        if let Ids::Caller { uid, gid } = spec.ids {
            step("make a user namespace", sys::process::unshare(libc::CLONE_NEWUSER))?;
            let map = |id| [IdMap { inside: id, outside: id, count: 1 }];
            let me = rustix::process::getpid().as_raw_nonzero().get();
            step("map the caller's ids", sys::userns::write_maps(me, &map(uid), &map(gid), true))?;
        }
        let host = step("open the mount namespace", std::fs::File::open("/proc/self/ns/mnt"))?;
        step("make a mount namespace", sys::process::unshare(libc::CLONE_NEWNS))?;
        Ok(host)
    });
    match entered {
        Ok(host) => Ok(Own { group, title, host }),
        Err(e) => {
            let _ = group.remove();
            Err(e)
        }
    }
}

/// The caller's own resource limits are not the program's: each goes up to what the caller may set, without bound for who has
/// CAP_SYS_RESOURCE on the host. A hard core limit of 0, as sudo sets it, would let a piped core_pattern run (setup.rs).
fn free_of_callers_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for what in [Resource::As, Resource::Data, Resource::Fsize, Resource::Cpu, Resource::Rss] {
        if setrlimit(what, Rlimit { current: None, maximum: None }).is_err() {
            let hard = getrlimit(what).maximum;
            let _ = setrlimit(what, Rlimit { current: hard, maximum: hard });
        }
    }
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) });
}

fn run(
    spec: &mut Spec,
    control: &OwnedFd,
    own: &mut Own,
    init: &mut Option<OwnedFd>,
) -> Result<Outcome, StepError> {
    let slot = spec.slot.take();
    let (born, made, prepared) = match slot {
        Some(Slot::Forked { zygote }) => forked(spec, control, own, &zygote)?,
        Some(Slot::Started { preload }) => cloned(spec, control, own, Some(&preload))?,
        None => cloned(spec, control, own, None)?,
    };
    let Own { group, host, .. } = own;
    let paths_hidden = made.as_ref().is_ok_and(|t| t.dirs.paths_hidden);
    let (trees, dirs, empty) = match made {
        Ok(Trees { root, dev, empty, place, dirs: RunDirs { work, outputs, binds, .. } }) => {
            (Some((root, dev, binds)), Some(Watched { work, outputs }), Some((empty, place)))
        }
        Err(_) => (None, None, None),
    };
    let on_start = || {
        // While the program runs there is time for what would else delay the end: our trees and mount namespace go now.
        drop((trees, empty));
        // An ordinary user may not go back; then the namespace ends with this process.
        let _ = rustix::thread::move_into_link_name_space(host.as_fd(), None);
    };
    let group = &*group;
    let pidfd = &*init.insert(born.pidfd);
    let watch = Watch {
        spec,
        group,
        dirs,
        pid: born.pid,
        pidfd,
        init: born.channel,
        report: born.report,
        slot: born.slot,
        caller: control,
    };
    let mut outcome = watch.until_the_end(prepared, on_start);
    let stats = group.stats();
    outcome.cpu_us = stats.cpu_us.or(outcome.cpu_us);
    outcome.memory_peak = stats.memory_peak;
    outcome.pids_peak = stats.pids_peak;
    outcome.paths_hidden &= paths_hidden;
    Ok(outcome)
}

/// A sandbox with an init, and what the launcher hears of it by.
struct Born {
    pid: i32,
    pidfd: OwnedFd,
    channel: OwnedFd,
    /// `None`: nothing is executed that could fail to.
    report: Option<OwnedFd>,
    slot: Option<Waiting>,
}

type Made = (Born, Result<Trees, StepError>, Result<(), StepError>);

/// Clones init, which forks the payload.
fn cloned(
    spec: &mut Spec,
    control: &OwnedFd,
    own: &mut Own,
    preload: Option<&[String]>,
) -> Result<Made, StepError> {
    let Own { group, title, .. } = own;
    // init first: it makes the remaining namespaces on one CPU while this process makes the trees on another.
    let (init_end, our_end) = step("make a socket", channel::pair())?;
    let (report_read, report_write) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    // Away from the numbers that a slot's Python has its own descriptors at.
    let report_write = step("duplicate a descriptor", rustix::io::fcntl_dupfd_cloexec(&report_write, 64))?;
    let mut slot = preload.map(|preload| Python::prepare(spec, preload)).transpose()?;
    let may_setgroups = spec.ids.by_root();
    let places = places(spec);
    let born = clone3(libc::CLONE_NEWUSER | libc::CLONE_NEWPID, group.init_birth());
    let (pid, pidfd) = match step("make the sandbox's namespaces", born)? {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            drop(our_end);
            drop(report_read);
            let ends = Ends { control: &init_end, report: &report_write, group: &*group };
            let more = slot.as_mut().map(Python::theirs).unwrap_or_default();
            let payload = |go: &Go, settled: RawFd| {
                let plan = Plan {
                    role: spec.role,
                    command: &spec.command,
                    landlock_abi: spec.landlock_abi,
                    may_setgroups,
                    go,
                    places: &places,
                    stdin: spec.stdin.as_ref(),
                    output: &spec.output,
                    more: &more,
                    init_settled: settled,
                };
                setup::run(&plan, report_write.as_raw_fd())
            };
            init::main(payload, &ends, spec.role, *title, may_setgroups)
        }
    };
    drop(init_end);
    drop(report_write);
    // Only the sandbox holds the streams now: when it is gone, their readers see the end.
    spec.stdin = None;
    spec.output.clear();

    let limited = limit(group, spec);
    let group = &*group;
    let ids = spec.ids;
    let made = limited.and_then(|()| Trees::make(spec, |template| give_identity(ids, pid, template)));
    let prepared = made.as_ref().map_err(StepError::clone).and_then(|trees| {
        let filter = wait_for_go(control)?;
        let entrances = group.entrances();
        step("start init", trees.send(our_end.as_fd(), &filter, &entrances))
    });
    let slot = match slot {
        Some(python) => Some(python.ours(pid, made.as_ref().ok().map(Trees::showing).transpose()?)),
        None => None,
    };
    Ok((Born { pid, pidfd, channel: our_end, report: Some(report_read), slot }, made, prepared))
}

/// Has a zygote fork init and payload.
fn forked(spec: &mut Spec, control: &OwnedFd, own: &mut Own, zygote: &OwnedFd) -> Result<Made, StepError> {
    let group = &mut own.group;
    limit(group, spec)?;
    let group = &*group;
    let filter = wait_for_go(control)?;
    let fork = Fork::ask(zygote, &group.entrances())?;
    let pid = fork.init;
    let pidfd = step("watch PID 1", fork.pidfd())?;
    let ids = spec.ids;
    let made = Trees::make(spec, |template| {
        let userns = fork.give_identity(ids)?;
        template.clone_root(Some(userns.as_fd()))
    });
    let joined = made.as_ref().map_err(StepError::clone).and_then(|trees| {
        let init = InitPlan { role: spec.role, places: places(spec) };
        fork.build(spec, &init, &filter, trees, pidfd.as_fd())?;
        step("put the slot into its cgroup", group.adopt(pid, fork.payload))
    });
    let (channel, slot) = fork.settle(made.as_ref().ok().map(Trees::showing).transpose()?);
    Ok((Born { pid, pidfd, channel, report: None, slot: Some(slot) }, made, joined))
}

pub fn places(spec: &Spec) -> setup::Places {
    let l = &spec.limits;
    setup::Places { tmp: l.tmp, shm: l.shm, run: l.run, scratch: spec.scratch.clone() }
}

pub fn limit(group: &mut Group, spec: &Spec) -> Result<(), StepError> {
    group
        .limit(&spec.cgroup_limits)
        .map_err(|e| StepError { step: format!("limit the run's cgroup ({e})"), errno: e.errno() })
}

/// Waits for the caller to say that inputs are staged, and gives the filter that it sends.
pub fn wait_for_go(control: &OwnedFd) -> Result<Vec<u8>, StepError> {
    let (mut data, _) = step("wait for the inputs", channel::receive(control.as_fd(), channel::LONG))?;
    if data.first() == Some(&(Order::Go as u8)) {
        data.remove(0);
        Ok(data)
    } else {
        Err(StepError { step: "wait for the inputs".into(), errno: libc::ECANCELED })
    }
}
