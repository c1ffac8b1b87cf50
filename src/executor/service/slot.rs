//! Sandboxes that are made ahead: slots and zygotes, from the job to the moment when they wait.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Shared;
use super::config::PoolConfig;
use super::control::Control;
use super::key::Stamp;
use super::link::Gone;
use crate::executor::job::{Answer, Attached, Job, Planned, What};
use crate::executor::prepare::io_error;
use crate::executor::run::{Stop, blank};
use crate::executor::run_id::new_run_id;
use crate::executor::settle::settle;
use crate::sandbox::channel;
use crate::sandbox::outcome::{Event, Order, Outcome};

/// Time that a Python may take to start and import its modules before it is given up.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// The error code of what can't be made ahead.
const CODE: &str = "sandbox.slot";

/// A sandbox that waits for its run.
#[derive(Debug)]
pub struct Slot {
    /// Its own run id: the name of its cgroup.
    pub id: String,
    pub control: Arc<Control>,
    pub planned: Planned,
    pub gone: Gone,
    pub born: Instant,
    pub stamp: Stamp,
    hot: bool,
    /// Kept alive as long as one of its forks lives.
    zygote: Option<Arc<Zygote>>,
}

/// A Python that slots are forked from.
#[derive(Debug)]
pub struct Zygote {
    pub control: Arc<Control>,
    /// Our end of the socket that forks are asked for by.
    requests: OwnedFd,
    pub born: Instant,
    pub stamp: Stamp,
    pub forks: AtomicU64,
}

impl Slot {
    /// Makes one for the pool; with a zygote, of that.
    ///
    /// # Errors
    /// Why it can't be made: a [`Stop`] as of a run when planning failed, `sandbox.slot` when it ended before it was ready.
    pub async fn make(shared: &Shared, pool: &PoolConfig, zygote: Option<Arc<Zygote>>) -> Result<Slot, Stop> {
        let stamp = Stamp::of(&pool.image);
        let (what, attached) = match &zygote {
            None => (What::Started { preload: pool.preload.clone() }, Attached::default()),
            Some(zygote) => {
                zygote.forks.fetch_add(1, Ordering::Relaxed);
                let socket = zygote.requests.try_clone().map_err(io_error("duplicate a descriptor"))?;
                (What::Forked, Attached { zygote: Some(socket), ..Attached::default() })
            }
        };
        let Made { id, control, planned, gone } = made(shared, pool, what, attached).await?;
        let control = Arc::new(control);
        Ok(Slot { id, control, planned, gone, born: Instant::now(), stamp, hot: false, zygote })
    }

    pub fn is_hot(&self) -> bool {
        self.hot
    }

    /// Has its memory made ready. A delivery need not wait for that.
    pub fn heat(&mut self) {
        self.hot = true;
        self.control.order(Order::Heat, &[], &[]);
    }

    /// The word of the report.
    pub fn start(&self) -> &'static str {
        if self.zygote.is_some() { "zygote" } else { "warm" }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Who still watches it must not keep its launcher.
        self.control.close();
    }
}

impl Zygote {
    /// Makes one for the pool.
    ///
    /// # Errors
    /// As of [`Slot::make`].
    pub async fn make(shared: &Shared, pool: &PoolConfig) -> Result<Zygote, Stop> {
        let stamp = Stamp::of(&pool.image);
        let (requests, theirs) = channel::pair().map_err(io_error("make a socket"))?;
        let what = What::Zygote { preload: pool.preload.clone() };
        let attached = Attached { zygote: Some(theirs), ..Attached::default() };
        let Made { control, .. } = made(shared, pool, what, attached).await?;
        let control = Arc::new(control);
        Ok(Zygote { control, requests, born: Instant::now(), stamp, forks: AtomicU64::new(0) })
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.control.close();
    }
}

struct Made {
    id: String,
    control: Control,
    planned: Planned,
    gone: Gone,
}

async fn made(shared: &Shared, pool: &PoolConfig, what: What, attached: Attached) -> Result<Made, Stop> {
    let filter = shared.filters.get(&pool.seccomp)?;
    let id = new_run_id().map_err(io_error("get random bytes"))?;
    let job = Job::new(what, &id, &pool.request());
    let (control, gone) = shared.link.start(&job, &[], attached).await?;
    let ready = tokio::time::timeout(READY_WITHIN, ready(&control, &filter, pool)).await;
    let planned = ready.unwrap_or_else(|_| {
        Err(failed(format!(
            "it was not ready after {} s: does a module of the preload wait?",
            READY_WITHIN.as_secs()
        )))
    })?;
    Ok(Made { id, control, planned, gone })
}

async fn ready(control: &Control, filter: &[u8], pool: &PoolConfig) -> Result<Planned, Stop> {
    let planned = match control.answer().await {
        Some(Answer::Planned(planned)) => planned,
        Some(Answer::Stopped(stop)) => return Err(stop),
        None => return Err(failed("its worker died")),
    };
    control.order(Order::Go, filter, &[]);
    loop {
        match control.event().await {
            Some((Event::Ready, _)) => return Ok(planned),
            Some((Event::Started, _)) => {}
            Some((Event::Ended(outcome), _)) => return Err(reason(Some(&outcome), pool)),
            None => return Err(reason(None, pool)),
        }
    }
}

/// Why something that was made ahead ended, in the words of a report.
pub fn reason(outcome: Option<&Outcome>, pool: &PoolConfig) -> Stop {
    failed(why(outcome, pool))
}

/// The same as one clause.
pub fn why(outcome: Option<&Outcome>, pool: &PoolConfig) -> String {
    let mut report = blank(&pool.request());
    settle(&mut report, outcome, None, "python3");
    match report.error {
        Some(error) => error.message,
        None => format!("the waiting Python ended with exit code {}", report.exit_code.unwrap_or(-1)),
    }
}

fn failed(why: impl std::fmt::Display) -> Stop {
    Stop::host(CODE, format!("no sandbox could be made ahead: {why}"))
}
