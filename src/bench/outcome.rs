//! What a benchmark found: the object that `--json` prints, and that the text and the page are made of.

use std::collections::BTreeMap;

use serde::Serialize;

use super::facts::Facts;
use super::stats::{Interval, Summary, interval, quantile, sorted};

/// Everything, samples included.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Version of this form.
    pub creel_bench: u32,
    /// `cold`, `warm`, `throughput` or `density`.
    pub measured: &'static str,
    /// What the clock measures.
    pub clock: &'static str,
    /// How it was done, in sentences.
    pub how: Vec<String>,
    pub facts: Facts,
    pub settings: Settings,
    pub contestants: Vec<Entry>,
    /// Who, or what work, was left out, and why.
    pub absent: Vec<Absent>,
    /// Of `cold` and `warm`.
    pub series: Vec<Series>,
    /// Of `cold` and `warm`: creel's own account of the counted runs one after the other.
    pub timings: Vec<Timings>,
    /// Of `throughput` and `warm`.
    pub rates: Vec<Rate>,
    /// Of `density`.
    pub density: Option<Density>,
    /// Of `density --slots`.
    pub slots: Option<Slots>,
    /// Why the numbers may be no good.
    pub doubts: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    pub rounds: u32,
    pub warm_up: u32,
    /// Repeats the orders.
    pub seed: u64,
    /// Rest before each start, for the last one's tear-down.
    pub pause_ms: u64,
    pub burst: usize,
    pub stagger_ms: u64,
    pub window_s: f64,
    pub count: u32,
    /// Of `warm` and `density --slots`: slots that each pool holds, and what their Pythons have imported.
    pub slots: usize,
    pub preload: Vec<String>,
    /// Limits of a sandbox, the same for all that can hold them.
    pub memory_bytes: u64,
    pub pids: u32,
    pub cpus: usize,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub name: &'static str,
    pub version: String,
    pub notes: Vec<String>,
    /// A command line it was started with.
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Absent {
    /// A contestant; or `*`, everyone.
    pub name: String,
    /// Only for this work.
    pub work: Option<&'static str>,
    pub reason: String,
}

/// One counted run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    pub round: u32,
    pub ms: f64,
}

/// One contestant, one piece of work, one mode.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    pub work: &'static str,
    /// `sequential`, `staggered` or `burst`.
    pub mode: &'static str,
    /// Started in a round.
    pub in_a_round: usize,
    pub contestant: &'static str,
    /// Milliseconds.
    pub summary: Summary,
    /// Of this one's median in a round to bare's in the same round.
    pub ratio_to_bare: Option<Interval>,
    pub ratio_to_creel: Option<Interval>,
    /// Of `warm`: of a cold start's median in a round, in the same executor, to this one's.
    pub cold_to_this: Option<Interval>,
    /// Of `warm`: runs that did not start as they were meant to. They are not among the samples.
    pub missed: usize,
    pub samples: Vec<Sample>,
}

/// Medians, in milliseconds; each its own, so that they need not add up.
#[derive(Debug, Clone, Serialize)]
pub struct Timings {
    pub work: &'static str,
    pub contestant: &'static str,
    pub n: usize,
    pub launch: f64,
    pub run: f64,
    pub harvest: f64,
    pub clean: f64,
    pub total: f64,
    /// The stop-watch's, of the same runs.
    pub wall: f64,
}

/// Runs per second of one contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Rate {
    pub work: &'static str,
    pub contestant: &'static str,
    /// Runs at once.
    pub at_once: usize,
    /// Completed runs, all windows.
    pub runs: u64,
    /// Of `warm`: those of them that started as they were meant to; the others found no slot and started cold.
    pub hits: Option<u64>,
    /// Runs per second in each window.
    pub windows: Vec<f64>,
    /// Of the windows.
    pub summary: Summary,
    pub ratio_to_bare: Option<Interval>,
    pub ratio_to_creel: Option<Interval>,
    /// Of `warm`: to cold starts in the same executor.
    pub ratio_to_cold: Option<Interval>,
}

/// Idle sandboxes.
#[derive(Debug, Clone, Serialize)]
pub struct Density {
    pub count: u32,
    /// KiB, by part (`creel`, `launcher`, `init`, `payload`): the sum of PSS of all.
    pub pss_kib: BTreeMap<&'static str, u64>,
    pub pss_kib_each: f64,
    /// What `MemAvailable` fell by; below 0 where others freed more.
    pub available_fell_kib: i64,
    pub available_fell_kib_each: f64,
    /// Milliseconds until all were up, started one after the other.
    pub started_ms: f64,
    pub processes: usize,
    /// Ended by themselves when asked to.
    pub ended_well: u32,
}

/// Slots that wait.
#[derive(Debug, Clone, Serialize)]
pub struct Slots {
    /// As many were asked for.
    pub wanted: usize,
    /// As many were held at once.
    pub held: usize,
    /// Why no more.
    pub stopped: Option<String>,
    /// KiB, of all slots' processes by part (`launcher`, `init`, `python`): the sum of PSS.
    pub pss_kib: BTreeMap<&'static str, u64>,
    pub pss_kib_each: f64,
    /// KiB of PSS that are there once: `spawner`, `zygote`, `zygote's launcher`, `this process`.
    pub once_kib: BTreeMap<&'static str, u64>,
    pub processes: usize,
    pub available_fell_kib: i64,
    pub available_fell_kib_each: f64,
    /// KiB that parts of the kernel's memory grew by, as `/proc/meminfo` names them.
    pub kernel_kib: BTreeMap<&'static str, i64>,
    /// KiB of kernel memory that the slots' cgroups are charged for; `None` where the host does not tell.
    pub cgroup_kernel_kib: Option<u64>,
    /// Milliseconds until the last one waited, the zygote's own start not included.
    pub made_ms: f64,
    /// Given a program at the end; how many of these did what it said.
    pub delivered: usize,
    pub worked: usize,
}

/// The ratio in each round that both have, and its median.
pub fn ratio(this: &BTreeMap<u32, f64>, that: &BTreeMap<u32, f64>) -> Option<Interval> {
    let each = this.iter().filter_map(|(round, a)| Some((a, that.get(round)?)));
    let ratios: Vec<f64> = each.filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
    interval(&ratios)
}

/// The median of each round.
pub fn by_round(samples: &[Sample]) -> BTreeMap<u32, f64> {
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        rounds.entry(sample.round).or_default().push(sample.ms);
    }
    rounds.into_iter().map(|(round, values)| (round, quantile(&sorted(&values), 0.5))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired() {
        let samples = |values: &[(u32, f64)]| -> Vec<Sample> {
            values.iter().map(|&(round, ms)| Sample { round, ms }).collect()
        };
        // A machine that is ten times slower in the second round: the ratio stays 2 in each.
        let bare = by_round(&samples(&[(0, 1.0), (1, 10.0), (2, 1.0)]));
        let this = by_round(&samples(&[(0, 2.0), (1, 20.0), (2, 1.0), (2, 3.0), (9, 7.0)]));
        let r = ratio(&this, &bare).unwrap();
        assert_eq!((r.n, r.low, r.median, r.high), (3, 2.0, 2.0, 2.0));
        assert!(ratio(&this, &BTreeMap::new()).is_none());
    }
}
