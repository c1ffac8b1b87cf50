//! Carries out one request from beginning to end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::plan::open_skills;
use super::prepare::{Given, Host, InputsFrom, Purpose, io_error, prepare};
use super::pump::{Ended, Pump};
use super::report::{Category, Report, ReportError, Timings};
use super::request::{Program, Request, SeccompChoice, Stdin};
use super::settle::{collect, settle};
use super::stage::stage;
use super::state::{Run, State};
use super::streams::{Input, Output};
use crate::sandbox::cgroup::{self, Found};
use crate::sandbox::go::filter_bytes;
use crate::sandbox::host::Lack;
use crate::sandbox::run_dirs::INPUTS;
use crate::sandbox::{launcher, seccomp};
use crate::sys;

/// Why a run did not come about.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    let signals = signals.map_err(io_error("watch signals"))?;
    let host = Host::probe();
    let mut prepared = prepare(request, &host, Purpose::Run)?;
    // The image may have lowered them.
    report.limits = request.limits.clone();
    report.notes.append(&mut prepared.swept);
    report.enforced = std::mem::take(&mut prepared.enforced);
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
    let owner = prepared.lease.ids.user();
    let program = std::mem::take(&mut prepared.program);
    let inputs = if request.inputs.is_empty() { InputsFrom::Nothing } else { InputsFrom::OwnDirectory };
    let skills = open_skills(&request.skills)?;
    let given = Given { stdin: input, output: vec![out, err], skills, inputs, slot: None };
    let (spec, run, state) = prepared.spec(request, &host, given)?;
    let pump = Pump::new(signals, stdin, stdout, stderr).map_err(io_error("adopt orphans"))?;
    let launched = Instant::now();
    let launcher = launcher::start(spec).map_err(|e| {
        let lack = Lack::of_step("fork the launcher", e.raw_os_error().unwrap_or(0));
        lack.map_or_else(|| io_error("fork the launcher")(e), Stop::from)
    })?;
    drop_privileges().map_err(io_error("drop capabilities"))?;

    // While the launcher works: what it needs only in the end.
    let staging = Instant::now();
    let filter = stage_all(&run, &request.inputs).and_then(|()| compiled(&request.seccomp));
    report.timings_ms.stage = ms(staging);
    let go = filter.as_ref().ok().map(Vec::as_slice);
    let mut ended = pump.until_the_end(&launcher, go, &host.cgroups, &request.run_id);
    report.timings_ms.launch = ended.started.map_or(0.0, |t| (t - launched).as_secs_f64() * 1e3);
    report.timings_ms.run = ended.started.map_or(0.0, |t| (ended.over - t).as_secs_f64() * 1e3);

    let stop = filter.err();
    if stop.is_none() {
        settle(report, ended.outcome.as_ref(), ended.signal, &program);
    }
    let outputs = ended.outputs.as_ref().map(AsFd::as_fd);
    let stop = stop.or_else(|| collect(report, &request.limits, &request.output_dir, outputs, owner).err());
    let stop = stop.or_else(|| ended.lost.take().map(lost_output));
    (report.stdout, report.stdout_bytes, report.stdout_truncated) = std::mem::take(&mut ended.stdout);
    (report.stderr, report.stderr_bytes, report.stderr_truncated) = std::mem::take(&mut ended.stderr);

    let cleaning = Instant::now();
    clean(report, state, run, &host.cgroups, &mut ended, launcher.pid);
    report.timings_ms.clean = ms(cleaning);
    stop.map_or(Ok(()), Err)
}

/// Why a run whose output got lost on our side is no success.
pub(super) fn lost_output(e: io::Error) -> Stop {
    Stop::host(
        "host.output",
        format!("cannot write the program's output to the standard output or error: {e}"),
    )
}

/// Copies the inputs into the run's directory for them.
pub(super) fn stage_all(run: &Run, inputs: &[super::request::Input]) -> Result<(), Stop> {
    if inputs.is_empty() {
        return Ok(());
    }
    stage(&run.path.join(INPUTS), inputs).map_err(|e| {
        let stop = if e.is_host_fault() { Stop::host } else { Stop::rejected };
        stop(e.code(), e.to_string())
    })
}

/// Compiles a system-call filter to what the order to go carries.
pub(super) fn compiled(seccomp: &SeccompChoice) -> Result<Vec<u8>, Stop> {
    let filter = seccomp::compile(&seccomp.json, &seccomp.name).map_err(|e| {
        let cause = std::error::Error::source(&e).map_or(String::new(), |s| format!(": {s}"));
        Stop::rejected("profile.seccomp", format!("{e}{cause}"))
    })?;
    Ok(filter_bytes(filter.instructions()))
}

/// Milliseconds since then.
pub(super) fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The report of a run that nothing is known of yet.
pub(super) fn blank(request: &Request) -> Report {
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

/// The launcher is up: what remains to be done here needs no power over the system. Files of other uids and the clean-up after a killed
/// launcher do need rights as root.
pub(crate) fn drop_privileges() -> io::Result<()> {
    let have = sys::privileges::effective()?;
    sys::privileges::keep_only(have & sys::privileges::FILES_AND_KILL)
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
