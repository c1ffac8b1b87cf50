//! `creel run`.

use std::io::Write;
use std::process::ExitCode;

use super::refusal::{HOST_FAULT, REFUSED, Refusal};
use super::run_args::{RunArgs, resolve};
use super::start;
use crate::executor::report::{Category, Report, ReportError};
use crate::executor::service::once;
use crate::sys;
use crate::text::one_line;

/// Carries the command out: the program's output and a summary line, or one JSON report.
pub fn main(args: RunArgs) -> ExitCode {
    let json = args.json;
    if let Err(refusal) = enough_descriptors() {
        return refusal.report();
    }
    // Whatever the caller left open stays out of the sandbox (CVE-2024-21626), and no stream of ours lands on 0, 1 or 2 by accident.
    if sys::fds::ensure_std().and_then(|()| sys::fds::cloexec_from_3()).is_err() {
        eprintln!("creel: cannot put the standard streams in order: is /dev/null there?");
        return ExitCode::from(125);
    }
    let chosen = start::chosen(&args);
    let (request, chosen) = match chosen.and_then(|chosen| Ok((resolve(args)?, chosen))) {
        Ok(both) => both,
        Err(refusal) => {
            if json {
                // Nothing ran: no more than what every report says of an error.
                let category =
                    if refusal.exit_code() == REFUSED { Category::Rejected } else { Category::SandboxError };
                let error = ReportError { code: refusal.code.clone(), message: refusal.message.clone() };
                let nothing = serde_json::Value::Null;
                let report = serde_json::json!({
                    "run_id": nothing, "exit_code": nothing, "error_category": category, "error": error,
                });
                let _ = writeln!(std::io::stdout(), "{report}");
            }
            return refusal.report();
        }
    };
    let output_dir = request.output_dir.clone();
    let report = match chosen {
        None => crate::executor::run::run(request),
        Some(chosen) => {
            let preload = chosen.preload(&request.image);
            once::run(request, chosen.start, preload)
        }
    };
    let code = report.error_category.exit_code(report.exit_code);
    let written = if json {
        let text = serde_json::to_string(&report).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"));
        writeln!(std::io::stdout(), "{text}")
    } else {
        writeln!(std::io::stderr(), "{}", summary(&report, &output_dir.display().to_string()))
    };
    match written.and_then(|()| std::io::stdout().flush()) {
        // A caller that closed its end does not change how the run ended.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            // An answer that is lost is not a success.
            let _ = writeln!(std::io::stderr(), "creel: cannot write the report: {e}");
            ExitCode::from(HOST_FAULT)
        }
        _ => ExitCode::from(code),
    }
}

/// Descriptors that a run needs at once, with every skill and mount a bundle may have.
const DESCRIPTORS: u64 = 512;
/// And the fewest with which an ordinary one works.
const DESCRIPTORS_LEAST: u64 = 96;

/// Raises the soft limit of open files as far as needed and allowed.
fn enough_descriptors() -> Result<(), Refusal> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < DESCRIPTORS) {
        let raised = limit.maximum.map_or(DESCRIPTORS, |hard| hard.min(DESCRIPTORS));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit });
    }
    match getrlimit(Resource::Nofile).current {
        Some(n) if n < DESCRIPTORS_LEAST => Err(Refusal::new(
            "host.nofile",
            format!("only {n} files may be open at once, and a run needs {DESCRIPTORS_LEAST}"),
        )
        .hint("raise the limit: ulimit -n 1024")),
        _ => Ok(()),
    }
}

/// One line for a person: how it ended, how long it took, what was produced and where.
fn summary(report: &Report, output_dir: &str) -> String {
    let mut line = String::from("creel: ");
    match (&report.error, report.error_category) {
        (Some(e), category) => line += &format!("{}: {} ({})", word(category), e.message, e.code),
        (None, Category::Ok) => line += "ok",
        (None, category) => {
            line += &format!("{}: exit code {}", word(category), report.exit_code.unwrap_or(-1))
        }
    }
    if let Some(signal) = report.signal {
        line += &format!(", signal {signal}");
    }
    if report.exit_code.is_some() {
        line += &format!(
            " in {:.0} ms ({} start {:.1} ms)",
            report.walltime_ms, report.start, report.timings_ms.launch
        );
        if let Some(peak) = report.memory_peak_bytes {
            line += &format!(", {} MiB peak", peak.div_ceil(1 << 20));
        }
    }
    if !report.produced.is_empty() {
        let n = report.produced.len();
        line += &format!(", {n} file{} in {}", if n == 1 { "" } else { "s" }, one_line(output_dir));
    }
    if let Some(first) = report.skipped.first() {
        line += &format!(", {} skipped ({}: {})", report.skipped.len(), first.name, first.reason);
    }
    let off: Vec<&str> = report
        .enforced
        .iter()
        .filter(|(_, by)| by.as_str() == "unenforced")
        .map(|(k, _)| k.as_str())
        .collect();
    if !off.is_empty() {
        line += &format!("; NOT enforced: {}", off.join(", "));
    }
    for note in &report.notes {
        line += &format!("; {note}");
    }
    line
}

fn word(category: Category) -> &'static str {
    match category {
        Category::Ok => "ok",
        Category::ScriptError => "script error",
        Category::Timeout => "timeout",
        Category::Oom => "out of memory",
        Category::Cancelled => "cancelled",
        Category::Rejected => "rejected",
        Category::OutputLimit => "output limit",
        Category::PolicyKill => "policy kill",
        Category::SandboxError => "sandbox error",
    }
}
