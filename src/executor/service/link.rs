//! The daemon's end of the spawner's socket: jobs out, the names of those who are gone in.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};

use super::control::Control;
use crate::executor::job::{Attached, Job};
use crate::executor::prepare::io_error;
use crate::executor::run::Stop;
use crate::sandbox::channel;

/// The link to the spawner.
#[derive(Debug)]
pub struct Link {
    socket: AsyncFd<OwnedFd>,
    /// One packet after the other.
    sending: AsyncMutex<()>,
    state: Mutex<State>,
    gone: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Workers and launchers that are not gone yet, by run id, and who wants to know.
    living: HashMap<String, oneshot::Sender<()>>,
    /// The spawner is gone, or is let go.
    closed: bool,
}

/// Ready when a worker is gone, with all that it made, or nobody is there any more to tell.
pub type Gone = oneshot::Receiver<()>;

impl Link {
    /// Takes the socket over. Must be called in the runtime that is to serve it.
    pub fn new(socket: OwnedFd) -> io::Result<Arc<Link>> {
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        let link = Arc::new(Link {
            socket: AsyncFd::new(socket)?,
            sending: AsyncMutex::default(),
            state: Mutex::default(),
            gone: Notify::new(),
        });
        let listening = Arc::clone(&link);
        tokio::spawn(async move { listening.listen().await });
        Ok(link)
    }

    /// Has a worker started.
    ///
    /// # Errors
    /// No descriptors left, or no spawner.
    pub async fn start(&self, job: &Job, code: &[u8], attached: Attached) -> Result<(Control, Gone), Stop> {
        let (control, theirs) = Control::pair().map_err(io_error("make a control socket"))?;
        let (packet, fds) = job.pack(code, theirs, attached).map_err(io_error("write the job"))?;
        let (tell, gone) = oneshot::channel();
        {
            let mut state = self.state();
            if state.closed {
                return Err(no_spawner());
            }
            state.living.insert(job.run_id.clone(), tell);
        }
        // Who gives up before it is sent has nobody to wait for.
        let mut unsent = Unsent { link: self, run_id: Some(&job.run_id) };
        self.send(&packet, &fds).await.map_err(|_| no_spawner())?;
        unsent.run_id = None;
        Ok((control, gone))
    }

    async fn send(&self, packet: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let _turn = self.sending.lock().await;
        loop {
            let mut ready = self.socket.writable().await?;
            if let Ok(sent) = ready.try_io(|socket| channel::send(socket.as_fd(), packet, &fds)) {
                return sent;
            }
        }
    }

    async fn listen(&self) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { break };
            match ready.try_io(|socket| channel::receive(socket.as_fd(), channel::SHORT)) {
                Ok(Ok((id, _))) if !id.is_empty() => {
                    let tell = std::str::from_utf8(&id).ok().and_then(|id| self.state().living.remove(id));
                    // Most runs were not waited for so long.
                    let _ = tell.map(|tell| tell.send(()));
                    self.gone.notify_waiters();
                }
                Ok(_) => break,
                Err(_) => {}
            }
        }
        let mut state = self.state();
        state.closed = true;
        state.living.clear();
        drop(state);
        self.gone.notify_waiters();
    }

    /// Returns when every worker and launcher is gone.
    pub async fn all_gone(&self) {
        loop {
            let gone = self.gone.notified();
            tokio::pin!(gone);
            // From here on nothing is missed.
            gone.as_mut().enable();
            if self.state().living.is_empty() {
                return;
            }
            gone.await;
        }
    }

    /// Lets the spawner go.
    pub fn close(&self) {
        self.state().closed = true;
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics with it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a job out of the list that was never sent.
struct Unsent<'a> {
    link: &'a Link,
    run_id: Option<&'a str>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if let Some(run_id) = self.run_id {
            self.link.state().living.remove(run_id);
            self.link.gone.notify_waiters();
        }
    }
}

fn no_spawner() -> Stop {
    Stop::host(
        "sandbox.spawner",
        "the process that starts sandboxes is gone: what runs goes on, and nothing new starts until creel is started again",
    )
}
