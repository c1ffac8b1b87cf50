//! The run report: the same object in the CLI and, later, HTTP, gRPC and the audit log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// What happened in one run. Field names are the contract of the design, chapter 4.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub run_id: String,
    pub image: String,
    /// `python`, `bash`, or null for a command.
    pub lang: Option<&'static str>,
    /// `cold`, `warm` or `zygote`.
    pub start: &'static str,
    /// The program's; 128+n for signal n; -1 on time-out, -2 on out of memory; null if it never started or was ended by us.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub error_category: Category,
    pub error: Option<ReportError>,
    pub walltime_ms: f64,
    pub cpu_ms: Option<f64>,
    pub memory_peak_bytes: Option<u64>,
    pub pids_peak: Option<u64>,
    pub oom_kills: u64,
    pub stdout: String,
    pub stderr: String,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub produced: Vec<Produced>,
    pub skipped: Vec<Skipped>,
    /// True when outputs were kept of a run that did not end by itself (time-out, out of memory).
    pub partial: bool,
    /// What really held each limit, `"unenforced"` where the caller allowed that.
    pub enforced: BTreeMap<String, String>,
    pub limits: Limits,
    /// Remarks on the request: a clamped time-out, a bundle mount that was not taken.
    pub notes: Vec<String>,
    pub timings_ms: Timings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Ok,
    ScriptError,
    Timeout,
    Oom,
    Cancelled,
    Rejected,
    OutputLimit,
    PolicyKill,
    SandboxError,
}

impl Category {
    /// The exit code of `creel run`; `program` is the report's `exit_code`.
    pub fn exit_code(self, program: Option<i32>) -> u8 {
        match self {
            Category::Ok => 0,
            // A program can't exit above 255, and 128+n stays below it.
            Category::ScriptError | Category::PolicyKill => {
                program.and_then(|c| u8::try_from(c).ok()).unwrap_or(125)
            }
            Category::Timeout => 124,
            Category::Oom => 137,
            Category::Cancelled => 130,
            Category::Rejected | Category::OutputLimit => 126,
            Category::SandboxError => 125,
        }
    }

    /// Whether outputs are harvested after a run of this kind.
    pub fn harvests(self) -> bool {
        matches!(self, Category::Ok | Category::ScriptError | Category::Timeout | Category::Oom)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportError {
    /// `area.reason`
    pub code: String,
    /// One line: what failed, on what, and how to mend it.
    pub message: String,
}

/// A file that was harvested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Produced {
    /// The file's own name.
    pub name: String,
    /// Relative to the output directory, `/` between the parts.
    pub path: String,
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub mime_type: String,
}

/// An entry under `/outputs` that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Relative to `/outputs`; bytes that are not UTF-8 and control characters are shown as `\xNN`.
    pub name: String,
    pub reason: String,
}

/// Where the time went. Milliseconds; a phase that did not take place is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timings {
    pub queue: f64,
    pub stage: f64,
    pub launch: f64,
    pub run: f64,
    pub harvest: f64,
    pub clean: f64,
    pub total: f64,
}
