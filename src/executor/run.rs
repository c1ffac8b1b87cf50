//! Carries out one request from beginning to end.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use super::environment;
use super::harvest::{HarvestError, HarvestLimits, harvest};
use super::ids::{Lease, lease};
use super::pump::{Ended, Pump};
use super::report::{Category, Report, ReportError, Timings};
use super::request::{Program, Request, Stdin};
use super::settle::settle;
use super::stage::stage;
use super::state::{RunDir, State, StateError};
use super::streams::{Input, Output};
use crate::image::{self, BundleMount, Image};
use crate::limits::LimitKind;
use crate::sandbox::cgroup::{self, CgroupLimits, Found};
use crate::sandbox::disk::DiskHold;
use crate::sandbox::go::filter_bytes;
use crate::sandbox::landlock::LEAST_ABI;
use crate::sandbox::run_dirs::{INPUTS, ON_DISK};
use crate::sandbox::spec::{Command, Ids, Inputs, NOFILE, Scratch, Shown, Spec};
use crate::sandbox::{launcher, seccomp};
use crate::sys;

/// Leftovers of crashed runs that one start looks at.
const SWEEP: usize = 64;

/// Why a run did not come about.
#[derive(Debug)]
pub struct Stop {
    pub category: Category,
    pub error: ReportError,
}

impl Stop {
    fn new(category: Category, code: &str, message: impl Into<String>) -> Stop {
        Stop { category, error: ReportError { code: code.into(), message: message.into() } }
    }

    fn host(code: &str, message: impl Into<String>) -> Stop {
        Stop::new(Category::SandboxError, code, message)
    }

    fn rejected(code: &str, message: impl Into<String>) -> Stop {
        Stop::new(Category::Rejected, code, message)
    }
}

/// Runs `request` and reports. The calling process must be single-threaded, and it loses capabilities that only the launcher needs.
pub fn run(mut request: Request) -> Report {
    let begun = Instant::now();
    let mut report = blank(&request);
    if let Err(stop) = carry_out(&mut request, &mut report) {
        report.error_category = stop.category;
        report.error = Some(stop.error);
        report.exit_code = None;
    }
    report.notes.append(&mut request.notes);
    report.limits = request.limits.clone();
    report.timings_ms.total = ms(begun);
    report
}

fn carry_out(request: &mut Request, report: &mut Report) -> Result<(), Stop> {
    // From here on a signal cancels the run instead of ending this process in the middle of something.
    let signals = sys::signal::block_and_watch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let signals = signals.map_err(|e| Stop::host("host.io", format!("cannot watch signals: {e}")))?;
    let cgroups = cgroup::probe();
    check_enforceable(request, &cgroups)?;
    let landlock_abi = sys::landlock::abi();
    if landlock_abi < LEAST_ABI {
        return Err(Stop::host(
            "host.landlock",
            "this kernel has no landlock, or it is not switched on: add landlock to the lsm= kernel parameter (see creel doctor)",
        ));
    }
    let skills: Vec<&str> = request.skills.iter().map(|s| s.id.as_str()).collect();
    let mut image = image::open(&request.image, &skills).map_err(|e| {
        let stop = if e.is_host_fault() { Stop::host } else { Stop::rejected };
        stop(e.code(), e.to_string())
    })?;
    request.notes.append(&mut image.notes);
    lower(request, &image);
    let command = command(request, &image)?;
    let program = command.argv[0].to_string_lossy().into_owned();
    let state = State::open().map_err(state_error)?;
    let swept = state.sweep(&cgroups, SWEEP);
    if swept.removed > 0 {
        report.notes.push(format!("cleaned up after {} earlier runs that were killed", swept.removed));
    }
    report.notes.extend(swept.failed);
    let run_dir = state.new_run(&request.run_id).map_err(state_error)?;
    let lease =
        lease().map_err(|e| Stop::host("host.uid", format!("cannot take a host id from /run/creel: {e}")))?;

    let limits = &request.limits;
    let disk = DiskHold::choose(limits, !request.allow_unenforced.contains(&LimitKind::Memory));
    enforced(report, request, &cgroups, landlock_abi, &lease.ids, disk);
    let inputs = if request.inputs.is_empty() {
        Inputs::Few(vec![("manifest.json".into(), b"[]".into())])
    } else {
        run_dir.make(&[INPUTS]).map_err(state_error)?;
        Inputs::Staged
    };
    if disk == DiskHold::Watch {
        run_dir.make(&ON_DISK).map_err(state_error)?;
    }
    let io_error =
        |what: &'static str| move |e: io::Error| Stop::host("host.io", format!("cannot {what}: {e}"));
    let pass = request.pass_through;
    let (stdout, out) = Output::new(pass.then(rustix::stdio::stdout)).map_err(io_error("make a pipe"))?;
    let (stderr, err) = Output::new(pass.then(rustix::stdio::stderr)).map_err(io_error("make a pipe"))?;
    let (stdin, input) = match std::mem::replace(&mut request.stdin, Stdin::Null) {
        Stdin::Null => (None, None),
        Stdin::File(file) => {
            let (feeder, read) = Input::new(file).map_err(io_error("make a pipe"))?;
            (Some(feeder), Some(read))
        }
    };
    own_pipes(&lease, [&out, &err].into_iter().chain(&input))
        .map_err(io_error("give the streams to the sandbox"))?;

    let owner = match lease.ids {
        Ids::Own { user, .. } => user,
        Ids::Caller { uid, .. } => uid,
    };
    let (shown, scratch) = extra_mounts(request, &mut image)?;
    let spec = Spec {
        run_id: request.run_id.clone(),
        root: image.root,
        command,
        limits: limits.clone(),
        cgroup_limits: cgroup_limits(request, &cgroups),
        cgroup: cgroups.clone(),
        landlock_abi,
        ids: lease.ids,
        disk,
        inputs,
        run_dir: run_dir.dir.try_clone().map_err(io_error("duplicate a descriptor"))?,
        entry: match &mut request.program {
            Program::Script { lang, code, .. } => Some((lang.entry().to_owned(), std::mem::take(code))),
            _ => None,
        },
        shown,
        scratch,
        stdin: input,
        output: vec![out, err],
        held: lease.lock.into_iter().collect(),
    };
    let pump = Pump::new(signals, stdin, stdout, stderr).map_err(io_error("adopt orphans"))?;
    let launched = Instant::now();
    let launcher = launcher::start(spec).map_err(io_error("fork the launcher"))?;
    drop_privileges().map_err(io_error("drop capabilities"))?;

    // While the launcher works: what it needs only in the end.
    let staging = Instant::now();
    let filter = stage_all(&run_dir, request);
    report.timings_ms.stage = ms(staging);
    let go = filter.as_ref().ok().map(Vec::as_slice);
    let mut ended = pump.until_the_end(&launcher, go, &cgroups, &request.run_id);
    report.timings_ms.launch = ended.started.map_or(0.0, |t| (t - launched).as_secs_f64() * 1e3);
    report.timings_ms.run = ended.started.map_or(0.0, |t| (ended.over - t).as_secs_f64() * 1e3);

    let stop = filter.err();
    if stop.is_none() {
        settle(report, &ended, &program);
    }
    let stop = stop.or_else(|| collect(report, request, &ended, owner).err());
    (report.stdout, report.stdout_bytes, report.stdout_truncated) = std::mem::take(&mut ended.stdout);
    (report.stderr, report.stderr_bytes, report.stderr_truncated) = std::mem::take(&mut ended.stderr);

    let cleaning = Instant::now();
    ended.reap(launcher.pid);
    clean(report, run_dir, &cgroups, &ended);
    report.timings_ms.clean = ms(cleaning);
    stop.map_or(Ok(()), Err)
}

/// Copies the inputs and compiles the system-call filter.
fn stage_all(dir: &RunDir, request: &Request) -> Result<Vec<u8>, Stop> {
    if !request.inputs.is_empty() {
        stage(&dir.path.join(INPUTS), &request.inputs).map_err(|e| {
            let stop = if e.is_host_fault() { Stop::host } else { Stop::rejected };
            stop(e.code(), e.to_string())
        })?;
    }
    let filter = seccomp::compile(&request.seccomp.json, &request.seccomp.name).map_err(|e| {
        let cause = std::error::Error::source(&e).map_or(String::new(), |s| format!(": {s}"));
        Stop::rejected("profile.seccomp", format!("{e}{cause}"))
    })?;
    Ok(filter_bytes(filter.instructions()))
}

fn state_error(e: StateError) -> Stop {
    Stop::host("host.state", e.to_string())
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn blank(request: &Request) -> Report {
    Report {
        run_id: request.run_id.clone(),
        image: request.image.clone(),
        lang: match &request.program {
            Program::Script { lang, .. } => Some(lang.name()),
            _ => None,
        },
        start: "cold",
        exit_code: None,
        signal: None,
        error_category: Category::SandboxError,
        error: None,
        walltime_ms: 0.0,
        cpu_ms: None,
        memory_peak_bytes: None,
        pids_peak: None,
        oom_kills: 0,
        stdout: String::new(),
        stderr: String::new(),
        stdout_bytes: 0,
        stderr_bytes: 0,
        stdout_truncated: false,
        stderr_truncated: false,
        produced: Vec::new(),
        skipped: Vec::new(),
        partial: false,
        enforced: BTreeMap::new(),
        limits: request.limits.clone(),
        notes: Vec::new(),
        timings_ms: Timings::default(),
    }
}

/// Refuses when a limit can't hold on this host and the caller did not allow that.
fn check_enforceable(request: &Request, cgroups: &Found) -> Result<(), Stop> {
    let missing: Vec<(LimitKind, String)> = [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu]
        .into_iter()
        .filter(|k| !request.allow_unenforced.contains(k))
        .filter_map(|k| Some((k, cgroups.missing(k)?)))
        .collect();
    let Some((_, reason)) = missing.first() else {
        return Ok(());
    };
    let names: Vec<&str> = missing.iter().map(|(k, _)| k.name()).collect();
    let names = names.join(",");
    Err(Stop::host(
        "host.unenforceable",
        format!(
            "this host can't enforce {names}: {reason}; delegate a cgroup (systemd-run --user --scope -p Delegate=yes creel run …), \
             or accept it with --allow-unenforced {names}"
        ),
    ))
}

fn cgroup_limits(request: &Request, cgroups: &Found) -> CgroupLimits {
    let holds = |k| cgroups.missing(k).is_none();
    CgroupLimits {
        memory: holds(LimitKind::Memory).then_some(request.limits.memory),
        pids: holds(LimitKind::Pids).then_some(request.limits.pids),
        cpu_millis: holds(LimitKind::Cpu).then_some(request.limits.cpu_millis),
    }
}

/// An image's own limits can lower those of the request, never raise them.
fn lower(request: &mut Request, image: &Image) {
    let l = &mut request.limits;
    l.memory = image.limits.memory.map_or(l.memory, |m| m.min(l.memory));
    l.pids = image.limits.pids.map_or(l.pids, |p| p.min(l.pids));
    l.cpu_millis = image.limits.cpu_millis.map_or(l.cpu_millis, |c| c.min(l.cpu_millis));
}

fn command(request: &Request, image: &Image) -> Result<Command, Stop> {
    let text = |bytes: Vec<u8>| {
        CString::new(bytes).map_err(|_| Stop::rejected("run.invalid", "an argument contains a NUL byte"))
    };
    let argv: Vec<Vec<u8>> = match &request.program {
        Program::Script { lang, args, .. } => {
            let program = match lang {
                super::request::Lang::Python => "python3",
                super::request::Lang::Bash => "bash",
            };
            let entry = format!("/work/{}", lang.entry());
            let fixed = [program.as_bytes().to_vec(), entry.into_bytes()];
            fixed.into_iter().chain(args.iter().map(|a| a.as_bytes().to_vec())).collect()
        }
        Program::Command(args) => args.iter().map(|a| a.as_bytes().to_vec()).collect(),
        Program::ImageDefault => image.args.iter().map(|a| a.as_bytes().to_vec()).collect(),
    };
    if argv.first().is_none_or(Vec::is_empty) {
        return Err(Stop::rejected(
            "run.no_program",
            "the image names no program (process.args): give a script, -c CODE or -- COMMAND",
        ));
    }
    let env = environment::build(&image.path_env, &image.env, &request.env, request.limits.cpu_millis);
    let search =
        env.iter().find(|(k, _)| k == "PATH").map(|(_, v)| v.split(':').map(str::to_owned).collect());
    let cwd = match &request.program {
        Program::Script { .. } => "/work",
        _ => &image.cwd,
    };
    Ok(Command {
        argv: argv.into_iter().map(text).collect::<Result<_, _>>()?,
        env: env.into_iter().map(|(k, v)| text(format!("{k}={v}").into_bytes())).collect::<Result<_, _>>()?,
        cwd: text(cwd.into())?,
        search: search.unwrap_or_default(),
        nofile: image.limits.nofile.map_or(NOFILE, |n| n.min(NOFILE)),
    })
}

/// Skills and the mounts of a bundle.
fn extra_mounts(request: &Request, image: &mut Image) -> Result<(Vec<Shown>, Vec<Scratch>), Stop> {
    use rustix::fs::{Mode, OFlags};
    let (mut shown, mut scratch) = (Vec::new(), Vec::new());
    for mount in image.mounts.drain(..) {
        match mount {
            BundleMount::Tmpfs { target, size } => {
                scratch.push(Scratch { target, size: size.min(request.limits.tmp) })
            }
            BundleMount::Bind { source, target } => shown.push(Shown { source, target }),
        }
    }
    for skill in &request.skills {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let source = rustix::fs::open(&skill.dir, flags, Mode::empty()).map_err(|e| {
            Stop::rejected(
                "skill.unreadable",
                format!("cannot open the skill directory {}: {}", skill.dir.display(), io::Error::from(e)),
            )
        })?;
        shown.push(Shown { source, target: format!("/skill/{}", skill.id) });
    }
    Ok((shown, scratch))
}

/// What holds each limit, for the report.
fn enforced(report: &mut Report, request: &Request, cgroups: &Found, abi: i32, ids: &Ids, disk: DiskHold) {
    for kind in [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu] {
        let holder = if cgroups.missing(kind).is_none() { cgroups.holder() } else { "unenforced" };
        report.enforced.insert(kind.name(), holder.into());
    }
    let user = match ids {
        Ids::Own { user, .. } => format!("own host uid {user}"),
        Ids::Caller { uid, .. } => format!("the caller's uid {uid}"),
    };
    for (what, by) in [
        ("seccomp", request.seccomp.name.clone()),
        ("landlock", format!("abi {abi}")),
        ("network", "none (own namespace, loopback only)".into()),
        ("user", user),
        ("root", "read-only".into()),
        ("disk", disk.name().into()),
        ("walltime", "launcher".into()),
    ] {
        report.enforced.insert(what, by);
    }
}

/// So that a payload can open its `/dev/stdout`: a pipe belongs to its maker else.
fn own_pipes<'a>(lease: &Lease, pipes: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, fchown};
    if let Ids::Own { user, .. } = lease.ids {
        for pipe in pipes {
            fchown(pipe, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
        }
    }
    Ok(())
}

/// The launcher is up: what remains to be done here needs no power over the system. Files of other uids and the clean-up after a killed
/// launcher do need rights as root.
fn drop_privileges() -> io::Result<()> {
    let have = sys::privileges::effective()?;
    sys::privileges::keep_only(have & sys::privileges::FILES_AND_KILL)
}

/// Harvests what a run of this kind left.
fn collect(report: &mut Report, request: &Request, ended: &Ended, owner: u32) -> Result<(), Stop> {
    let begun = Instant::now();
    let (true, Some(outputs)) = (report.error_category.harvests(), &ended.outputs) else {
        return Ok(());
    };
    let l = &request.limits;
    let limits = HarvestLimits { bytes: l.output, files: l.output_files, depth: l.output_depth };
    let result = harvest(outputs.as_fd(), &request.output_dir, &limits, Some(owner));
    report.timings_ms.harvest = ms(begun);
    match result {
        Ok(harvest) => {
            report.produced = harvest.produced;
            report.skipped = harvest.skipped;
            report.partial = matches!(report.error_category, Category::Timeout | Category::Oom);
            Ok(())
        }
        Err(HarvestError::Rejected { code, message }) => Err(Stop::rejected(code, message)),
        Err(e) => Err(Stop::host("outputs.unsaved", e.to_string())),
    }
}

/// Leaves nothing behind. What can't be removed now is found by the next start.
fn clean(report: &mut Report, dir: RunDir, cgroups: &Found, ended: &Ended) {
    if ended.launcher_status != Some(0)
        && let Err(e) = cgroup::reclaim(cgroups, &report.run_id)
    {
        report.notes.push(format!("{e}; creel gc or the next run will try again"));
        return dir.leave();
    }
    if let Err(e) = dir.remove() {
        report
            .notes
            .push(format!("cannot remove the run's directory: {e}; creel gc or the next run will try again"));
    }
}
