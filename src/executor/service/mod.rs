//! The executor as a library for a daemon: many runs at once, a queue with a bound, and sandboxes that are made ahead.
//!
//! `main` calls [`become_if_asked`](crate::sandbox::init::become_if_asked) before anything else. A [`Spawner`] is forked first, while the process has one thread. Then, in a tokio runtime, [`Executor::new`] takes it over. Everything about a
//! sandbox happens in processes of its own: a worker, forked by the spawner, plans it and becomes its launcher, and this side speaks to it over a
//! socket.

mod attempt;
mod cancel;
mod config;
mod control;
mod filters;
mod key;
mod link;
pub mod once;
mod pool;
mod queue;
mod run;
mod shelf;
mod slot;
mod streams;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::report::{Category, Report, ReportError};
use super::request::Request;
use super::run::{Stop, blank};
use super::spawner::Spawner;
use cancel::Canceller;
use filters::Filters;
use link::Link;
use pool::Pools;
use queue::Queue;
use run::{Submitted, life};

pub use config::{Config, ConfigError, PoolConfig, is_module, usual_modules};
pub use key::{Misfit, fits};
pub use pool::{PoolStatus, ZygoteStatus};
pub use shelf::Counts;
pub use streams::{Chunk, Stream};

/// The error code of what comes too late.
const REFUSED: &str = "run.shutting_down";

/// The executor of a daemon. Copies are handles to the same one.
#[derive(Debug, Clone)]
pub struct Executor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    pools: Pools,
    runs: Mutex<Runs>,
    spawner: Mutex<Option<OwnedFd>>,
}

/// What runs and pools have in common.
#[derive(Debug)]
struct Shared {
    link: Arc<Link>,
    filters: Filters,
    queue: Arc<Queue>,
    /// Slots and zygotes that are made at once.
    refills: Semaphore,
    refills_at_once: usize,
    /// Whether slots are replaced.
    refilling: AtomicBool,
    closing: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Runs {
    closed: bool,
    by_id: HashMap<String, Live>,
}

/// A run that has no report yet.
#[derive(Debug)]
struct Live {
    cancel: Canceller,
    /// Closed when the report is there.
    over: watch::Receiver<()>,
}

/// Why the executor could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot take over the process that starts sandboxes: {0}")]
    Link(io::Error),
}

/// A request for a run, and whose it is.
#[derive(Debug)]
pub struct Submission {
    /// Its `run_id` must be new. With `pass_through` the output goes to this process's own streams and not to [`Running::chunks`].
    pub request: Request,
    /// Pools that are for each tenant give their slots to runs of the same one only.
    pub tenant: Option<String>,
}

/// Why a run was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// So many run and wait that there is no place.
    #[error("too many runs are waiting: come back in {} ms", retry_after.as_millis())]
    Full {
        /// When a place is likely to be free.
        retry_after: Duration,
    },
    #[error("there is a run {run_id} already")]
    Duplicate { run_id: String },
    #[error("the service is shutting down: ask again when it is up")]
    ShuttingDown,
}

/// A run that was taken. Dropping this does not end it.
#[derive(Debug)]
pub struct Running {
    pub run_id: String,
    /// Output as it comes. Whoever does not keep up misses some, see [`Chunk::missed`]; the program waits for nobody. Closed when the run's output is
    /// over.
    pub chunks: mpsc::Receiver<Chunk>,
    report: oneshot::Receiver<Report>,
    /// For the case that the task breaks off.
    lost: Box<Report>,
}

/// What came of asking for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// Everything of the run is dead and its report is there (which may say that it ended by itself before).
    Cancelled,
    /// There is no such run, or it is over.
    Unknown,
}

impl Executor {
    /// Takes the spawner over and begins to fill the pools. Must be called in the tokio runtime (with I/O and time) that is to serve it.
    ///
    /// # Errors
    /// [`StartError`]: a configuration that can't be, or no descriptors left.
    pub fn new(spawner: Spawner, config: Config) -> Result<Executor, StartError> {
        config.check()?;
        let Spawner { socket, pidfd } = spawner;
        let shared = Arc::new(Shared {
            link: Link::new(socket).map_err(StartError::Link)?,
            filters: Filters::default(),
            queue: Queue::new(config.running, config.queue),
            refills: Semaphore::new(config.refills),
            refills_at_once: config.refills,
            refilling: AtomicBool::new(true),
            closing: watch::Sender::new(false),
        });
        let pools = Pools::new(config.pools, &shared);
        let spawner = Mutex::new(Some(pidfd));
        Ok(Executor(Arc::new(Inner { shared, pools, runs: Mutex::default(), spawner })))
    }

    /// Takes a run, to be started at once or when its turn comes; first come, first served. Must be called in the runtime.
    ///
    /// # Errors
    /// [`Refused`], at once.
    pub fn submit(&self, submission: Submission) -> Result<Running, Refused> {
        let Submission { request, tenant } = submission;
        let since = Instant::now();
        let run_id = request.run_id.clone();
        let (cancel, cancelled) = cancel::pair();
        let (over, is_over) = watch::channel(());
        let (chunks_in, chunks) = mpsc::channel(streams::CHUNKS);
        let (tell, report) = oneshot::channel();
        let place = {
            let mut runs = self.0.runs();
            if runs.closed {
                return Err(Refused::ShuttingDown);
            }
            if runs.by_id.contains_key(&run_id) {
                return Err(Refused::Duplicate { run_id });
            }
            let place = self.0.shared.queue.enter().map_err(|retry_after| Refused::Full { retry_after })?;
            runs.by_id.insert(run_id.clone(), Live { cancel, over: is_over });
            place
        };
        let lost = Box::new(lost(&request));
        let submitted = Submitted { request, tenant, place, cancel: cancelled, chunks: chunks_in, since };
        let (inner, id) = (Arc::clone(&self.0), run_id.clone());
        tokio::spawn(async move {
            // However this task ends, the run is over then.
            let _over = Over { inner: Arc::clone(&inner), id, _tell: over };
            let report = life(inner, submitted).await;
            // Nobody need want it.
            let _ = tell.send(report);
        });
        Ok(Running { run_id, chunks, report, lost })
    }

    /// Ends a run, one that waits too. Returns when everything in it is dead and its report is there.
    pub async fn cancel(&self, run_id: &str) -> CancelOutcome {
        self.cancel_by(run_id, None).await
    }

    /// The same on account of a signal to this process, which the report names. Asked again, it does not wait any more for a reader of our own
    /// streams.
    pub async fn cancel_by(&self, run_id: &str, signal: Option<i32>) -> CancelOutcome {
        let over = self.0.runs().by_id.get(run_id).map(|live| (live.cancel.clone(), live.over.clone()));
        let Some((cancel, mut over)) = over else { return CancelOutcome::Unknown };
        cancel.ask(signal);
        // Nothing is ever sent: it closes.
        let _ = over.changed().await;
        CancelOutcome::Cancelled
    }

    /// How many run and how many wait.
    pub fn load(&self) -> (usize, usize) {
        (self.0.shared.queue.running(), self.0.shared.queue.waiting())
    }

    /// How the pools are.
    pub fn pools(&self) -> Vec<PoolStatus> {
        self.0.pools.status()
    }

    /// Returns when the pool of this number has a slot that waits.
    ///
    /// # Errors
    /// The reason why one could not be made.
    pub async fn filled(&self, pool: usize) -> Result<(), Stop> {
        self.0.pools.filled(pool, &self.0.shared).await
    }

    /// Makes nothing more ahead; what waits stays good.
    pub fn stop_refilling(&self) {
        self.0.shared.refilling.store(false, Ordering::Relaxed);
    }

    /// Takes no more runs, cancels all, ends what was made ahead, and returns when nothing is left of any of them.
    pub async fn shutdown(&self) {
        let live: Vec<_> = {
            let mut runs = self.0.runs();
            runs.closed = true;
            runs.by_id.values().map(|live| (live.cancel.clone(), live.over.clone())).collect()
        };
        self.0.shared.closing.send_replace(true);
        for (cancel, _) in &live {
            cancel.ask(None);
        }
        for (_, mut over) in live {
            let _ = over.changed().await;
        }
        self.0.shared.link.all_gone().await;
        self.0.shared.link.close();
        let spawner = self.0.spawner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pidfd) = spawner {
            // It ends when its socket closes and its last child is reaped.
            let _ = tokio::task::spawn_blocking(move || {
                use rustix::process::{WaitId, WaitIdOptions, waitid};
                rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED))
            })
            .await;
        }
    }
}

impl Running {
    /// Waits for the end.
    pub async fn report(self) -> Report {
        drop(self.chunks);
        self.report.await.unwrap_or(*self.lost)
    }

    /// The output and then the report.
    pub fn split(self) -> (mpsc::Receiver<Chunk>, impl Future<Output = Report>) {
        let Running { chunks, report, lost, .. } = self;
        (chunks, async move { report.await.unwrap_or(*lost) })
    }
}

/// Takes the run out of the list, and tells who waits for its end.
struct Over {
    inner: Arc<Inner>,
    id: String,
    _tell: watch::Sender<()>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.inner.runs().by_id.remove(&self.id);
    }
}

impl Inner {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        // Nothing panics with it half changed.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(request: &Request) -> Report {
    let mut report = blank(request);
    report.error_category = Category::SandboxError;
    let message = "the task of the run broke off: how it ended is not known";
    report.error = Some(ReportError { code: "sandbox.lost".into(), message: message.into() });
    report
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
