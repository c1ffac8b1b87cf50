//! Starts of several programs: one, all at once, or one every so often.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::{Failure, Job, Timed, time};
use super::peers::Contestant;
use super::stop::Stop;

/// Starts `jobs` from the contestant's room and waits for all. With a gap, a new one starts that long after the one before was started,
/// whether or not that has ended.
pub fn run(
    contestant: &Contestant,
    jobs: Vec<Job>,
    gap: Option<Duration>,
    stop: &Arc<Stop>,
) -> Vec<Result<Timed, Failure>> {
    let stop = stop.clone();
    let n = jobs.len();
    let done = contestant.room.run(move || match &jobs[..] {
        [one] => vec![time(one, &stop)],
        many => together(many, gap, &stop),
    });
    done.unwrap_or_else(|| (0..n).map(|_| Err(Failure::Stopped)).collect())
}

fn together(jobs: &[Job], gap: Option<Duration>, stop: &Stop) -> Vec<Result<Timed, Failure>> {
    let barrier = Barrier::new(jobs.len());
    thread::scope(|scope| {
        let one = |i: usize, job| {
            let barrier = &barrier;
            move || {
                barrier.wait();
                if let Some(gap) = gap {
                    let at = Instant::now() + gap * u32::try_from(i).unwrap_or(u32::MAX);
                    if stop.rest(at.saturating_duration_since(Instant::now())) {
                        return Err(Failure::Stopped);
                    }
                }
                time(job, stop)
            }
        };
        let threads: Vec<_> = jobs.iter().enumerate().map(|(i, job)| scope.spawn(one(i, job))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Err(Failure::Stopped))).collect()
    })
}
