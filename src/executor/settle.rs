//! From what the launcher saw to what the report says.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Instant;

use super::harvest::{HarvestError, HarvestLimits, harvest};
use super::report::{Category, Report, ReportError};
use super::run::{Stop, ms};
use crate::limits::Limits;
use crate::sandbox::host::Lack;
use crate::sandbox::outcome::{End, Outcome};

/// Fills in how the run of `program` ended; without an outcome the launcher died without a word. An end that is not known is never a
/// success. `signal`: the one that cancelled the run.
pub fn settle(report: &mut Report, outcome: Option<&Outcome>, signal: Option<i32>, program: &str) {
    let Some(outcome) = outcome else {
        return fail(
            report,
            Category::SandboxError,
            "sandbox.lost",
            "the launcher died: how the run ended is not known",
        );
    };
    report.walltime_ms = outcome.wall_us as f64 / 1e3;
    report.cpu_ms = outcome.cpu_us.map(|us| us as f64 / 1e3);
    report.memory_peak_bytes = outcome.memory_peak;
    report.pids_peak = outcome.pids_peak;
    report.oom_kills = outcome.oom_kills;
    let paths = if outcome.paths_hidden { "hidden" } else { "shown in mountinfo" };
    report.enforced.insert("host_paths".into(), paths.into());
    match &outcome.end {
        End::Exited => exited(report, outcome.status),
        End::Timeout => {
            report.exit_code = Some(-1);
            let s = report.limits.timeout.as_secs_f64();
            fail(report, Category::Timeout, "run.timeout", format!("ended after its {s} s of wall time"));
        }
        End::Oom => {
            report.exit_code = Some(-2);
            let m = report.limits.memory;
            let message = format!(
                "the kernel killed for memory at the limit of {m} bytes, files in tmpfs included; raise --memory, or the image's own limit"
            );
            fail(report, Category::Oom, "run.oom", message);
        }
        End::Cancelled => {
            let by = signal.map_or(String::new(), |s| format!(" by signal {s}"));
            fail(report, Category::Cancelled, "run.cancelled", format!("cancelled{by}"));
        }
        End::DiskLimit(what) => fail(report, Category::OutputLimit, "run.output_limit", what.as_str()),
        End::NotExecuted { errno } => {
            let (code, why) = match *errno {
                libc::ENOENT => ("run.command_not_found", "no such program in the image's PATH".into()),
                libc::EACCES => ("run.command_not_executable", "the program is not executable".into()),
                libc::ENOEXEC => (
                    "run.command_not_executable",
                    "the program is neither a binary nor does it start with #!".into(),
                ),
                other => ("run.command_not_executable", std::io::Error::from_raw_os_error(other).to_string()),
            };
            fail(report, Category::Rejected, code, format!("cannot execute {program}: {why}"));
        }
        End::SetUp { step, errno } => {
            if let Some(lack) = Lack::of_step(step, *errno) {
                return fail(report, Category::SandboxError, lack.code(), lack.to_string());
            }
            let why = std::io::Error::from_raw_os_error(*errno);
            let message = format!("cannot {step}: {why}; creel doctor tells what this host lacks");
            fail(report, Category::SandboxError, "sandbox.setup", message);
        }
        End::Lost(why) => {
            fail(
                report,
                Category::SandboxError,
                "sandbox.lost",
                format!("{why}: how the run ended is not known"),
            );
        }
    }
}

/// Harvests what a run that was settled left in `outputs`, to `output_dir`. `owner`: the program's uid on the host.
///
/// # Errors
/// Outputs over a limit, or a host that can't take them.
pub fn collect(
    report: &mut Report,
    limits: &Limits,
    output_dir: &Path,
    outputs: Option<BorrowedFd<'_>>,
    owner: u32,
) -> Result<(), Stop> {
    let begun = Instant::now();
    let (true, Some(outputs)) = (report.error_category.harvests(), outputs) else {
        return Ok(());
    };
    let limits =
        HarvestLimits { bytes: limits.output, files: limits.output_files, depth: limits.output_depth };
    let result = harvest(outputs, output_dir, &limits, Some(owner));
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

fn exited(report: &mut Report, status: Option<i32>) {
    let Some(status) = status else {
        return fail(report, Category::SandboxError, "sandbox.lost", "init sent no wait status");
    };
    if libc::WIFEXITED(status) {
        let code = libc::WEXITSTATUS(status);
        report.exit_code = Some(code);
        report.error_category = if code == 0 { Category::Ok } else { Category::ScriptError };
        return;
    }
    let signal = libc::WTERMSIG(status);
    report.exit_code = Some(128 + signal);
    report.signal = Some(signal);
    report.error_category = Category::ScriptError;
    if signal == libc::SIGSYS {
        fail(
            report,
            Category::PolicyKill,
            "policy.seccomp",
            "ended by SIGSYS, as the filter ends a program for a forbidden call",
        );
    }
}

fn fail(report: &mut Report, category: Category, code: &str, message: impl Into<String>) {
    report.error_category = category;
    report.error = Some(ReportError { code: code.into(), message: message.into() });
}
