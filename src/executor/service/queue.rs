//! Who may run now, who waits, and who is told to come back later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How much the newest run says about the next ones.
const WEIGHT: f64 = 0.1;
/// What a run is thought to take before the first one has ended, in seconds.
const FIRST_GUESS: f64 = 1.0;
/// Nobody is told to come back sooner or later than this.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(120));

/// A queue with a bound in front of a number of runs at once. First come, first served.
#[derive(Debug)]
pub struct Queue {
    running: usize,
    bound: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
    /// Seconds that recent runs took.
    typical: f64,
}

/// A place in it.
#[derive(Debug)]
pub enum Place {
    Now(Permit),
    Waiting(oneshot::Receiver<Permit>),
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    /// `None` once it is given back.
    queue: Option<Arc<Queue>>,
    since: Instant,
}

impl Queue {
    /// At most `running` at once, and at most `bound` waiting.
    pub fn new(running: usize, bound: usize) -> Arc<Queue> {
        let state = State { free: running, waiting: VecDeque::new(), typical: FIRST_GUESS };
        Arc::new(Queue { running, bound, state: Mutex::new(state) })
    }

    /// A place, or, when it is full, the time after which there is likely to be one.
    pub fn enter(self: &Arc<Self>) -> Result<Place, Duration> {
        let mut state = self.state();
        // Who was cancelled waits no more.
        state.waiting.retain(|w| !w.is_closed());
        if state.free > 0 {
            state.free -= 1;
            return Ok(Place::Now(self.permit()));
        }
        if state.waiting.len() >= self.bound {
            // Everybody before it, and then one place more is free.
            let turns = (state.waiting.len() + 1) as f64 / self.running.max(1) as f64;
            let wait = Duration::try_from_secs_f64(state.typical * turns).unwrap_or(RETRY.1);
            return Err(wait.clamp(RETRY.0, RETRY.1));
        }
        let (tell, told) = oneshot::channel();
        state.waiting.push_back(tell);
        Ok(Place::Waiting(told))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.state().waiting.iter().filter(|w| !w.is_closed()).count()
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running - self.state().free
    }

    fn permit(self: &Arc<Self>) -> Permit {
        Permit { queue: Some(Arc::clone(self)), since: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics with it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for the turn.
    pub async fn turn(self) -> Option<Permit> {
        match self {
            Place::Now(permit) => Some(permit),
            // The other end is dropped only when the whole service is.
            Place::Waiting(told) => told.await.ok(),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        let mut state = queue.state();
        state.typical += (self.since.elapsed().as_secs_f64() - state.typical) * WEIGHT;
        let mut next = queue.permit();
        while let Some(waiting) = state.waiting.pop_front() {
            match waiting.send(next) {
                Ok(()) => return,
                // It was cancelled; its turn is the next one's.
                Err(back) => next = back,
            }
        }
        next.queue = None;
        state.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(place: Place) -> Permit {
        match place {
            Place::Now(permit) => permit,
            Place::Waiting(_) => panic!("had to wait"),
        }
    }

    fn waiting(place: Place) -> oneshot::Receiver<Permit> {
        match place {
            Place::Waiting(told) => told,
            Place::Now(_) => panic!("had not to wait"),
        }
    }

    #[test]
    fn first_come_first_served_and_a_cancelled_place_is_skipped() {
        let queue = Queue::new(1, 3);
        let first = now(queue.enter().unwrap());
        let mut second = waiting(queue.enter().unwrap());
        let third = waiting(queue.enter().unwrap());
        let mut fourth = waiting(queue.enter().unwrap());
        assert!(queue.enter().is_err());
        drop(third);
        assert_eq!((queue.waiting(), queue.running()), (2, 1));
        // A cancelled place is free for another.
        let mut fifth = waiting(queue.enter().unwrap());
        assert!(second.try_recv().is_err());
        drop(first);
        let permit = second.try_recv().unwrap();
        assert!(fourth.try_recv().is_err());
        drop(permit);
        drop(fourth.try_recv().unwrap());
        drop(fifth.try_recv().unwrap());
        assert_eq!((queue.waiting(), queue.running()), (0, 0));
        now(queue.enter().unwrap());
    }

    #[test]
    fn a_turn_that_nobody_takes_goes_on() {
        let queue = Queue::new(1, 2);
        let first = now(queue.enter().unwrap());
        let second = waiting(queue.enter().unwrap());
        let mut third = waiting(queue.enter().unwrap());
        drop(first);
        // The turn has come, and is dropped with its place.
        drop(second);
        drop(third.try_recv().unwrap());
        assert_eq!(queue.running(), 0);
    }

    #[test]
    fn the_longer_the_queue_the_later_one_comes_back() {
        let wait = |bound: usize| {
            let queue = Queue::new(2, bound);
            let held: Vec<Place> = (0..bound + 2).map(|_| queue.enter().unwrap()).collect();
            let wait = queue.enter().unwrap_err();
            drop(held);
            wait
        };
        assert_eq!(wait(0), Duration::from_millis(500));
        assert_eq!(wait(9), Duration::from_secs(5));
        assert_eq!(wait(10_000), RETRY.1);
    }
}
