//! Whether a report is true.

use creel::executor::report::Report;

use crate::kinds::{End, Kind};
use crate::plan::{Planned, Victim};

/// What was done to the run, besides what was planned.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// Somebody else's process was killed while it lived: it may have been one of its own.
    pub strayed: bool,
    /// Its own process was found and killed.
    pub struck: bool,
    pub cancelled: bool,
}

const LOST: End = ("sandbox_error", "sandbox.lost", None);
const KILLED: End = ("script_error", "", Some(137));
const CANCELLED: End = ("cancelled", "run.cancelled", None);

/// Category and error code of a report.
pub fn end(report: &Report) -> (String, String, Option<i32>) {
    let category = serde_json::to_value(report.error_category).unwrap();
    let code = report.error.as_ref().map_or(String::new(), |e| e.code.clone());
    (category.as_str().unwrap().to_owned(), code, report.exit_code)
}

/// Checks a report against all that is known of its run. True: it ended as it did only because of a cancel or, maybe, of a stray.
///
/// # Errors
/// What is not true.
pub fn judge(n: u64, planned: &Planned, around: Circumstances, report: &Report) -> Result<bool, String> {
    let kind = planned.kind;
    let mut allowed: Vec<End> = kind.ends.to_vec();
    match planned.strike {
        Some(Victim::Launcher | Victim::Init) if around.struck => allowed.push(LOST),
        Some(Victim::Payload) if around.struck => allowed.push(KILLED),
        _ => {}
    }
    let mut excused = Vec::new();
    if around.cancelled {
        excused.push(CANCELLED);
    }
    if around.strayed {
        excused.extend([LOST, KILLED]);
    }
    let (category, code, exit) = end(report);
    let is = |list: &[End]| list.contains(&(category.as_str(), code.as_str(), exit));
    let start = report.start == "cold" || report.start == planned.mode.name();
    if !start {
        return Err(format!("it started {}", report.start));
    }
    if !is(&allowed) {
        return if is(&excused) {
            Ok(true)
        } else {
            Err(format!("it may end as {allowed:?}, {excused:?} too"))
        };
    }
    contents(n, kind, report).map(|()| false)
}

fn contents(n: u64, kind: &Kind, report: &Report) -> Result<(), String> {
    let fill = |text: &str| text.replace("{N}", &n.to_string());
    if let Some(stdout) = kind.stdout
        && report.stdout != fill(stdout)
    {
        return Err(format!("it should print {:?}", fill(stdout)));
    }
    if report.stdout_bytes < kind.floods || (kind.floods > 1 << 20 && !report.stdout_truncated) {
        return Err(format!("{} bytes of output", report.stdout_bytes));
    }
    if report.stdout.len() > 256 << 10 {
        return Err("more output was kept than is allowed".into());
    }
    if let Some((name, content)) = kind.leaves {
        let (name, content) = (fill(name), fill(content));
        let found = report.produced.iter().find(|p| p.path == name);
        if found.is_none_or(|p| p.size != content.len() as u64) {
            return Err(format!("{name} is not among {:?}", report.produced));
        }
    }
    Ok(())
}
