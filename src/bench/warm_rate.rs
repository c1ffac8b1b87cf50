//! Of `creel bench warm`: runs per second for as long as one likes, the pool being refilled meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::daemon::{Daemons, Failed, Ran};
use super::outcome::{Rate, ratio};
use super::setup::Kind;
use super::shuffle::Shuffle;
use super::stats::Summary;
use super::warm::{Task, check};
use super::{Bench, BenchError, facts};

/// Windows of each level, at most: they are long.
pub const WINDOWS: u32 = 3;
/// The part of a window that is run before it, so that a full pool is not taken for a fast one.
const LEAD: u32 = 2;

/// One window: runs, hits, runs per second.
#[derive(Clone, Copy)]
struct Window {
    runs: u64,
    hits: u64,
    rate: f64,
}

/// Runs `task` at cores and 2 x cores clients, zygote slots beside cold starts.
///
/// # Errors
/// [`BenchError`]: creel failed, or the caller stopped it.
pub fn measure(
    bench: &mut Bench,
    daemons: &Daemons,
    task: &Task,
    kinds: &[Kind],
) -> Result<Vec<Rate>, BenchError> {
    let kinds: Vec<Kind> = kinds.iter().copied().filter(|k| *k != Kind::Warm).collect();
    let windows = bench.plan.rounds.min(WINDOWS);
    let mut shuffle = Shuffle::new(bench.plan.seed);
    let cores = facts::cpus();
    let mut rates = Vec::new();
    for clients in [cores, 2 * cores] {
        let mut kept: BTreeMap<&'static str, BTreeMap<u32, Window>> = BTreeMap::new();
        let steps = u64::from(windows) * kinds.len() as u64;
        bench.progress.part(&format!("{}, {clients} at once", task.work), steps);
        for number in 0..windows {
            for index in shuffle.order(kinds.len()) {
                let kind = kinds[index];
                let one = window(bench, daemons, task, kind, clients).map_err(|failed| match failed {
                    Failed::Stopped => BenchError::Stopped,
                    Failed::Why(why) => BenchError::Creel(format!("{clients} at once, {}: {why}", task.work)),
                })?;
                kept.entry(kind.name()).or_default().insert(number, one);
                bench.progress.step();
            }
        }
        rates.extend(kinds.iter().filter_map(|kind| summarised(task, *kind, clients, &kept)));
    }
    Ok(rates)
}

fn window(
    bench: &Bench,
    daemons: &Daemons,
    task: &Task,
    kind: Kind,
    clients: usize,
) -> Result<Window, Failed> {
    daemons.fill(kind, &bench.stop)?;
    let begin = Instant::now() + bench.plan.window / LEAD;
    let end = begin + bench.plan.window;
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let last = Arc::new(Mutex::new(begin));
    let (counted, latest) = (Arc::clone(&counts), Arc::clone(&last));
    let (work, program, stdout) = (task.work, task.program.clone(), task.stdout);
    let each = move |submitted: Instant, ran: &Ran| {
        let task = Task { work, program: program.clone(), stdout };
        check(&task, ran)?;
        if submitted >= begin {
            counted.0.fetch_add(1, Ordering::Relaxed);
            counted.1.fetch_add(u64::from(ran.report.start == kind.name()), Ordering::Relaxed);
            // What was begun is waited for, and its time counts.
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            *latest = Instant::now().max(*latest);
        }
        Ok(())
    };
    daemons.stream(kind, &task.program, clients, move || Instant::now() >= end, each, &bench.stop)?;
    let last: Duration = *last.lock().unwrap_or_else(PoisonError::into_inner) - begin;
    let (runs, hits) = (counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed));
    let length = last.max(bench.plan.window);
    Ok(Window { runs, hits, rate: runs as f64 / length.as_secs_f64() })
}

fn summarised(
    task: &Task,
    kind: Kind,
    clients: usize,
    kept: &BTreeMap<&'static str, BTreeMap<u32, Window>>,
) -> Option<Rate> {
    let of = |name: &str| -> BTreeMap<u32, f64> {
        kept.get(name).into_iter().flatten().map(|(number, w)| (*number, w.rate)).collect()
    };
    let own = kept.get(kind.name())?;
    let windows: Vec<f64> = own.values().map(|w| w.rate).collect();
    Some(Rate {
        work: task.work,
        contestant: kind.name(),
        at_once: clients,
        runs: own.values().map(|w| w.runs).sum(),
        hits: Some(own.values().map(|w| w.hits).sum()),
        summary: Summary::of(&windows)?,
        ratio_to_bare: None,
        ratio_to_creel: None,
        ratio_to_cold: ratio(&of(kind.name()), &of("cold")),
        windows,
    })
}
