//! One run by way of the service, in the process of `creel run`: to try whether a program behaves the same in a sandbox that was made ahead.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use super::{Config, Executor, PoolConfig, Submission, fits};
use crate::executor::prepare::io_error;
use crate::executor::report::{Category, Report};
use crate::executor::request::Request;
use crate::executor::run::{Stop, blank, drop_privileges};
use crate::executor::spawner::Spawner;
use crate::sys;

/// How the run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Cold,
    /// Delivered to a Python that waits.
    Warm,
    /// Delivered to one that was forked from a Python with modules imported.
    Zygote,
}

/// The slot waits for one run only.
const NEVER: Duration = Duration::from_secs(24 * 3600);
/// Why a request can't start so.
const REFUSED: &str = "run.start_refused";

/// Runs `request` and reports, as [`run`](crate::executor::run::run) does; `preload` is imported ahead. The calling process must be single-threaded.
pub fn run(request: Request, start: Start, preload: Vec<String>) -> Report {
    let mut report = blank(&request);
    let (limits, notes) = (request.limits.clone(), request.notes.clone());
    match carry_out(request, start, preload) {
        Ok(report) => report,
        Err(stop) => {
            report.error_category = stop.category;
            report.error = Some(stop.error);
            report.limits = limits;
            report.notes = notes;
            report
        }
    }
}

fn carry_out(request: Request, start: Start, preload: Vec<String>) -> Result<Report, Stop> {
    // From here on a signal cancels the run instead of ending this process in the middle of something.
    let signals = sys::signal::block_and_watch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let signals = signals.map_err(io_error("watch signals"))?;
    let pools = match start {
        Start::Cold => Vec::new(),
        Start::Warm | Start::Zygote => vec![pool(&request, start, preload)?],
    };
    let config = Config { running: 1, queue: 0, refills: 1, pools };
    config.check().map_err(|e| Stop::rejected(REFUSED, e.to_string()))?;
    let spawner = Spawner::start().map_err(|e| Stop::host("sandbox.spawner", e.to_string()))?;
    drop_privileges().map_err(io_error("drop capabilities"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(io_error("make a runtime"))?;
    let report = runtime.block_on(async {
        let host = |e: super::StartError| Stop::host("sandbox.spawner", e.to_string());
        let executor = Executor::new(spawner, config).map_err(host)?;
        let report = with(&executor, request, &signals, start).await;
        executor.shutdown().await;
        report
    });
    // A thread that waits for a reader of ours has nothing to do any more.
    runtime.shutdown_background();
    report
}

/// The pool of exactly this request.
fn pool(request: &Request, start: Start, preload: Vec<String>) -> Result<PoolConfig, Stop> {
    let pool = PoolConfig {
        image: request.image.clone(),
        limits: request.limits.clone(),
        seccomp: request.seccomp.clone(),
        env: request.env.clone(),
        allow_unenforced: request.allow_unenforced.clone(),
        preload,
        zygote: start == Start::Zygote,
        per_tenant: false,
        size: 1,
        hot: 0,
        patience: Duration::ZERO,
        max_age: NEVER,
        zygote_forks: u64::MAX,
        zygote_age: NEVER,
    };
    fits(&pool, request).map_err(|misfit| {
        Stop::rejected(REFUSED, format!("this can't go on with a sandbox that was made ahead: {misfit}"))
    })?;
    Ok(pool)
}

async fn with(
    executor: &Executor,
    request: Request,
    signals: &OwnedFd,
    start: Start,
) -> Result<Report, Stop> {
    let signals = AsyncFd::new(signals.as_fd()).map_err(io_error("watch signals"))?;
    if start != Start::Cold {
        tokio::select! {
            filled = executor.filled(0) => filled?,
            signal = next(&signals) => {
                return Err(Stop::new(Category::Cancelled, "run.cancelled", format!("cancelled by signal {signal}")));
            }
        }
    }
    // It is the only run.
    executor.stop_refilling();
    let running = executor.submit(Submission { request, tenant: None });
    let running = running.map_err(|e| Stop::rejected(REFUSED, e.to_string()))?;
    let run_id = running.run_id.clone();
    let report = running.report();
    tokio::pin!(report);
    loop {
        tokio::select! {
            report = &mut report => return Ok(report),
            signal = next(&signals) => {
                let (executor, run_id) = (executor.clone(), run_id.clone());
                // Beside this loop, so that another signal is heard.
                tokio::spawn(async move { executor.cancel_by(&run_id, Some(signal)).await });
            }
        }
    }
}

async fn next(signals: &AsyncFd<impl AsFd + std::os::fd::AsRawFd>) -> i32 {
    loop {
        let Ok(mut ready) = signals.readable().await else {
            // Only with the runtime itself.
            return std::future::pending().await;
        };
        match sys::signal::next(signals.get_ref().as_fd()) {
            Some(signal) => return signal,
            None => ready.clear_ready(),
        }
    }
}
