//! The payload's standard streams, as the caller's side sees them.
//!
//! Output is kept for the report up to [`KEPT`] bytes; the rest is counted and, unless it passes through, thrown away, so that a payload
//! never blocks on a full pipe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Bytes of each output stream that the report keeps.
pub const KEPT: usize = 256 << 10;
/// What one read takes.
pub const CHUNK: usize = 64 << 10;
/// What can be written to a pipe without blocking, once poll(2) says that it can be written to (PIPE_BUF, pipe(7)).
const ATOMIC: usize = 4096;

/// An output stream.
#[derive(Debug)]
pub struct Output {
    pipe: Option<OwnedFd>,
    /// Where it passes through to: our own stdout or stderr.
    sink: Option<Sink>,
    pending: Vec<u8>,
    kept: Kept,
    /// Why our own end does not take the output any more, unless its reader just left.
    pub lost: Option<io::Error>,
}

#[derive(Debug)]
struct Sink {
    fd: BorrowedFd<'static>,
    at_once: usize,
}

impl Output {
    /// The reader and the payload's end.
    pub fn new(sink: Option<BorrowedFd<'static>>) -> io::Result<(Output, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&read, OFlags::NONBLOCK)?;
        let sink = sink.map(|fd| {
            let file = rustix::fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_file());
            Sink { fd, at_once: if file { CHUNK } else { ATOMIC } }
        });
        Ok((Output { pipe: Some(read), sink, pending: Vec::new(), kept: Kept::default(), lost: None }, write))
    }

    /// Keeps the end of a long output instead of its beginning.
    pub fn keep_tail(&mut self) {
        self.kept.tail = true;
    }

    /// What the loop must wait for: readable input, or a sink that takes more. `None` when the stream is over.
    pub fn wants(&self) -> Option<(BorrowedFd<'_>, rustix::event::PollFlags)> {
        use rustix::event::PollFlags;
        match &self.sink {
            Some(sink) if !self.pending.is_empty() => Some((sink.fd, PollFlags::OUT)),
            _ => self.pipe.as_ref().map(|p| (p.as_fd(), PollFlags::IN)),
        }
    }

    /// Takes one step: passes pending bytes on, or reads. Call it when what it [`wants`](Self::wants) is there.
    pub fn step(&mut self) {
        if !self.pending.is_empty() {
            self.pass_on();
            return;
        }
        let Some(pipe) = &self.pipe else { return };
        // Into memory that was never written: a stream that says nothing costs no page.
        let mut data = Vec::with_capacity(CHUNK);
        match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut data)) {
            Ok(0) => self.pipe = None,
            Ok(n) => {
                self.kept.take(&data[..n]);
                if self.sink.is_some() {
                    self.pending = data;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.pipe = None,
        }
    }

    fn pass_on(&mut self) {
        let Some(sink) = &self.sink else {
            return self.pending.clear();
        };
        let n = self.pending.len().min(sink.at_once);
        match rustix::io::write(sink.fd, &self.pending[..n]) {
            Ok(n) => drop(self.pending.drain(..n)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => {
                // Our reader is gone (`creel run … | head`): the payload sees the same on its side, as it would without a sandbox.
                if e != Errno::PIPE {
                    self.lost = Some(e.into());
                }
                self.pending.clear();
                self.sink = None;
                self.pipe = None;
            }
        }
    }

    /// Passes nothing more on; what comes is still read and counted.
    pub fn stop_passing(&mut self) {
        self.pending.clear();
        self.sink = None;
    }

    /// See [`Kept::finish`].
    pub fn finish(self) -> (String, u64, bool) {
        self.kept.finish()
    }
}

/// What the report has of an output stream.
#[derive(Debug, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    /// What is kept of much: the end, not the beginning.
    tail: bool,
    total: u64,
}

impl Kept {
    /// Counts what came, and keeps it as long as there is room.
    pub fn take(&mut self, data: &[u8]) {
        self.total += data.len() as u64;
        if self.tail {
            self.bytes.extend_from_slice(data);
            let over = self.bytes.len().saturating_sub(KEPT);
            self.bytes.drain(..over);
        } else {
            let room = KEPT - self.bytes.len();
            self.bytes.extend_from_slice(&data[..data.len().min(room)]);
        }
    }

    /// The kept text, its invalid bytes replaced and never cut inside a character; the count of all bytes; whether something is missing.
    pub fn finish(self) -> (String, u64, bool) {
        let truncated = self.total > self.bytes.len() as u64;
        let mut kept = self.bytes.as_slice();
        if truncated && self.tail {
            // The first line is cut somewhere.
            kept = kept.splitn(2, |&b| b == b'\n').nth(1).unwrap_or(kept);
        } else if truncated {
            kept = &kept[..whole_characters(kept)];
        }
        (String::from_utf8_lossy(kept).into_owned(), self.total, truncated)
    }
}

/// Length of `bytes` without a character that the cut left incomplete at its end.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    for at in (tail..bytes.len()).rev() {
        let need = match bytes[at] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return bytes.len(),
        };
        return if at + need > bytes.len() { at } else { bytes.len() };
    }
    bytes.len()
}

/// The payload's standard input, fed from a file of ours through a pipe: the sandbox never holds a descriptor of the host.
#[derive(Debug)]
pub struct Input {
    source: Option<File>,
    pipe: Option<OwnedFd>,
    pending: Vec<u8>,
}

impl Input {
    /// The feeder and the payload's end.
    pub fn new(source: File) -> io::Result<(Input, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK)?;
        Ok((Input { source: Some(source), pipe: Some(write), pending: Vec::new() }, read))
    }

    /// What the loop must wait for; `None` when nothing more is to be fed.
    pub fn wants(&self) -> Option<(BorrowedFd<'_>, rustix::event::PollFlags)> {
        use rustix::event::PollFlags;
        let pipe = self.pipe.as_ref()?;
        match &self.source {
            Some(source) if self.pending.is_empty() => Some((source.as_fd(), PollFlags::IN)),
            _ => Some((pipe.as_fd(), PollFlags::OUT)),
        }
    }

    /// Takes one step: reads from the source, or writes what was read.
    pub fn step(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        if self.pending.is_empty() {
            let mut buf = [0u8; CHUNK];
            match self.source.as_ref().map(|s| rustix::io::read(s, &mut buf)) {
                Some(Ok(n)) if n > 0 => self.pending.extend_from_slice(&buf[..n]),
                Some(Err(Errno::AGAIN | Errno::INTR)) => {}
                // The end of the source is the end of the payload's input.
                _ => self.pipe = None,
            }
            return;
        }
        match rustix::io::write(pipe, &self.pending) {
            Ok(n) => drop(self.pending.drain(..n)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The payload closed its input.
            Err(_) => self.pipe = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "a汉字😀".as_bytes();
        for cut in 0..=text.len() {
            let kept = &text[..whole_characters(&text[..cut])];
            assert!(std::str::from_utf8(kept).is_ok(), "cut at {cut}");
            assert!(cut - kept.len() < 4);
        }
        // Bytes that are no UTF-8 at all are kept for replacement.
        assert_eq!(whole_characters(&[0xff, 0x80, 0x80, 0x80]), 4);
    }

    #[test]
    fn output_beyond_the_bound_is_counted_and_not_kept() {
        let (mut out, write) = Output::new(None).unwrap();
        let writer = std::thread::spawn(move || {
            let block = vec![b'x'; 100_000];
            for _ in 0..10 {
                io::Write::write_all(&mut File::from(write.try_clone().unwrap()), &block).unwrap();
            }
        });
        while let Some((fd, flags)) = out.wants() {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, flags)];
            rustix::event::poll(&mut fds, None).unwrap();
            out.step();
        }
        writer.join().unwrap();
        let (text, total, truncated) = out.finish();
        assert_eq!((text.len(), total, truncated), (KEPT, 1_000_000, true));
    }
}
