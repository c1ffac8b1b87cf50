//! What a run has on the host while it lives, and the proof that it is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::wait_until;

/// Processes, cgroups and namespaces of one live `creel run`.
#[derive(Debug, Default)]
pub struct Footprint {
    /// Process id and start time, which no later process shares.
    processes: BTreeSet<(u32, String)>,
    cgroups: BTreeSet<PathBuf>,
    /// `mnt:[4026532…]` and so on, less the test's own.
    namespaces: BTreeSet<String>,
}

impl Footprint {
    /// Of the process and everything below it, as of now.
    pub fn of(creel: u32) -> Footprint {
        let mut found = Footprint::default();
        let own: BTreeSet<String> = namespaces_of("self").collect();
        for pid in tree(creel) {
            if let Some(start) = start_time(pid) {
                found.processes.insert((pid, start));
            }
            if pid != creel {
                found.cgroups.extend(cgroups_of(pid));
                found.namespaces.extend(namespaces_of(&pid.to_string()).filter(|n| !own.contains(n)));
            }
        }
        found
    }

    pub fn has_cgroups(&self) -> bool {
        !self.cgroups.is_empty()
    }

    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Asserts that all of it goes, at the latest a few seconds from now (the kernel reaps in its own time).
    #[track_caller]
    pub fn assert_gone(&self) {
        let mut rest = Vec::new();
        let gone = wait_until(
            || {
                rest = self.rest();
                rest.is_empty()
            },
            Duration::from_secs(15),
        );
        assert!(gone, "left behind: {rest:#?}");
    }

    /// Asserts that the processes are gone (cgroups may wait for `creel gc`).
    #[track_caller]
    pub fn assert_processes_gone(&self) {
        let gone = wait_until(
            || self.processes.iter().all(|(pid, start)| start_time(*pid).as_ref() != Some(start)),
            Duration::from_secs(15),
        );
        assert!(gone, "processes left behind: {:#?}", self.rest());
    }

    /// The processes besides `pid` and the cgroups that are still there now. (Not the namespaces: the kernel gives the number of one that is gone
    /// to the next, which another test's run may have by now.)
    pub fn alive_besides(&self, pid: u32) -> Vec<String> {
        let own = format!("process {pid} ");
        self.rest()
            .into_iter()
            .filter(|line| !line.starts_with(&own) && !line.starts_with("namespace"))
            .collect()
    }

    fn rest(&self) -> Vec<String> {
        let alive = self.processes.iter().filter(|(pid, start)| start_time(*pid).as_ref() == Some(start));
        let mut rest: Vec<String> =
            alive.map(|(pid, _)| format!("process {pid} {}", command_line(*pid))).collect();
        rest.extend(self.cgroups.iter().filter(|c| c.exists()).map(|c| format!("cgroup {}", c.display())));
        if !self.namespaces.is_empty() {
            for pid in all_pids() {
                let held = namespaces_of(&pid.to_string()).filter(|n| self.namespaces.contains(n));
                rest.extend(held.map(|n| format!("namespace {n}, held by {pid} {}", command_line(pid))));
            }
        }
        rest
    }
}

/// The direct children of a process, whichever of its threads made them.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|w| w.parse::<u32>().ok()));
    }
    found
}

/// The process and all its descendants.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        found.extend(children(found[at]));
        at += 1;
    }
    found
}

/// Every process of this host whose command line has the word.
pub fn with_marker(word: &str) -> Vec<u32> {
    all_pids().into_iter().filter(|pid| command_line(*pid).contains(word)).collect()
}

/// Asserts that no process with the word on its command line lives on.
#[track_caller]
pub fn assert_no_marker(word: &str) {
    let gone = wait_until(|| with_marker(word).is_empty(), Duration::from_secs(10));
    let left: Vec<String> =
        with_marker(word).into_iter().map(|p| format!("{p} {}", command_line(p))).collect();
    assert!(gone, "processes left behind: {left:#?}");
}

/// Asserts that no run has a line in the ledger or a directory below the state directory, and that nothing is mounted there.
#[track_caller]
pub fn assert_state_clean(state: &Path) {
    let runs: Vec<_> =
        fs::read_dir(state.join("runs")).into_iter().flatten().flatten().map(|e| e.path()).collect();
    assert!(runs.is_empty(), "run directories left behind: {runs:?}");
    let ledger = fs::read(state.join("ledger")).unwrap_or_default();
    let lines = String::from_utf8_lossy(&ledger).replace('\0', "");
    assert!(lines.is_empty(), "left behind in the ledger: {lines}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours: Vec<&str> = mounts.lines().filter(|l| l.contains(state.to_str().unwrap())).collect();
    assert!(ours.is_empty(), "mounts left behind: {ours:#?}");
}

fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Field 22 of `stat`; None when the process is gone or a zombie that waits for its parent (a test, or the host's init).
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.rsplit_once(") ")?.1;
    let mut fields = after.split(' ');
    if fields.next() == Some("Z") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

fn namespaces_of(pid: &str) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(format!("/proc/{pid}/ns")).into_iter().flatten().flatten();
    entries.filter_map(|e| Some(fs::read_link(e.path()).ok()?.to_str()?.to_owned()))
}

/// The cgroup directories of a process that are creel's, in every hierarchy that is mounted below /sys/fs/cgroup.
fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        if !path.contains("creel") {
            continue;
        }
        for mount in mounts.lines() {
            let Some((left, right)) = mount.split_once(" - ") else {
                continue;
            };
            let kind = right.split(' ').next().unwrap_or_default();
            let options = right.rsplit(' ').next().unwrap_or_default();
            let fits = match kind {
                "cgroup2" => controllers.is_empty(),
                "cgroup" => {
                    !controllers.is_empty()
                        && controllers.split(',').all(|c| options.split(',').any(|o| o == c))
                }
                _ => false,
            };
            if fits && let Some(point) = left.split(' ').nth(4) {
                found.push(Path::new(point).join(path.trim_start_matches('/')));
            }
        }
    }
    found.retain(|p| p.exists());
    found
}
