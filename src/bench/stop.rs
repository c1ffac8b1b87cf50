//! The caller's wish to stop: Ctrl-C, SIGTERM or SIGHUP, as a descriptor that stays readable.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::sys;

/// Readable from the first signal on. Every wait of the benchmark waits for this too.
#[derive(Debug)]
pub struct Stop {
    told: OwnedFd,
    /// Kept by one that no signal reaches, so that it stays silent.
    _silent: Option<OwnedFd>,
}

impl Stop {
    /// Takes over SIGINT, SIGTERM and SIGHUP for the whole process. Programs that are started get the defaults back, as after any `execve`.
    ///
    /// # Errors
    /// No descriptor or no right to a handler.
    pub fn on_signals() -> io::Result<Stop> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        sys::signal::note_on(tell, &[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
        Ok(Stop { told, _silent: None })
    }

    /// One that is never set.
    ///
    /// # Errors
    /// No descriptor.
    pub fn never() -> io::Result<Stop> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Stop { told, _silent: Some(tell) })
    }

    /// Whether the caller wants to stop.
    pub fn is_set(&self) -> bool {
        self.rest(Duration::ZERO)
    }

    /// Readable once that is so.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }

    /// Rests, at most until the caller wants to stop; true when that is so.
    pub fn rest(&self, time: Duration) -> bool {
        !matches!(self.wait(None, Some(Instant::now() + time)), Woken::Late)
    }

    /// Waits until `fd` is readable (or closed at its other end), the caller wants to stop, or the deadline has come.
    pub fn wait(&self, fd: Option<&OwnedFd>, deadline: Option<Instant>) -> Woken {
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let left = left.and_then(|d| Timespec::try_from(d).ok());
            let ready = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
            let told = PollFd::new(&self.told, PollFlags::IN);
            let (told, other) = match fd {
                Some(fd) => {
                    let mut both = [told, PollFd::new(fd, PollFlags::IN)];
                    let n = poll(&mut both, left.as_ref());
                    if n == Err(rustix::io::Errno::INTR) {
                        continue;
                    }
                    (both[0].revents(), both[1].revents())
                }
                None => {
                    let mut one = [told];
                    if poll(&mut one, left.as_ref()) == Err(rustix::io::Errno::INTR) {
                        continue;
                    }
                    (one[0].revents(), PollFlags::empty())
                }
            };
            return match () {
                () if told.intersects(ready) => Woken::Stopped,
                () if other.intersects(ready) => Woken::Ready,
                () => Woken::Late,
            };
        }
    }
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    Ready,
    Stopped,
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_stops_one_that_is_never_set() {
        let stop = Stop::never().unwrap();
        assert!(!stop.is_set());
        assert_eq!(stop.wait(None, Some(Instant::now())), Woken::Late);
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        assert_eq!(stop.wait(Some(&read), Some(Instant::now())), Woken::Late);
        drop(write);
        assert_eq!(stop.wait(Some(&read), None), Woken::Ready);
    }
}
