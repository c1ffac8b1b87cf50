//! `creel gc`.

use std::process::ExitCode;

use crate::executor::state::State;
use crate::sandbox::cgroup;

/// Removes what killed runs left behind: processes, cgroups, directories. Live runs are not touched.
pub fn main() -> ExitCode {
    let state = match State::open() {
        Ok(state) => state,
        Err(e) => {
            eprintln!("creel: {e}");
            return ExitCode::from(125);
        }
    };
    let swept = state.sweep(&cgroup::probe(), usize::MAX);
    println!("removed {} run{}", swept.removed, if swept.removed == 1 { "" } else { "s" });
    for failure in &swept.failed {
        eprintln!("creel: {failure}");
    }
    ExitCode::from(if swept.failed.is_empty() { 0 } else { 125 })
}
