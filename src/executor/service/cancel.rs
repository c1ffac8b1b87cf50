//! Cancelling a run: from who asks to who carries it out.

use tokio::sync::watch;

/// The side that asks.
#[derive(Debug, Clone)]
pub struct Canceller(watch::Sender<Asked>);

/// The side of the run.
#[derive(Debug)]
pub struct Cancel {
    asked: watch::Receiver<Asked>,
    /// Keeps the channel open when nobody can ask any more.
    _open: watch::Sender<Asked>,
    heard: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    times: u32,
    signal: Option<i32>,
}

/// Both sides.
pub fn pair() -> (Canceller, Cancel) {
    let (tell, asked) = watch::channel(Asked::default());
    (Canceller(tell.clone()), Cancel { asked, _open: tell, heard: 0 })
}

impl Canceller {
    /// Asks, or asks again. `signal`: on whose account, for the report.
    pub fn ask(&self, signal: Option<i32>) {
        self.0.send_modify(|asked| *asked = Asked { times: asked.times + 1, signal });
    }
}

impl Cancel {
    /// Waits until it is asked for (again), and says on account of which signal.
    pub async fn next(&mut self) -> Option<i32> {
        loop {
            let asked = *self.asked.borrow_and_update();
            if asked.times > self.heard {
                self.heard = asked.times;
                return asked.signal;
            }
            // The sender is held here.
            let _ = self.asked.changed().await;
        }
    }

    /// Whether it was asked for, heard or not; and the signal.
    pub fn now(&self) -> Option<Option<i32>> {
        let asked = *self.asked.borrow();
        (asked.times > 0).then_some(asked.signal)
    }

    /// The signal on whose account it was asked for.
    pub fn signal(&self) -> Option<i32> {
        self.asked.borrow().signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn every_asking_is_heard_even_one_that_came_before() {
        let (ask, mut cancel) = pair();
        assert_eq!(cancel.now(), None);
        ask.ask(Some(2));
        assert_eq!(cancel.now(), Some(Some(2)));
        assert_eq!(cancel.next().await, Some(2));
        let second = tokio::spawn(async move { cancel.next().await });
        ask.ask(None);
        assert_eq!(second.await.unwrap(), None);
    }
}
