//! The slots of one kind that wait, and the task that sees to it that there are enough.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::Shared;
use super::config::PoolConfig;
use super::key::Stamp;
use super::slot::{Slot, Zygote, reason};
use crate::executor::run::Stop;
use crate::sandbox::outcome::Event;

/// After a failure it waits so long, then twice as long, and so on to the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a refill lets runs go first before it looks again.
const YIELD: Duration = Duration::from_millis(20);
/// Forks that fail one after the other before the zygote is blamed.
const BLAME: u32 = 2;
/// A tenant's shelf is given up when nothing was taken from it for so many lifetimes of a slot.
const IDLE_LIVES: u32 = 2;

/// The slots of one pool, for one tenant where the pool is for each.
#[derive(Debug)]
pub struct Shelf {
    pub config: Arc<PoolConfig>,
    pub tenant: Option<String>,
    state: Mutex<State>,
    wake: Notify,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Slot>,
    starting: usize,
    zygote: Option<Arc<Zygote>>,
    zygote_starting: bool,
    counts: Counts,
    last_error: Option<Stop>,
    /// Failures since the last success.
    failures: u32,
    paused_until: Option<Instant>,
    last_used: Instant,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs that got a slot.
    pub hits: u64,
    /// Runs that would have fitted and found none.
    pub misses: u64,
    /// Slots whose launcher ended, or that could not take their delivery.
    pub died: u64,
    /// Slots that were too old, or whose image had changed.
    pub expired: u64,
}

/// A shelf as metrics show it.
#[derive(Debug, Clone)]
pub struct Status {
    pub ready: usize,
    pub starting: usize,
    pub counts: Counts,
    /// Whether a zygote waits, its forks so far and its age; `None` when there is none (any more, or yet).
    pub zygote: Option<(u64, Duration)>,
    /// Of the last that could not be made, or of the last zygote that ended; none once one could be made.
    pub last_error: Option<Stop>,
}

enum Made {
    Slot(Result<Box<Slot>, Stop>),
    Zygote(Result<Zygote, Stop>),
}

impl Shelf {
    pub fn new(config: Arc<PoolConfig>, tenant: Option<String>) -> Arc<Shelf> {
        let state = State {
            ready: VecDeque::new(),
            starting: 0,
            zygote: None,
            zygote_starting: false,
            counts: Counts::default(),
            last_error: None,
            failures: 0,
            paused_until: None,
            last_used: Instant::now(),
        };
        let (changes, _) = watch::channel(0);
        Arc::new(Shelf { config, tenant, state: Mutex::new(state), wake: Notify::new(), changes })
    }

    /// The slot that has waited longest, if there is one that is still good; else the next one that is made within the pool's patience.
    pub async fn take(&self, shared: &Shared) -> Option<Slot> {
        let until = Instant::now() + self.config.patience;
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(slot) = self.pop() {
                return Some(slot);
            }
            let in_time = !self.config.patience.is_zero()
                && self.is_making(shared)
                && tokio::time::timeout_at(until.into(), changes.changed()).await.is_ok();
            if !in_time {
                self.state().counts.misses += 1;
                self.changed();
                return None;
            }
        }
    }

    /// Whether another slot is to be expected before long.
    fn is_making(&self, shared: &Shared) -> bool {
        let state = self.state();
        let can = !self.config.zygote || state.zygote.is_some();
        can && state.failures == 0 && self.config.size > 0 && shared.refilling.load(Ordering::Relaxed)
    }

    fn pop(&self) -> Option<Slot> {
        let stamp = Stamp::of(&self.config.image);
        let mut state = self.state();
        state.last_used = Instant::now();
        let mut taken = None;
        while let Some(slot) = state.ready.pop_front() {
            if slot.control.has_word() {
                state.counts.died += 1;
            } else if self.is_stale(slot.born, &slot.stamp, &stamp) {
                state.counts.expired += 1;
            } else {
                taken = Some(slot);
                break;
            }
        }
        state.counts.hits += u64::from(taken.is_some());
        drop(state);
        self.changed();
        taken
    }

    /// A slot that was taken could not take its delivery.
    pub fn delivery_failed(&self) {
        self.state().counts.died += 1;
        self.changed();
    }

    pub fn status(&self) -> Status {
        let state = self.state();
        Status {
            ready: state.ready.len(),
            starting: state.starting,
            counts: state.counts,
            zygote: state.zygote.as_ref().map(|z| (z.forks.load(Ordering::Relaxed), z.born.elapsed())),
            last_error: state.last_error.clone(),
        }
    }

    /// Returns when a slot waits.
    ///
    /// # Errors
    /// One could not be made.
    pub async fn filled(&self) -> Result<(), Stop> {
        let mut changes = self.changes.subscribe();
        loop {
            let Status { ready, last_error, .. } = self.status();
            if ready > 0 {
                return Ok(());
            }
            if let Some(error) = last_error {
                return Err(error);
            }
            // The sender lives as long as this shelf.
            let _ = changes.changed().await;
        }
    }

    /// Keeps the shelf filled until the service closes, or, for a tenant that has gone, until nobody comes any more.
    pub async fn keep(self: Arc<Shelf>, shared: Arc<Shared>) {
        let mut closing = shared.closing.subscribe();
        let mut making = JoinSet::new();
        while !*closing.borrow_and_update() && !self.is_given_up() {
            self.throw_out();
            self.make_more(&shared, &mut making);
            self.heat(&shared);
            let wake = self.next_look(&shared);
            tokio::select! {
                Some(made) = making.join_next() => {
                    // A task that was stopped or panicked made nothing; it is made again.
                    if let Ok(made) = made {
                        self.put(made);
                    }
                }
                () = self.wake.notified() => {}
                _ = closing.changed() => {}
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
        making.shutdown().await;
        let (slots, zygote) = {
            let mut state = self.state();
            (std::mem::take(&mut state.ready), state.zygote.take())
        };
        drop((slots, zygote));
    }

    /// Takes out what is too old.
    fn throw_out(&self) {
        let stamp = Stamp::of(&self.config.image);
        let mut state = self.state();
        let before = state.ready.len();
        state.ready.retain(|slot| !self.is_stale(slot.born, &slot.stamp, &stamp));
        state.counts.expired += (before - state.ready.len()) as u64;
        // Its forks keep it until they are through.
        state.zygote.take_if(|z| {
            z.forks.load(Ordering::Relaxed) >= self.config.zygote_forks
                || z.born.elapsed() >= self.config.zygote_age
                || z.stamp != stamp
        });
    }

    fn is_stale(&self, born: Instant, made_of: &Stamp, now: &Stamp) -> bool {
        born.elapsed() >= self.config.max_age || made_of != now
    }

    fn make_more(self: &Arc<Shelf>, shared: &Arc<Shared>, making: &mut JoinSet<Made>) {
        let mut state = self.state();
        let paused = state.paused_until.is_some_and(|until| Instant::now() < until);
        if paused || !shared.refilling.load(Ordering::Relaxed) {
            return;
        }
        state.paused_until = None;
        if self.config.zygote && state.zygote.is_none() {
            if !state.zygote_starting {
                state.zygote_starting = true;
                let (shelf, shared) = (Arc::clone(self), Arc::clone(shared));
                making.spawn(async move {
                    let _turn = shared.refills.acquire().await;
                    Made::Zygote(Zygote::make(&shared, &shelf.config).await)
                });
            }
            return;
        }
        while state.ready.len() + state.starting < self.config.size
            && state.starting < shared.refills_at_once
            && !(self.lets_go_first(&state, shared))
        {
            let zygote = state.zygote.clone();
            if zygote.as_ref().is_some_and(|z| {
                z.forks.load(Ordering::Relaxed) + state.starting as u64 >= self.config.zygote_forks
            }) {
                break;
            }
            state.starting += 1;
            let (shelf, shared) = (Arc::clone(self), Arc::clone(shared));
            making.spawn(async move {
                // Of all pools together not more than that at once.
                let _turn = shared.refills.acquire().await;
                Made::Slot(Slot::make(&shared, &shelf.config, zygote).await.map(Box::new))
            });
        }
    }

    /// Makes the memory of those ready that are taken next, unless runs wait that take them at once.
    fn heat(&self, shared: &Shared) {
        let mut state = self.state();
        let hot = state.ready.iter().filter(|slot| slot.is_hot()).count();
        let busy = shared.queue.waiting() > 0 || (hot > 0 && shared.queue.running() > 0);
        if !busy {
            let cold = state.ready.iter_mut().filter(|slot| !slot.is_hot());
            cold.take(self.config.hot.saturating_sub(hot)).for_each(Slot::heat);
        }
    }

    /// Runs go first: those that wait as long as one of them could still get a slot, those that run as long as the shelf is half full. Making a slot
    /// takes as much of a CPU as many a run.
    fn lets_go_first(&self, state: &State, shared: &Shared) -> bool {
        let ready = state.ready.len();
        let half = ready * 2 >= self.config.size && shared.queue.running() > 0;
        ready > 0 && (half || shared.queue.waiting() > 0)
    }

    fn put(self: &Arc<Shelf>, made: Made) {
        let mut state = self.state();
        let failed = match made {
            Made::Slot(made) => {
                state.starting -= 1;
                made.map(|slot| {
                    self.watch_slot(&slot);
                    state.ready.push_back(*slot);
                })
                .err()
            }
            Made::Zygote(made) => {
                state.zygote_starting = false;
                made.map(|zygote| {
                    let zygote = Arc::new(zygote);
                    self.watch_zygote(&zygote);
                    state.zygote = Some(zygote);
                })
                .err()
            }
        };
        match failed {
            Some(error) => self.note_failure(&mut state, error),
            None if !state.ready.is_empty() => {
                state.failures = 0;
                state.last_error = None;
            }
            None => {}
        }
        drop(state);
        self.changed();
    }

    fn note_failure(&self, state: &mut State, error: Stop) {
        state.last_error = Some(error);
        let pause = PAUSE.0.saturating_mul(1 << state.failures.min(10)).min(PAUSE.1);
        state.failures += 1;
        state.paused_until = Some(Instant::now() + pause);
        if state.failures >= BLAME {
            state.zygote = None;
        }
    }

    /// Notices when a slot ends by itself.
    fn watch_slot(self: &Arc<Shelf>, slot: &Slot) {
        let (shelf, control, id) = (Arc::downgrade(self), Arc::clone(&slot.control), slot.id.clone());
        tokio::spawn(async move {
            control.word().await;
            let Some(shelf) = shelf.upgrade() else { return };
            let mut state = shelf.state();
            // One that was taken is its run's business.
            if let Some(at) = state.ready.iter().position(|s| s.id == id) {
                let dead = state.ready.remove(at);
                state.counts.died += 1;
                drop(state);
                drop(dead);
                shelf.changed();
            }
        });
    }

    /// Notices when a zygote ends by itself.
    fn watch_zygote(self: &Arc<Shelf>, zygote: &Arc<Zygote>) {
        let (shelf, control) = (Arc::downgrade(self), Arc::clone(&zygote.control));
        let weak = Arc::downgrade(zygote);
        tokio::spawn(async move {
            let outcome = loop {
                match control.event().await {
                    Some((Event::Ended(outcome), _)) => break Some(outcome),
                    Some(_) => {}
                    None => break None,
                }
            };
            let Some(shelf) = shelf.upgrade() else { return };
            let mut state = shelf.state();
            let dead = state.zygote.take_if(|z| std::ptr::eq(Arc::as_ptr(z), weak.as_ptr()));
            // One that was replaced may end.
            if dead.is_some() {
                shelf.note_failure(&mut state, reason(outcome.as_ref(), &shelf.config));
                drop(state);
                shelf.changed();
            }
        });
    }

    /// When there is something to do even if nothing happens.
    fn next_look(&self, shared: &Shared) -> Instant {
        let state = self.state();
        let far = Instant::now() + self.config.max_age.min(Duration::from_secs(3600));
        let slots = state.ready.iter().map(|s| s.born + self.config.max_age);
        let zygote = state.zygote.iter().map(|z| z.born + self.config.zygote_age);
        let yielding = self.lets_go_first(&state, shared).then(|| Instant::now() + YIELD);
        slots.chain(zygote).chain(state.paused_until).chain(yielding).min().map_or(far, |at| at.min(far))
    }

    fn is_given_up(&self) -> bool {
        self.tenant.is_some() && self.state().last_used.elapsed() >= self.config.max_age * IDLE_LIVES
    }

    fn changed(&self) {
        self.wake.notify_one();
        self.changes.send_modify(|n| *n += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics with it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
