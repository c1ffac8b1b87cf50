//! What the numbers were measured on.

use std::fs;

use serde::Serialize;

use super::image::Subject;
use super::place::{hierarchies, layout};
use super::procs;

/// The machine, the image and the program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    pub creel: &'static str,
    /// Built for tests: its numbers are not creel's.
    pub debug_build: bool,
    /// As `uname -r` and `uname -m` say it.
    pub kernel: String,
    pub arch: String,
    pub cpu: String,
    /// That this process may use.
    pub cpus: usize,
    pub memory_mib: Option<u64>,
    /// A guest: its CPUs may be taken away at any time.
    pub hypervisor: bool,
    /// `v2`, `v1`, `hybrid` or `none`.
    pub cgroup: &'static str,
    pub root: bool,
    pub image: String,
    pub digest: Option<String>,
    /// The load of the last minute.
    pub load_before: Option<f64>,
    pub load_after: Option<f64>,
    /// What the page cache held.
    pub page_cache: String,
}

impl Facts {
    /// As of now; `page_cache` is known to who measures.
    pub fn gather(subject: &Subject, page_cache: String) -> Facts {
        let uname = rustix::system::uname();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
        let arch = uname.machine().to_string_lossy().into_owned();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Facts {
            creel: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpu: model.map_or_else(|| arch.clone(), |(_, m)| m.trim().to_owned()),
            arch,
            cpus: cpus(),
            memory_mib: procs::field(&meminfo, "MemTotal:").map(|kib| kib / 1024),
            hypervisor: info.lines().any(|l| l.starts_with("flags") && l.contains(" hypervisor")),
            cgroup: layout(&hierarchies()),
            root: rustix::process::geteuid().is_root(),
            image: subject.name.clone(),
            digest: subject.digest.clone(),
            load_before: load(),
            load_after: None,
            page_cache,
        }
    }

    /// Why the numbers may be no good; empty when nothing is known against them.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.debug_build {
            doubts.push("creel is a debug build here: its times are not those of a release".to_owned());
        }
        let busy = |load: Option<f64>| load.filter(|l| *l > self.cpus as f64 * 0.75);
        if let Some(load) = busy(self.load_before) {
            doubts.push(format!(
                "the machine was busy before it began: load {load:.1} on {} CPUs; who has more hand-overs \
                 from process to process loses more",
                self.cpus
            ));
        }
        if self.hypervisor {
            doubts
                .push("a virtual machine: its CPUs may be taken away, which shows in p95 and max".to_owned());
        }
        doubts
    }
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The load of the last minute.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let facts = Facts::gather(&Subject::open("host").unwrap(), "warm".into());
        assert!(facts.cpus >= 1 && !facts.cpu.is_empty() && !facts.kernel.is_empty());
        assert!(facts.memory_mib.unwrap() > 0 && facts.load_before.is_some());
        let busy = Facts { load_before: Some(99.0), cpus: 2, ..facts };
        assert!(busy.doubts().iter().any(|d| d.contains("load 99.0 on 2 CPUs")));
    }
}
