//! Carries out one request from beginning to end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use super::harvest::{HarvestError, HarvestLimits, harvest};
use super::ids::{self, Lease, lease};
use super::plan::{cgroup_limits, command, enforced, extra_mounts, lower};
use super::pump::{Ended, Pump};
use super::report::{Category, Report, ReportError, Timings};
use super::request::{Program, Request, Stdin};
use super::settle::settle;
use super::stage::stage;
use super::state::{Run, State, StateError};
use super::streams::{Input, Output};
use crate::image;
use crate::limits::LimitKind;
use crate::sandbox::cgroup::{self, Found};
use crate::sandbox::disk::DiskHold;
use crate::sandbox::go::filter_bytes;
use crate::sandbox::host::Lack;
use crate::sandbox::role::Role;
use crate::sandbox::run_dirs::{INPUTS, ON_DISK};
use crate::sandbox::spec::{Inputs, Spec};
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
    pub fn new(category: Category, code: &str, message: impl Into<String>) -> Stop {
        Stop { category, error: ReportError { code: code.into(), message: message.into() } }
    }

    pub fn host(code: &str, message: impl Into<String>) -> Stop {
        Stop::new(Category::SandboxError, code, message)
    }

    pub fn rejected(code: &str, message: impl Into<String>) -> Stop {
        Stop::new(Category::Rejected, code, message)
    }
}

impl From<Lack> for Stop {
    fn from(lack: Lack) -> Stop {
        Stop::host(lack.code(), lack.to_string())
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
    let landlock_abi = sys::landlock::abi();
    let lack = Lack::limits(&cgroups, |k| request.allow_unenforced.contains(&k));
    if let Some(lack) = lack.or_else(|| Lack::landlock(landlock_abi)) {
        return Err(lack.into());
    }
    let skills: Vec<&str> = request.skills.iter().map(|s| s.id.as_str()).collect();
    let mut image = image::open(&request.image, &skills).map_err(|e| {
        let stop = if e.is_host_fault() { Stop::host } else { Stop::rejected };
        stop(e.code(), e.to_string())
    })?;
    request.notes.append(&mut image.notes);
    lower(request, &image)?;
    report.limits = request.limits.clone();
    let command = command(request, &image)?;
    let program = command.argv[0].to_string_lossy().into_owned();
    let state = State::open().map_err(state_error)?;
    let swept = state.sweep(&cgroups, SWEEP);
    if swept.removed > 0 {
        report.notes.push(format!("cleaned up after earlier runs that were killed: {}", swept.removed));
    }
    report.notes.extend(swept.failed);
    let lease =
        lease().map_err(|e| Stop::host("host.uid", format!("cannot take a host id from /run/creel: {e}")))?;

    let limits = &request.limits;
    let disk =
        DiskHold::choose(limits, cgroups.missing(LimitKind::Memory).is_none(), state.disk(), lease.ids);
    enforced(report, request, &cgroups, landlock_abi, &lease.ids, disk);
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
    own_pipes(&lease, [&out, &err].into_iter().chain(&input)).map_err(|e| {
        let lack = Lack::host_ids(ids::ROOT_ID, ids::COUNT + 1);
        lack.map_or_else(|| io_error("give the streams to the sandbox")(e), Stop::from)
    })?;

    let owner = lease.ids.user();
    let (shown, scratch) = extra_mounts(request, &mut image)?;
    // Last of what can fail for the host's or the caller's sake: from here on there is something to clean up.
    let mut run = state.new_run(&request.run_id, &cgroups).map_err(state_error)?;
    let inputs = if request.inputs.is_empty() {
        Inputs::Few(vec![("manifest.json".into(), b"[]".into())])
    } else {
        let dir = run.inputs().map_err(state_error)?;
        Inputs::Staged(dir)
    };
    if disk != DiskHold::Tmpfs {
        run.make(&ON_DISK).map_err(state_error)?;
    }
    let duplicate = io_error("duplicate a descriptor");
    let spec = Spec {
        run_id: request.run_id.clone(),
        role: Role::Payload,
        root: image.root,
        command,
        limits: limits.clone(),
        cgroup_limits: cgroup_limits(request, &cgroups),
        cgroup: cgroups.clone(),
        landlock_abi,
        ids: lease.ids,
        disk,
        inputs,
        slot: None,
        run_dir: run.dir.as_ref().map(OwnedFd::try_clone).transpose().map_err(duplicate)?,
        place: run.runs.try_clone().map_err(duplicate)?,
        entry: match &mut request.program {
            Program::Script { lang, code, .. } => Some((lang.entry().to_owned(), std::mem::take(code))),
            _ => None,
        },
        shown,
        scratch,
        stdin: input,
        output: vec![out, err],
        held: lease
            .lock
            .into_iter()
            .chain([run.ledger.try_clone().map_err(duplicate)?])
            .chain(image.held)
            .collect(),
    };
    let pump = Pump::new(signals, stdin, stdout, stderr).map_err(io_error("adopt orphans"))?;
    let launched = Instant::now();
    let launcher = launcher::start(spec).map_err(|e| {
        let lack = Lack::of_step("fork the launcher", e.raw_os_error().unwrap_or(0));
        lack.map_or_else(|| io_error("fork the launcher")(e), Stop::from)
    })?;
    drop_privileges().map_err(io_error("drop capabilities"))?;

    // While the launcher works: what it needs only in the end.
    let staging = Instant::now();
    let filter = stage_all(&run, request);
    report.timings_ms.stage = ms(staging);
    let go = filter.as_ref().ok().map(Vec::as_slice);
    let mut ended = pump.until_the_end(&launcher, go, &cgroups, &request.run_id);
    report.timings_ms.launch = ended.started.map_or(0.0, |t| (t - launched).as_secs_f64() * 1e3);
    report.timings_ms.run = ended.started.map_or(0.0, |t| (ended.over - t).as_secs_f64() * 1e3);

    let stop = filter.err();
    if stop.is_none() {
        settle(report, &ended, &program);
    }
    let stop = stop.or_else(|| collect(report, request, &ended, owner).err()).or_else(|| {
        let e = ended.lost.take()?;
        Some(Stop::host(
            "host.output",
            format!("cannot write the program's output to the standard output or error: {e}"),
        ))
    });
    (report.stdout, report.stdout_bytes, report.stdout_truncated) = std::mem::take(&mut ended.stdout);
    (report.stderr, report.stderr_bytes, report.stderr_truncated) = std::mem::take(&mut ended.stderr);

    let cleaning = Instant::now();
    clean(report, state, run, &cgroups, &mut ended, launcher.pid);
    report.timings_ms.clean = ms(cleaning);
    stop.map_or(Ok(()), Err)
}

/// Copies the inputs and compiles the system-call filter.
fn stage_all(run: &Run, request: &Request) -> Result<Vec<u8>, Stop> {
    if !request.inputs.is_empty() {
        stage(&run.path.join(INPUTS), &request.inputs).map_err(|e| {
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

/// So that a payload can open its `/dev/stdout`: a pipe belongs to its maker else.
fn own_pipes<'a>(lease: &Lease, pipes: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, fchown};
    if let Some(user) = lease.ids.owner() {
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
fn clean(report: &mut Report, state: State, run: Run, cgroups: &Found, ended: &mut Ended, launcher: i32) {
    // The directory goes while the launcher, on another CPU, removes the cgroup and ends.
    let removed = run.remove();
    ended.reap(launcher);
    if ended.launcher_status != Some(0)
        && let Err(e) = cgroup::reclaim(cgroups, &report.run_id)
    {
        report.notes.push(format!("{e}; creel gc or the next run will try again"));
        // A line in the ledger is how the sweep finds the cgroup.
        if let Ok(marker) = state.new_run(&report.run_id, cgroups) {
            marker.leave();
        }
    }
    if let Err(e) = removed {
        report
            .notes
            .push(format!("cannot remove the run's directory: {e}; creel gc or the next run will try again"));
    }
}
