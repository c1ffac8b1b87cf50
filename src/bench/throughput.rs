//! `creel bench throughput`: runs per second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::{Failure, time};
use super::cold::{Once, accept, once};
use super::image::Work;
use super::outcome::{Rate, ratio};
use super::peers::Contestant;
use super::shuffle::Shuffle;
use super::stats::Summary;
use super::{Bench, BenchError};

/// Everything that `throughput` measures.
///
/// # Errors
/// [`BenchError`]: creel failed, or the caller stopped it.
pub fn measure(bench: &mut Bench) -> Result<Vec<Rate>, BenchError> {
    let mut rates = Vec::new();
    let mut shuffle = Shuffle::new(bench.plan.seed);
    let cores = bench.setting.cpus;
    let mut levels = vec![1, cores, 2 * cores];
    levels.dedup();
    for work in bench.works()? {
        let entrants = bench.entrants(&work)?;
        warm_up(bench, &entrants, &work)?;
        for &at_once in &levels {
            let kept = windows(bench, &entrants, &work, at_once, &mut shuffle)?;
            rates.extend(summarised(&entrants, &work, at_once, &kept));
        }
    }
    Ok(rates)
}

fn warm_up(bench: &mut Bench, entrants: &[Contestant], work: &Work) -> Result<(), BenchError> {
    bench.progress.part(&format!("{}, warm-up", work.name), u64::from(bench.plan.warm_up));
    for _ in 0..bench.plan.warm_up {
        for contestant in entrants {
            // One that fails here fails in its window, where it is left out.
            if let Err(Once::Stopped) = once(bench, contestant, work, 1, None) {
                return Err(BenchError::Stopped);
            }
        }
        bench.progress.step();
    }
    Ok(())
}

/// By contestant: window → (runs, runs per second).
type Kept = BTreeMap<&'static str, BTreeMap<u32, (u64, f64)>>;

fn windows(
    bench: &mut Bench,
    entrants: &[Contestant],
    work: &Work,
    at_once: usize,
    shuffle: &mut Shuffle,
) -> Result<Kept, BenchError> {
    let mut kept = Kept::new();
    let mut out: Vec<&'static str> = Vec::new();
    let steps = u64::from(bench.plan.rounds) * entrants.len() as u64;
    bench.progress.part(&format!("{}, {at_once} at once", work.name), steps);
    for number in 0..bench.plan.rounds {
        for index in shuffle.order(entrants.len()) {
            let contestant = &entrants[index];
            if out.contains(&contestant.name) {
                continue;
            }
            if bench.stop.rest(bench.plan.pause) {
                return Err(BenchError::Stopped);
            }
            match window(bench, contestant, work, at_once) {
                Ok(found) => {
                    kept.entry(contestant.name).or_default().insert(number, found);
                }
                Err(Once::Stopped) => return Err(BenchError::Stopped),
                Err(Once::Failed(why)) if contestant.name == "creel" => {
                    return Err(BenchError::Creel(format!("{at_once} at once, {}: {why}", work.name)));
                }
                Err(Once::Failed(why)) => {
                    kept.remove(contestant.name);
                    out.push(contestant.name);
                    bench.leave_out(contestant.name, Some(work.name), format!("{at_once} at once: {why}"));
                }
            }
            bench.progress.step();
        }
    }
    Ok(kept)
}

/// Starts runs for the length of a window, `at_once` at a time; the runs that it began are waited for and count, and so does their time.
fn window(bench: &Bench, contestant: &Contestant, work: &Work, at_once: usize) -> Result<(u64, f64), Once> {
    let (stop, peer, name) = (bench.stop.clone(), contestant.peer.clone(), contestant.name);
    let (command, length) = (work.command.clone(), bench.plan.window);
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let task = move || {
        let failed = AtomicBool::new(false);
        let begun = Instant::now();
        let one = || -> Result<(), Once> {
            while begun.elapsed() < length && !failed.load(Ordering::Relaxed) {
                let done = peer.job(&command).map_err(Once::Failed).and_then(|job| match time(&job, &stop) {
                    Ok(timed) => accept(name, timed).map(drop).map_err(Once::Failed),
                    Err(Failure::Stopped) => Err(Once::Stopped),
                    Err(failure) => Err(Once::Failed(failure.to_string())),
                });
                if done.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                done?;
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let results: Vec<Result<(), Once>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap_or(Err(Once::Stopped))).collect()
        });
        let elapsed: Duration = begun.elapsed();
        results.into_iter().collect::<Result<Vec<()>, Once>>().map(|_| elapsed)
    };
    let elapsed = contestant.room.run(task).unwrap_or(Err(Once::Stopped))?;
    let n = runs.load(Ordering::Relaxed);
    Ok((n, n as f64 / elapsed.as_secs_f64()))
}

fn summarised(entrants: &[Contestant], work: &Work, at_once: usize, kept: &Kept) -> Vec<Rate> {
    let of = |name: &str| -> BTreeMap<u32, f64> {
        kept.get(name).into_iter().flatten().map(|(n, (_, rate))| (*n, *rate)).collect()
    };
    let (bare, creel) = (of("bare"), of("creel"));
    let one = |contestant: &Contestant| {
        let own = of(contestant.name);
        let windows: Vec<f64> = own.values().copied().collect();
        Some(Rate {
            work: work.name,
            contestant: contestant.name,
            at_once,
            runs: kept.get(contestant.name)?.values().map(|(n, _)| n).sum(),
            hits: None,
            summary: Summary::of(&windows)?,
            ratio_to_bare: ratio(&own, &bare),
            ratio_to_creel: ratio(&own, &creel),
            ratio_to_cold: None,
            windows,
        })
    };
    entrants.iter().filter_map(one).collect()
}
