//! Executors in this process, as a daemon has them: what `warm` and `density --slots` measure.
//!
//! One for each kind of start, so that each run can only start in the way that is meant, or cold. Their spawners are forked first, while this process
//! has one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;

use super::BenchError;
use super::setup::{Kind, Setup};
use super::stop::Stop;
use crate::executor::report::Report;
use crate::executor::request::{Program, Request};
use crate::executor::service::{Config, Executor, PoolStatus, Submission};
use crate::executor::spawner::Spawner;
use crate::text::io_reason;

/// What the clock measures, for people.
pub const CLOCK: &str = "of zygote, warm and cold from just before the run is submitted to the executor in this process until its report is returned, which \
comes after its main process has exited, all of the sandbox is dead and /outputs was looked at; of bare and creel (`creel run --json`) from just before the \
program is started until its exit was reaped and its output, on one pipe, read to the end; CLOCK_MONOTONIC, in this process";

/// How often a pool is looked at that fills: it announces its first slot only.
const LOOK: Duration = Duration::from_millis(2);

/// The spawners, in the order of the kinds asked for.
#[derive(Debug)]
pub struct Spawners(Vec<(Kind, Spawner)>);

impl Spawners {
    /// Forks them. This process must have one thread still.
    ///
    /// # Errors
    /// The first that can't be forked.
    pub fn start(kinds: &[Kind]) -> Result<Spawners, BenchError> {
        let one = |kind: &Kind| {
            let spawner = Spawner::start().map_err(|e| BenchError::Host(e.to_string()))?;
            Ok((*kind, spawner))
        };
        kinds.iter().map(one).collect::<Result<_, _>>().map(Spawners)
    }
}

/// One run that has its report.
#[derive(Debug)]
pub struct Ran {
    pub ms: f64,
    pub report: Report,
}

/// Why there is none.
#[derive(Debug)]
pub enum Failed {
    Stopped,
    Why(String),
}

/// The executors at work. Dropped, everything of theirs is ended.
pub struct Daemons {
    runtime: Runtime,
    executors: Vec<(Kind, Executor)>,
    pub setup: Arc<Setup>,
}

impl Daemons {
    /// Starts the runtime and the executors, which begin to fill their pools.
    ///
    /// # Errors
    /// No threads, no descriptors.
    pub fn start(spawners: Spawners, setup: Setup) -> Result<Daemons, BenchError> {
        let host = |e: &dyn std::fmt::Display| BenchError::Host(format!("cannot start an executor: {e}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| host(&e))?;
        let mut daemons = Daemons { runtime, executors: Vec::new(), setup: Arc::new(setup) };
        for (kind, spawner) in spawners.0 {
            let setup = &daemons.setup;
            let config = Config {
                running: setup.running,
                queue: 1024,
                refills: setup.refills,
                pools: setup.pools(kind),
            };
            let _in = daemons.runtime.enter();
            let executor = Executor::new(spawner, config).map_err(|e| host(&e))?;
            drop(_in);
            daemons.executors.push((kind, executor));
        }
        Ok(daemons)
    }

    fn executor(&self, kind: Kind) -> Result<&Executor, Failed> {
        let found = self.executors.iter().find(|(k, _)| *k == kind);
        found.map(|(_, e)| e).ok_or_else(|| Failed::Why(format!("no executor for {} runs", kind.name())))
    }

    /// How the pool of this kind is; `None` of cold runs.
    pub fn pool(&self, kind: Kind) -> Option<PoolStatus> {
        self.executor(kind).ok()?.pools().into_iter().next()
    }

    /// Waits until the pool of this kind has all its slots.
    ///
    /// # Errors
    /// Why one could not be made.
    pub fn fill(&self, kind: Kind, stop: &Stop) -> Result<(), Failed> {
        while let Some(pool) = self.pool(kind) {
            if pool.ready >= self.setup.size {
                break;
            }
            if let Some(why) = pool.last_error {
                return Err(Failed::Why(why));
            }
            if stop.rest(LOOK) {
                return Err(Failed::Stopped);
            }
        }
        Ok(())
    }

    /// Makes no more slots.
    pub fn stop_refilling(&self, kind: Kind) {
        if let Ok(executor) = self.executor(kind) {
            executor.stop_refilling();
        }
    }

    /// `k` runs of a program, started `gap` after each other, ended or not; at once without a gap.
    ///
    /// # Errors
    /// The first that was refused, or the caller wants to stop.
    pub fn train(
        &self,
        kind: Kind,
        program: &Program,
        k: usize,
        gap: Option<Duration>,
        stop: &Stop,
    ) -> Result<Vec<Ran>, Failed> {
        let executor = self.executor(kind)?;
        let requests = (0..k).map(|_| self.setup.request(program).map_err(no_id));
        let requests = requests.collect::<Result<Vec<Request>, _>>()?;
        self.until_stopped(stop, async {
            let mut runs = Vec::new();
            for (n, request) in requests.into_iter().enumerate() {
                if let (Some(gap), true) = (gap, n > 0) {
                    tokio::time::sleep(gap).await;
                }
                // In a task of its own, as a daemon's requests are.
                runs.push(tokio::spawn(timed(executor.clone(), request)));
            }
            let mut done = Vec::new();
            for run in runs {
                done.push(run.await.map_err(|e| Failed::Why(e.to_string()))??);
            }
            Ok(done)
        })
    }

    /// Runs a program again and again, `clients` at a time, until `enough` says so of a run that is to begin; each that has ended is given to `each`,
    /// with the time when it was submitted.
    ///
    /// # Errors
    /// The first that was refused or that `each` does not accept, or the caller wants to stop.
    pub fn stream(
        &self,
        kind: Kind,
        program: &Program,
        clients: usize,
        enough: impl Fn() -> bool + Clone + Send + Sync + 'static,
        each: impl Fn(Instant, &Ran) -> Result<(), String> + Clone + Send + Sync + 'static,
        stop: &Stop,
    ) -> Result<(), Failed> {
        let executor = self.executor(kind)?;
        self.until_stopped(stop, async {
            let mut running = tokio::task::JoinSet::new();
            for _ in 0..clients {
                let (executor, program) = (executor.clone(), program.clone());
                let setup = Arc::clone(&self.setup);
                let (enough, each) = (enough.clone(), each.clone());
                running.spawn(async move {
                    while !enough() {
                        let request = setup.request(&program).map_err(no_id)?;
                        let begun = Instant::now();
                        let ran = timed(executor.clone(), request).await?;
                        each(begun, &ran).map_err(Failed::Why)?;
                    }
                    Ok(())
                });
            }
            while let Some(ended) = running.join_next().await {
                ended.map_err(|e| Failed::Why(e.to_string()))??;
            }
            Ok(())
        })
    }

    fn until_stopped<T>(
        &self,
        stop: &Stop,
        work: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        self.runtime.block_on(async {
            let told = AsyncFd::with_interest(stop.fd(), Interest::READABLE);
            let told = told.map_err(|e| Failed::Why(format!("cannot watch signals: {e}")))?;
            tokio::select! {
                done = work => done,
                _ = told.readable() => Err(Failed::Stopped),
            }
        })
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        self.runtime.block_on(async {
            for (_, executor) in &self.executors {
                executor.shutdown().await;
            }
        });
    }
}

fn no_id(e: std::io::Error) -> Failed {
    Failed::Why(format!("no random bytes for an id: {}", io_reason(&e)))
}

/// The clock runs from just before it is submitted until its report is there.
async fn timed(executor: Executor, request: Request) -> Result<Ran, Failed> {
    let begun = Instant::now();
    let running = executor.submit(Submission { request, tenant: None });
    let running = running.map_err(|e| Failed::Why(e.to_string()))?;
    let report = running.report().await;
    Ok(Ran { ms: begun.elapsed().as_secs_f64() * 1e3, report })
}

/// Raises the soft limit of open files as far as needed.
///
/// # Errors
/// The hard limit is lower.
pub fn descriptors(needed: u64) -> Result<(), BenchError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }) {
        Ok(()) => Ok(()),
        Err(_) => Err(BenchError::Refused(format!(
            "so many sandboxes need {needed} open files, and {} are allowed: ulimit -n {needed}",
            limit.maximum.unwrap_or_default()
        ))),
    }
}
