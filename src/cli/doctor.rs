//! `creel doctor`.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use crate::doctor::{Diagnosis, Status, examine};
use crate::sys;

/// What `--help` says besides the options.
pub const AFTER: &str = "\
Tries out what a run needs, as this user, and runs one trivial sandbox. Each line: ok, warn (runs work without it) or
FAIL, then what was found and, where something is missing, the command that mends it.

Exit code: 0 if the default profile can be fully enforced by this user on this host; 1 if not; 125 if creel itself failed.";

/// Exit code for a host on which the default profile can't be fully enforced.
const NOT_ENFORCEABLE: u8 = 1;

/// Carries the command out.
pub fn main(json: bool) -> ExitCode {
    if sys::fds::ensure_std().and_then(|()| sys::fds::cloexec_from_3()).is_err() {
        eprintln!("creel: cannot put the standard streams in order: is /dev/null there?");
        return ExitCode::from(125);
    }
    let diagnosis = examine();
    let text = if json {
        serde_json::to_string(&diagnosis).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}")) + "\n"
    } else {
        lines(&diagnosis)
    };
    // A reader that went away has its answer in the exit code.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(if diagnosis.ok { 0 } else { NOT_ENFORCEABLE })
}

/// One line a check, and the verdict.
fn lines(diagnosis: &Diagnosis) -> String {
    let width = diagnosis.checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in &diagnosis.checks {
        let status = match check.status {
            Status::Ok => "ok  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        // Writing to a String can't fail.
        let _ = write!(text, "{status}  {:width$}  {}", check.name, check.found);
        if let Some(fix) = &check.fix {
            let _ = write!(text, "; {fix}");
        }
        text.push('\n');
    }
    text + "\n" + &diagnosis.verdict + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Check;

    #[test]
    fn columns_and_verdict() {
        let checks = vec![
            Check::ok("kernel", "Linux 6.18.44"),
            Check::warn("swap", "is on", "as root: swapoff -a"),
            Check::fail("user namespaces", "none", "as root: sysctl -w x=1"),
        ];
        let text = lines(&Diagnosis::of(checks));
        assert_eq!(
            text,
            "ok    kernel           Linux 6.18.44\n\
             warn  swap             is on; as root: swapoff -a\n\
             FAIL  user namespaces  none; as root: sysctl -w x=1\n\
             \n\
             the default profile can't be fully enforced; missing: user namespaces\n"
        );
    }
}
