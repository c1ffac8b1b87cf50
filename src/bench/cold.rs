//! `creel bench cold`: the time of one run, one after the other, staggered, and many at once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::clock::{Failure, Timed};
use super::image::Work;
use super::outcome::{Sample, Series, Timings, by_round, ratio};
use super::peers::Contestant;
use super::shuffle::Shuffle;
use super::stats::{Summary, quantile, sorted};
use super::{Bench, BenchError, train};

/// How runs of one round follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Sequential,
    Staggered,
    Burst,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Sequential, Mode::Staggered, Mode::Burst];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Sequential => "sequential",
            Mode::Staggered => "staggered",
            Mode::Burst => "burst",
        }
    }
}

/// A contestant's counted runs.
#[derive(Default)]
struct Kept {
    samples: Vec<Sample>,
    reports: Vec<(f64, Value)>,
}

/// Everything that `cold` measures.
///
/// # Errors
/// [`BenchError`]: creel failed, or the caller stopped it.
pub fn measure(bench: &mut Bench) -> Result<(Vec<Series>, Vec<Timings>), BenchError> {
    let (mut series, mut timings) = (Vec::new(), Vec::new());
    let mut shuffle = Shuffle::new(bench.plan.seed);
    for work in bench.works()? {
        let entrants = bench.entrants(&work)?;
        for mode in bench.plan.modes.clone() {
            let kept = rounds(bench, &entrants, &work, mode, &mut shuffle)?;
            if mode == Mode::Sequential {
                timings.extend(kept.get("creel").and_then(|k| account(work.name, "creel", &k.reports)));
            }
            series.extend(summarised(bench, &entrants, &work, mode, &kept));
        }
    }
    Ok((series, timings))
}

/// Starts in a round, and rounds that count: a train has many samples in each.
fn size(bench: &Bench, mode: Mode) -> (usize, u32) {
    let rounds = bench.plan.rounds;
    if mode == Mode::Sequential {
        return (1, rounds);
    }
    let k = bench.plan.burst;
    let enough = rounds.div_ceil(u32::try_from(k).unwrap_or(u32::MAX)).max(1);
    (k, enough.max(rounds.min(8)))
}

fn rounds(
    bench: &mut Bench,
    entrants: &[Contestant],
    work: &Work,
    mode: Mode,
    shuffle: &mut Shuffle,
) -> Result<BTreeMap<&'static str, Kept>, BenchError> {
    let (k, counted) = size(bench, mode);
    // The programs are warm after the sequential rounds; a train warms up what only a train has.
    let warm_up = if mode == Mode::Sequential { bench.plan.warm_up } else { bench.plan.warm_up.min(1) };
    let gap = (mode == Mode::Staggered).then_some(bench.plan.stagger);
    let mut kept: BTreeMap<&'static str, Kept> = BTreeMap::new();
    let mut out: Vec<&'static str> = Vec::new();
    let steps = u64::from(warm_up + counted) * entrants.len() as u64;
    bench.progress.part(&format!("{}, {}", work.name, mode.name()), steps);
    for number in 0..warm_up + counted {
        for index in shuffle.order(entrants.len()) {
            let contestant = &entrants[index];
            bench.progress.step();
            if out.contains(&contestant.name) {
                continue;
            }
            if bench.stop.rest(bench.plan.pause) {
                return Err(BenchError::Stopped);
            }
            match once(bench, contestant, work, k, gap) {
                Ok(found) if number >= warm_up => {
                    let kept = kept.entry(contestant.name).or_default();
                    let round = number - warm_up;
                    kept.samples.extend(found.iter().map(|(ms, _)| Sample { round, ms: *ms }));
                    kept.reports.extend(found);
                }
                Ok(_) => {}
                Err(Once::Stopped) => return Err(BenchError::Stopped),
                Err(Once::Failed(why)) if contestant.name == "creel" => {
                    return Err(BenchError::Creel(format!("{} {}: {why}", mode.name(), work.name)));
                }
                Err(Once::Failed(why)) => {
                    kept.remove(contestant.name);
                    out.push(contestant.name);
                    let reason = format!("{}, round {number}: {why}", mode.name());
                    bench.leave_out(contestant.name, Some(work.name), reason);
                }
            }
        }
    }
    Ok(kept)
}

/// Why a round of one contestant has no times.
pub enum Once {
    Stopped,
    Failed(String),
}

/// `k` starts of one contestant: the time of each, and creel's report.
pub fn once(
    bench: &Bench,
    contestant: &Contestant,
    work: &Work,
    k: usize,
    gap: Option<Duration>,
) -> Result<Vec<(f64, Value)>, Once> {
    let jobs: Result<Vec<_>, String> = (0..k).map(|_| contestant.peer.job(&work.command)).collect();
    let results = train::run(contestant, jobs.map_err(Once::Failed)?, gap, &bench.stop);
    let each = |result| match result {
        Ok(timed) => accept(contestant.name, timed).map_err(Once::Failed),
        Err(Failure::Stopped) => Err(Once::Stopped),
        Err(failure) => Err(Once::Failed(failure.to_string())),
    };
    results.into_iter().map(each).collect()
}

/// A run counts if it did its work; of creel, if its report says so too.
///
/// # Errors
/// What went wrong, in the program's words.
pub fn accept(name: &str, timed: Timed) -> Result<(f64, Value), String> {
    if name != "creel" {
        let why = || format!("exit code {}: {}", timed.code, super::peers::explain(&timed.output));
        return if timed.code == 0 { Ok((timed.ms, Value::Null)) } else { Err(why()) };
    }
    let text = String::from_utf8_lossy(&timed.output);
    let report = text.lines().find_map(|l| serde_json::from_str::<Value>(l).ok());
    let Some(report) = report.filter(Value::is_object) else {
        return Err(format!("no report, exit code {}: {}", timed.code, super::peers::explain(&timed.output)));
    };
    if timed.code != 0 || report["error_category"] != "ok" {
        let said = report["error"]["message"].as_str().map(str::to_owned);
        let stderr = report["stderr"].as_str().unwrap_or_default();
        let why = said.unwrap_or_else(|| super::peers::explain(stderr.as_bytes()));
        return Err(format!("exit code {}: {why}", timed.code));
    }
    Ok((timed.ms, report))
}

/// Medians of creel's own account.
pub fn account(work: &'static str, contestant: &'static str, reports: &[(f64, Value)]) -> Option<Timings> {
    let median = |values: Vec<f64>| quantile(&sorted(&values), 0.5);
    let part =
        |name: &str| median(reports.iter().filter_map(|(_, r)| r["timings_ms"][name].as_f64()).collect());
    (!reports.is_empty()).then(|| Timings {
        work,
        contestant,
        n: reports.len(),
        launch: part("launch"),
        run: part("run"),
        harvest: part("harvest"),
        clean: part("clean"),
        total: part("total"),
        wall: median(reports.iter().map(|(ms, _)| *ms).collect()),
    })
}

fn summarised(
    bench: &Bench,
    entrants: &[Contestant],
    work: &Work,
    mode: Mode,
    kept: &BTreeMap<&'static str, Kept>,
) -> Vec<Series> {
    let rounds = |name: &str| kept.get(name).map(|k| by_round(&k.samples)).unwrap_or_default();
    let (bare, creel) = (rounds("bare"), rounds("creel"));
    let one = |contestant: &Contestant| {
        let samples = kept.get(contestant.name)?.samples.clone();
        let values: Vec<f64> = samples.iter().map(|s| s.ms).collect();
        let own = by_round(&samples);
        Some(Series {
            work: work.name,
            mode: mode.name(),
            in_a_round: size(bench, mode).0,
            contestant: contestant.name,
            summary: Summary::of(&values)?,
            ratio_to_bare: ratio(&own, &bare),
            ratio_to_creel: ratio(&own, &creel),
            cold_to_this: None,
            missed: 0,
            samples,
        })
    };
    entrants.iter().filter_map(one).collect()
}
