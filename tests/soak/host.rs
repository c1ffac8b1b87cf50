//! What the storm has on the host: seen while it blows, looked for when it is over.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::footprint::{command_line, tree};
use crate::common::wait_until;
use crate::strike::sandbox_of;

/// Names of sandboxes, which are those of their cgroups, and network namespaces, as they came by.
#[derive(Default)]
pub struct Seen {
    ids: BTreeSet<String>,
    nets: BTreeSet<PathBuf>,
}

impl Seen {
    /// Looks at everything below the spawner.
    pub fn look(&mut self, spawner: u32) {
        let own = net(std::process::id());
        for pid in tree(spawner) {
            self.ids.extend(sandbox_of(pid));
            self.nets.extend(net(pid).filter(|ns| Some(ns) != own.as_ref()));
        }
    }

    pub fn add(&mut self, id: &str) {
        self.ids.insert(id.to_owned());
    }

    pub fn sandboxes(&self) -> usize {
        self.ids.len()
    }

    /// What is still there, at the latest a few seconds from now: the kernel reaps in its own time.
    pub fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        wait_until(
            || {
                rest = self.there();
                rest.is_empty()
            },
            Duration::from_secs(15),
        );
        rest
    }

    fn there(&self) -> Vec<String> {
        let mut rest = Vec::new();
        for pid in pids() {
            if let Some(id) = sandbox_of(pid).filter(|id| self.ids.contains(id)) {
                rest.push(format!("process {pid} of {id}: {}", command_line(pid)));
            }
            if let Some(ns) = net(pid).filter(|ns| self.nets.contains(ns)) {
                rest.push(format!("{} held by {pid}: {}", ns.display(), command_line(pid)));
            }
        }
        let mut groups = Vec::new();
        for point in cgroup_mounts() {
            below(&point, 6, &mut groups);
        }
        let ours = |path: &&PathBuf| {
            path.file_name().and_then(|n| n.to_str()).is_some_and(|name| self.ids.contains(name))
        };
        rest.extend(groups.iter().filter(ours).map(|path| format!("cgroup {}", path.display())));
        rest
    }
}

/// Children of this process, zombies too.
pub fn children() -> Vec<String> {
    let list = crate::common::footprint::children(std::process::id());
    list.into_iter().map(|pid| format!("child {pid}: {}", command_line(pid))).collect()
}

/// Open descriptors of a process.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// KiB that are this process's alone.
pub fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn net(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

fn cgroup_mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup").then(|| left.split(' ').nth(4).map(PathBuf::from))?
    };
    mounts.lines().filter_map(point).collect()
}

fn below(dir: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        found.push(entry.path());
        if depth > 0 {
            below(&entry.path(), depth - 1, found);
        }
    }
}
