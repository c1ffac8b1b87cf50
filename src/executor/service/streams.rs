//! The streams of a run in a daemon. Output is read as it comes, kept for the report like that of `creel run`, and offered to who listens; a
//! listener that does not keep up misses some of it, and the program never waits for one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::executor::pump::Kept as Text;
use crate::executor::streams::{CHUNK, Input, Kept, Output};

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub stream: Stream,
    pub bytes: Vec<u8>,
    /// Bytes of this stream right before it that the listener was too slow for.
    pub missed: u64,
}

/// Chunks, at most 64 KiB each, that wait for a listener.
pub const CHUNKS: usize = 64;

/// What became of both output streams.
#[derive(Debug)]
pub struct Taken {
    pub stdout: Text,
    pub stderr: Text,
    /// Why our own standard output or error did not take what passed through.
    pub lost: Option<io::Error>,
}

/// Both output streams of a run while it lives.
#[derive(Debug)]
pub enum Reading {
    Kept { stdout: JoinHandle<Text>, stderr: JoinHandle<Text> },
    Passed { both: JoinHandle<(Output, Output)>, say: Say },
}

/// To the thread that passes output through: end as soon as nothing moves.
const HURRY: u8 = b'h';
/// And pass nothing on any more.
const STOP: u8 = b's';

impl Reading {
    /// Begins to read. Also gives the program's ends.
    pub fn start(chunks: &mpsc::Sender<Chunk>) -> io::Result<(Reading, Vec<OwnedFd>)> {
        let (stdout, out) = tap(Stream::Stdout, chunks.clone())?;
        let (stderr, err) = tap(Stream::Stderr, chunks.clone())?;
        Ok((Reading::Kept { stdout: tokio::spawn(stdout), stderr: tokio::spawn(stderr) }, vec![out, err]))
    }

    /// The same for output that also passes through to our own standard output and error, and waits for their readers: in a thread, because they
    /// may be files, which can't be waited for in any other way.
    pub fn start_passing() -> io::Result<(Reading, Vec<OwnedFd>)> {
        let (stdout, out) = Output::new(Some(rustix::stdio::stdout()))?;
        let (stderr, err) = Output::new(Some(rustix::stdio::stderr()))?;
        let (hear, say) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let both = tokio::task::spawn_blocking(move || pass(stdout, stderr, &hear));
        Ok((Reading::Passed { both, say: Say(Some(say)) }, vec![out, err]))
    }

    /// What can still be said to it, and what it has taken when both streams are over, which comes with the end of the sandbox.
    pub fn end(self) -> (Say, impl Future<Output = Taken>) {
        let (tasks, say) = match self {
            Reading::Kept { stdout, stderr } => (Ok((stdout, stderr)), None),
            Reading::Passed { both, say } => (Err(both), say.0),
        };
        let taken = async move {
            match tasks {
                Ok((stdout, stderr)) => {
                    // A task that was stopped with the runtime has no text.
                    let (stdout, stderr) =
                        (stdout.await.unwrap_or_default(), stderr.await.unwrap_or_default());
                    Taken { stdout, stderr, lost: None }
                }
                Err(both) => both.await.map_or_else(Taken::broken_off, |(mut stdout, mut stderr)| {
                    let lost = stdout.lost.take().or(stderr.lost.take());
                    Taken { stdout: stdout.finish(), stderr: stderr.finish(), lost }
                }),
            }
        };
        (Say(say), taken)
    }

    /// See [`Say::stop`].
    pub fn stop(&self) {
        if let Reading::Passed { say, .. } = self {
            say.stop();
        }
    }
}

impl Taken {
    fn broken_off(e: tokio::task::JoinError) -> Taken {
        Taken { stdout: Text::default(), stderr: Text::default(), lost: Some(io::Error::other(e)) }
    }
}

/// Words to the thread that passes output through; to nobody where none does.
#[derive(Debug)]
pub struct Say(Option<OwnedFd>);

impl Say {
    /// The sandbox was cancelled and is dead: nobody waits for a reader that is stuck.
    pub fn hurry(&self) {
        self.say(HURRY);
    }

    /// Nothing more is to be passed on: somebody who asked again does not want to wait for a reader that is stuck.
    pub fn stop(&self) {
        self.say(STOP);
    }

    fn say(&self, word: u8) {
        if let Some(fd) = &self.0 {
            // Who is through already hears nothing.
            let _ = rustix::io::write(fd, &[word]);
        }
    }
}

fn tap(
    stream: Stream,
    chunks: mpsc::Sender<Chunk>,
) -> io::Result<(impl Future<Output = Text> + use<>, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
    let pipe = AsyncFd::new(read)?;
    let read = async move {
        let (mut kept, mut missed) = (Kept::default(), 0);
        while let Ok(mut ready) = pipe.readable().await {
            let read = ready.try_io(|pipe| {
                // Into memory that was never written: a stream that says nothing costs no page.
                let mut data = Vec::with_capacity(CHUNK);
                rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut data))?;
                Ok(data)
            });
            let bytes = match read {
                Ok(Ok(bytes)) if !bytes.is_empty() => bytes,
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(_) => break,
                Err(_) => continue,
            };
            kept.take(&bytes);
            offer(&chunks, stream, bytes, &mut missed);
        }
        kept.finish()
    };
    Ok((read, write))
}

fn offer(chunks: &mpsc::Sender<Chunk>, stream: Stream, mut bytes: Vec<u8>, missed: &mut u64) {
    // A small piece does not hold the room of a large one while it waits.
    bytes.shrink_to_fit();
    match chunks.try_send(Chunk { stream, bytes, missed: *missed }) {
        Ok(()) => *missed = 0,
        Err(mpsc::error::TrySendError::Full(chunk)) => *missed += chunk.bytes.len() as u64,
        Err(mpsc::error::TrySendError::Closed(_)) => {}
    }
}

/// Passes output through until both streams are over, or, in a hurry, stand still.
fn pass(mut stdout: Output, mut stderr: Output, hear: &OwnedFd) -> (Output, Output) {
    let (mut hurry, mut hearing) = (false, true);
    loop {
        let wants = [stdout.wants(), stderr.wants()];
        if wants.iter().all(Option::is_none) {
            break;
        }
        let mut fds = Vec::with_capacity(3);
        let mut at = [None; 2];
        for (n, (fd, flags)) in wants.into_iter().enumerate().filter_map(|(n, w)| Some((n, w?))) {
            at[n] = Some(fds.len());
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        if hearing {
            fds.push(PollFd::new(hear, PollFlags::IN));
        }
        match poll(&mut fds, hurry.then_some(&Timespec::default())) {
            Ok(0) if hurry => break,
            Ok(_) => {}
            Err(_) => continue,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let said = hearing && ready.last() == Some(&true);
        drop(fds);
        if said {
            let mut word = [0; 1];
            match rustix::io::read(hear, &mut word) {
                Ok(1) if word[0] == STOP => {
                    stdout.stop_passing();
                    stderr.stop_passing();
                }
                Ok(1) => hurry = true,
                Ok(_) => hearing = false,
                Err(_) => {}
            }
        }
        for (n, stream) in [&mut stdout, &mut stderr].into_iter().enumerate() {
            if at[n].is_some_and(|i: usize| ready[i]) {
                stream.step();
            }
        }
    }
    (stdout, stderr)
}

/// Standard input of a run that lives: what feeds it, in a thread, until this is dropped.
#[derive(Debug)]
pub struct Feeding(#[expect(dead_code, reason = "closing it is what ends the feeding")] OwnedFd);

impl Feeding {
    /// Begins to feed.
    pub fn start(input: Input) -> io::Result<Feeding> {
        let (over, held) = pipe_with(PipeFlags::CLOEXEC)?;
        tokio::task::spawn_blocking(move || feed(input, &over));
        Ok(Feeding(held))
    }
}

/// The feeder of a copy of `source`, and the program's end.
pub fn input(source: &File) -> io::Result<(Input, OwnedFd)> {
    Input::new(source.try_clone()?)
}

fn feed(mut input: Input, over: &OwnedFd) {
    while let Some((fd, flags)) = input.wants() {
        let mut fds = [PollFd::new(over, PollFlags::IN), PollFd::from_borrowed_fd(fd.as_fd(), flags)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        let ready = !fds[1].revents().is_empty();
        if ready {
            input.step();
        }
    }
}
