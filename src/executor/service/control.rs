//! The daemon's end of a launcher's control socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::io::unix::AsyncFd;

use crate::executor::job::Answer;
use crate::sandbox::channel;
use crate::sandbox::outcome::{Event, Order};

/// Packets to and from one launcher.
#[derive(Debug)]
pub struct Control(AsyncFd<OwnedFd>);

impl Control {
    /// Both ends: ours, and the one that goes to the worker.
    pub fn pair() -> io::Result<(Control, OwnedFd)> {
        let (ours, theirs) = channel::pair()?;
        rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        Ok((Control(AsyncFd::new(ours)?), theirs))
    }

    /// The worker's first packet; `None` when it died before.
    pub async fn answer(&self) -> Option<Answer> {
        let (packet, fds) = self.receive(channel::LONG).await?;
        Answer::of(&packet, fds)
    }

    /// The launcher's next event; `None` when it is gone.
    pub async fn event(&self) -> Option<(Event, Option<OwnedFd>)> {
        let (packet, fds) = self.receive(channel::SHORT).await?;
        Some((serde_json::from_slice(&packet).ok()?, fds.into_iter().next()))
    }

    async fn receive(&self, longest: usize) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        loop {
            let mut ready = self.0.readable().await.ok()?;
            match ready.try_io(|fd| channel::receive(fd.as_fd(), longest)) {
                Ok(Ok((packet, fds))) if !packet.is_empty() => return Some((packet, fds)),
                Ok(_) => return None,
                Err(_) => {}
            }
        }
    }

    /// Returns when the launcher has something to say, or is gone; takes nothing.
    pub async fn word(&self) {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            if ready.try_io(|fd| peek(fd.as_fd())).is_ok() {
                return;
            }
        }
    }

    /// Whether that is so now.
    pub fn has_word(&self) -> bool {
        !peek(self.0.get_ref().as_fd()).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends an order. That a launcher is gone is noticed where its events are awaited; that it does not listen (its buffer holds many orders)
    /// is taken for the same.
    pub fn order(&self, order: Order, rest: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = channel::send(self.0.get_ref().as_fd(), &[&[order as u8], rest].concat(), fds);
    }

    /// Closes it for both sides, whoever else still waits on it: the launcher ends.
    pub fn close(&self) {
        let _ = shutdown(self.0.get_ref(), Shutdown::Both);
    }
}

fn peek(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(recv(fd, &mut [0u8; 1][..], RecvFlags::PEEK).map(drop)?)
}
