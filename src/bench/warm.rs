//! `creel bench warm`: the time of a run in a sandbox that was made ahead, beside cold starts of the same; and how many of them a second.
//!
//! Each run's report says how it started. One that was meant to find a slot and found none is counted and shown, and never among the samples.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::clock::Failure;
use super::cold::{self, Mode, Once};
use super::daemon::{Daemons, Failed, Ran};
use super::image::Work;
use super::outcome::{Rate, Sample, Series, Timings, by_round, ratio};
use super::peers::{Contestant, Creel};
use super::setup::{Kind, script};
use super::shuffle::Shuffle;
use super::stats::Summary;
use super::{Bench, BenchError, train, warm_rate};
use crate::executor::report::Category;
use crate::executor::request::Program;

/// The program that warm starts are for, and what it prints.
pub const PANDAS: &str = "import pandas as pd\nprint(pd.DataFrame({'a':[1,2,3]}).a.sum())\n";
const SUM: &str = "6\n";
/// Short ones come cheap: so many rounds more, for a p99 that means something.
const MORE: u32 = 10;

/// What every entrant of one comparison does.
pub struct Task {
    /// `pandas-script`, `pass-script` or `python`.
    pub work: &'static str,
    pub program: Program,
    /// What it must print.
    pub stdout: &'static str,
}

/// Who takes part.
#[derive(Clone)]
enum Who {
    Daemon(Kind),
    /// `creel run` of the script.
    Creel(Box<(Contestant, Creel)>),
    /// The bare command, or `creel run` of it.
    Process(Contestant, Work),
}

impl Who {
    fn name(&self) -> &'static str {
        match self {
            Who::Daemon(kind) => kind.name(),
            Who::Creel(both) => both.0.name,
            Who::Process(contestant, _) => contestant.name,
        }
    }

    /// Those of creel must not fail.
    fn is_creel(&self) -> bool {
        self.name() != "bare"
    }
}

/// One run: its time and creel's report; no time when it did not start as it was meant to.
type Done = (Option<f64>, Value);

/// What `warm` found.
#[derive(Default)]
pub struct Measured {
    pub series: Vec<Series>,
    pub timings: Vec<Timings>,
    pub rates: Vec<Rate>,
}

/// Everything that `warm` measures.
///
/// # Errors
/// [`BenchError`]: creel failed, or the caller stopped it.
pub fn measure(bench: &mut Bench, daemons: &Daemons, creel: &Creel) -> Result<Measured, BenchError> {
    let Measured { mut series, mut timings, mut rates } = Measured::default();
    let mut shuffle = Shuffle::new(bench.plan.seed);
    let kinds = kinds(bench, daemons)?;
    let run = bench.contestants.iter().find(|c| c.name == "creel").cloned();
    let daemon = |wanted: &[Kind]| -> Vec<Who> {
        kinds.iter().filter(|k| wanted.contains(k)).map(|k| Who::Daemon(*k)).collect()
    };
    let works = bench.plan.works.clone();
    let wanted = |name: &str| works.iter().any(|w| w == name);
    let pandas = Task { work: "pandas-script", program: script(PANDAS), stdout: SUM };
    let has_pandas = wanted("pandas") && able(bench, daemons, &pandas)?;
    if has_pandas {
        let mut who = daemon(&Kind::ALL);
        who.extend(run.clone().map(|c| Who::Creel(Box::new((c, creel.clone())))));
        let rounds = bench.plan.rounds;
        let (s, t) = compare(bench, daemons, &pandas, &who, &[Mode::Sequential], rounds, &mut shuffle)?;
        series.extend(s);
        timings.extend(t);
    }
    if wanted("pass") {
        let task = Task { work: "pass-script", program: script("pass\n"), stdout: "" };
        let (modes, rounds) = (bench.plan.modes.clone(), bench.plan.rounds * MORE);
        let who = daemon(&[Kind::Zygote, Kind::Cold]);
        let (s, t) = compare(bench, daemons, &task, &who, &modes, rounds, &mut shuffle)?;
        series.extend(s);
        timings.extend(t);
    }
    if wanted("python") {
        match Work::of("python", &bench.setting.subject) {
            Ok(work) => {
                let program = Program::Command(work.command.iter().map(Into::into).collect());
                let task = Task { work: "python", program, stdout: "" };
                let mut who = daemon(&[Kind::Cold]);
                who.extend(bench.contestants.iter().map(|c| Who::Process(c.clone(), work.clone())));
                let rounds = bench.plan.rounds * 2;
                let (s, t) = compare(bench, daemons, &task, &who, &[Mode::Sequential], rounds, &mut shuffle)?;
                series.extend(s);
                timings.extend(t);
            }
            Err(why) => bench.leave_out("*", Some("python"), why),
        }
    }
    if has_pandas {
        rates = warm_rate::measure(bench, daemons, &pandas, &kinds)?;
    }
    if series.is_empty() {
        let why: Vec<&str> = bench.absent.iter().map(|a| a.reason.as_str()).collect();
        return Err(BenchError::Refused(format!("nothing to measure: {}", why.join("; "))));
    }
    Ok(Measured { series, timings, rates })
}

/// Those whose pool fills.
fn kinds(bench: &mut Bench, daemons: &Daemons) -> Result<Vec<Kind>, BenchError> {
    let mut kinds = Vec::new();
    bench.progress.part("filling the pools", Kind::ALL.len() as u64);
    for kind in Kind::ALL {
        match daemons.fill(kind, &bench.stop) {
            Ok(()) => kinds.push(kind),
            Err(Failed::Stopped) => return Err(BenchError::Stopped),
            Err(Failed::Why(why)) => bench.leave_out(kind.name(), None, why),
        }
        bench.progress.step();
    }
    if kinds == [Kind::Cold] {
        let why: Vec<&str> = bench.absent.iter().map(|a| a.reason.as_str()).collect();
        return Err(BenchError::Creel(format!("no sandbox could be made ahead: {}", why.join("; "))));
    }
    Ok(kinds)
}

/// Whether the image can do it: a cold start says so. Why not, is noted.
fn able(bench: &mut Bench, daemons: &Daemons, task: &Task) -> Result<bool, BenchError> {
    match once(bench, daemons, &Who::Daemon(Kind::Cold), task, 1, None) {
        Ok(done) => {
            bench.look(done.first().map(|(_, report)| report));
            Ok(true)
        }
        Err(Once::Stopped) => Err(BenchError::Stopped),
        Err(Once::Failed(why)) => {
            bench.leave_out("*", Some(task.work), why);
            Ok(false)
        }
    }
}

/// A contestant's counted runs.
#[derive(Default)]
struct Kept {
    samples: Vec<Sample>,
    missed: usize,
    reports: Vec<(f64, Value)>,
}

fn compare(
    bench: &mut Bench,
    daemons: &Daemons,
    task: &Task,
    who: &[Who],
    modes: &[Mode],
    rounds: u32,
    shuffle: &mut Shuffle,
) -> Result<(Vec<Series>, Vec<Timings>), BenchError> {
    let (mut series, mut timings) = (Vec::new(), Vec::new());
    for &mode in modes {
        let kept = in_rounds(bench, daemons, task, who, mode, rounds, shuffle)?;
        if mode == Mode::Sequential {
            let of = |(name, kept): (&&'static str, &Kept)| cold::account(task.work, name, &kept.reports);
            let creels = kept.iter().filter(|(name, _)| **name != "bare");
            timings.extend(creels.filter_map(of));
        }
        let k = size(bench, mode, rounds).0;
        series.extend(who.iter().filter_map(|w| summarised(task, mode, k, w.name(), &kept)));
    }
    Ok((series, timings))
}

/// Starts in a round, and rounds that count.
fn size(bench: &Bench, mode: Mode, rounds: u32) -> (usize, u32) {
    let k = bench.plan.burst;
    match mode {
        Mode::Sequential => (1, rounds),
        _ => (k, rounds.div_ceil(u32::try_from(k).unwrap_or(u32::MAX)).max(1)),
    }
}

fn in_rounds(
    bench: &mut Bench,
    daemons: &Daemons,
    task: &Task,
    who: &[Who],
    mode: Mode,
    rounds: u32,
    shuffle: &mut Shuffle,
) -> Result<BTreeMap<&'static str, Kept>, BenchError> {
    let (k, counted) = size(bench, mode, rounds);
    let warm_up = if mode == Mode::Sequential { bench.plan.warm_up } else { bench.plan.warm_up.min(1) };
    let gap = (mode == Mode::Staggered).then_some(bench.plan.stagger);
    let mut kept: BTreeMap<&'static str, Kept> = BTreeMap::new();
    let steps = u64::from(warm_up + counted) * who.len() as u64;
    bench.progress.part(&format!("{}, {}", task.work, mode.name()), steps);
    for number in 0..warm_up + counted {
        for index in shuffle.order(who.len()) {
            let who = &who[index];
            bench.progress.step();
            if bench.stop.rest(bench.plan.pause) {
                return Err(BenchError::Stopped);
            }
            match once(bench, daemons, who, task, k, gap) {
                Ok(done) if number >= warm_up => {
                    let kept = kept.entry(who.name()).or_default();
                    let round = number - warm_up;
                    for (ms, report) in done {
                        match ms {
                            Some(ms) => {
                                kept.samples.push(Sample { round, ms });
                                kept.reports.push((ms, report));
                            }
                            None => kept.missed += 1,
                        }
                    }
                }
                Ok(_) => {}
                Err(Once::Stopped) => return Err(BenchError::Stopped),
                Err(Once::Failed(why)) if who.is_creel() => {
                    let (work, mode, name) = (task.work, mode.name(), who.name());
                    return Err(BenchError::Creel(format!("{name}, {work}, {mode}: {why}")));
                }
                Err(Once::Failed(why)) => {
                    kept.remove(who.name());
                    bench.leave_out(who.name(), Some(task.work), format!("round {number}: {why}"));
                }
            }
        }
    }
    Ok(kept)
}

/// `k` starts of one entrant. A pool is full before they begin; what refills it meanwhile is in their time, as it is in a daemon.
fn once(
    bench: &Bench,
    daemons: &Daemons,
    who: &Who,
    task: &Task,
    k: usize,
    gap: Option<Duration>,
) -> Result<Vec<Done>, Once> {
    match who {
        Who::Daemon(kind) => {
            let ran = daemons
                .fill(*kind, &bench.stop)
                .and_then(|()| daemons.train(*kind, &task.program, k, gap, &bench.stop));
            let ran = ran.map_err(|failed| match failed {
                Failed::Stopped => Once::Stopped,
                Failed::Why(why) => Once::Failed(why),
            })?;
            ran.iter().map(|ran| accept(*kind, task, ran).map_err(Once::Failed)).collect()
        }
        Who::Creel(both) => {
            let job = both.1.script(std::str::from_utf8(code(&task.program)).unwrap_or_default());
            let each = |result| match result {
                Ok(timed) => cold::accept("creel", timed).map_err(Once::Failed),
                Err(Failure::Stopped) => Err(Once::Stopped),
                Err(failure) => Err(Once::Failed(failure.to_string())),
            };
            let done: Result<Vec<_>, Once> =
                train::run(&both.0, vec![job; k], gap, &bench.stop).into_iter().map(each).collect();
            done?.into_iter().map(|(ms, report)| Ok((Some(ms), report))).collect()
        }
        Who::Process(contestant, work) => {
            let done = cold::once(bench, contestant, work, k, gap)?;
            Ok(done.into_iter().map(|(ms, report)| (Some(ms), report)).collect())
        }
    }
}

fn code(program: &Program) -> &[u8] {
    match program {
        Program::Script { code, .. } => code,
        Program::Command(_) | Program::ImageDefault => b"",
    }
}

/// A run counts if it did its work, and is among the samples if it started as it was meant to.
///
/// # Errors
/// What went wrong, in the report's words.
fn accept(kind: Kind, task: &Task, ran: &Ran) -> Result<Done, String> {
    check(task, ran)?;
    let report = serde_json::to_value(&ran.report).map_err(|e| e.to_string())?;
    Ok(((ran.report.start == kind.name()).then_some(ran.ms), report))
}

/// Whether a run did its work.
///
/// # Errors
/// What went wrong, in the report's words.
pub fn check(task: &Task, ran: &Ran) -> Result<(), String> {
    let report = &ran.report;
    if report.error_category == Category::Ok && report.stdout == task.stdout {
        return Ok(());
    }
    let said = report.error.as_ref().map(|e| e.message.clone());
    let said = said.unwrap_or_else(|| super::peers::explain(report.stderr.as_bytes()));
    Err(format!("exit code {}: {said}", report.exit_code.map_or("none".into(), |c| c.to_string())))
}

fn summarised(
    task: &Task,
    mode: Mode,
    in_a_round: usize,
    name: &'static str,
    kept: &BTreeMap<&'static str, Kept>,
) -> Option<Series> {
    let rounds = |name: &str| kept.get(name).map(|k| by_round(&k.samples)).unwrap_or_default();
    let this = kept.get(name)?;
    let own = rounds(name);
    let values: Vec<f64> = this.samples.iter().map(|s| s.ms).collect();
    Some(Series {
        work: task.work,
        mode: mode.name(),
        in_a_round,
        contestant: name,
        summary: Summary::of(&values)?,
        ratio_to_bare: ratio(&own, &rounds("bare")),
        ratio_to_creel: ratio(&own, &rounds("creel")),
        cold_to_this: ratio(&rounds("cold"), &own),
        missed: this.missed,
        samples: this.samples.clone(),
    })
}
