//! Decompressing in one thread, unpacking in another, hashing in a third, with a few buffers that go round between them.
//!
//! Hashing is what takes longest of a layer that is not compressed; alone in its thread it keeps up with the two others.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::Limits;
use super::decompress::{StreamError, decompress};
use super::error::UnpackError;
use crate::image::oci::{Digest, Hasher};

/// The size of a buffer: it stays in a CPU's cache while it is decompressed, hashed and written.
const CHUNK: usize = 256 << 10;
/// So many buffers: the one thread can be ahead of the other by that.
const CHUNKS: usize = 8;

/// What came of a stream.
pub(super) struct Fed<T> {
    pub result: T,
    pub diff_id: Digest,
    pub bytes: u64,
}

/// Decompresses `stream` and hands it to `work`, which runs in another thread and reads it to its end unless it fails.
///
/// A fault of the stream reaches `work` behind the last good byte, so that it can say where it was.
pub(super) fn run<T: Send>(
    stream: impl Read,
    limits: &Limits,
    work: impl FnOnce(&mut Chunks) -> Result<T, UnpackError> + Send,
) -> Result<Fed<T>, UnpackError> {
    let (full, chunks) = sync_channel(CHUNKS);
    let (done, unpacked) = sync_channel::<Vec<u8>>(CHUNKS);
    let (back, empty) = sync_channel(CHUNKS);
    let mut chunks = Chunks { full: chunks, done, current: Vec::new(), at: 0, ended: false };
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("creel-unpack".into())
            .spawn_scoped(scope, move || {
                let result = work(&mut chunks);
                // Now, not when the thread is joined: this ends the feeding.
                drop(chunks);
                result
            })
            .map_err(|source| UnpackError::Thread { source })?;
        let hash = thread::Builder::new()
            .name("creel-hash".into())
            .spawn_scoped(scope, move || {
                let mut hasher = Hasher::default();
                for chunk in unpacked {
                    hasher.update(&chunk);
                    // There is room for all; and if the feeder has ended it needs none.
                    let _ = back.try_send(chunk);
                }
                hasher
            })
            .map_err(|source| UnpackError::Thread { source })?;
        let bytes = feed(stream, limits, full, &empty);
        let hasher = hash.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match worker.join() {
            Ok(result) => result.map(|result| Fed { result, diff_id: hasher.finish(), bytes }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Until the stream ends or fails, or nobody takes more.
fn feed(
    stream: impl Read,
    limits: &Limits,
    full: SyncSender<io::Result<Vec<u8>>>,
    empty: &Receiver<Vec<u8>>,
) -> u64 {
    let mut bytes = 0;
    let mut stream = match decompress(stream) {
        Ok(stream) => stream.with_ratio(limits.ratio),
        Err(e) => {
            // Nobody there to take it has failed already.
            let _ = full.send(Err(e));
            return bytes;
        }
    };
    let mut made = 0;
    loop {
        let mut chunk = if made < CHUNKS {
            made += 1;
            vec![0; CHUNK]
        } else {
            let Ok(mut chunk) = empty.recv() else { break };
            chunk.resize(CHUNK, 0);
            chunk
        };
        let (n, error) = fill(&mut stream, &mut chunk);
        chunk.truncate(n);
        bytes += n as u64;
        let error = match error {
            None if bytes > limits.bytes => Some(StreamError::Bytes { bytes: limits.bytes }.into()),
            error => error,
        };
        if (n > 0 && full.send(Ok(chunk)).is_err()) || (n == 0 && error.is_none()) {
            break;
        }
        if let Some(error) = error {
            let _ = full.send(Err(error));
            break;
        }
    }
    bytes
}

/// Fills the buffer as far as the stream goes; how far that is, and what stopped it.
fn fill(stream: &mut impl Read, buf: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buf.len() {
        match stream.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (filled, Some(e)),
        }
    }
    (filled, None)
}

/// The stream as the unpacking thread sees it.
pub(super) struct Chunks {
    full: Receiver<io::Result<Vec<u8>>>,
    /// To be hashed, in order.
    done: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    ended: bool,
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.current.len() && !self.ended {
            let used = std::mem::take(&mut self.current);
            self.at = 0;
            if used.capacity() > 0 {
                // Nothing may be missing from the digest. The hashing thread ends only after this one.
                let _ = self.done.send(used);
            }
            match self.full.recv() {
                Ok(Ok(chunk)) => self.current = chunk,
                Ok(Err(e)) => {
                    self.ended = true;
                    return Err(e);
                }
                Err(_) => self.ended = true,
            }
        }
        Ok(&self.current[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_arrives_and_is_hashed() {
        let data: Vec<u8> = (0..(CHUNK * CHUNKS * 3 + 17) as u32).map(|n| n as u8).collect();
        let fed = run(&data[..], &Limits::default(), |chunks| {
            let mut got = Vec::new();
            chunks.read_to_end(&mut got).unwrap();
            Ok(got)
        })
        .unwrap();
        assert!(fed.result == data);
        assert_eq!((fed.diff_id, fed.bytes), (Digest::of(&data), data.len() as u64));
    }

    #[test]
    fn who_stops_early_stops_the_feeding() {
        // Without an end: this test ends only if the feeding does.
        let result = run(io::repeat(7), &Limits { bytes: u64::MAX, ..Limits::default() }, |chunks| {
            chunks.consume(0);
            assert!(!chunks.fill_buf().unwrap().is_empty());
            Err::<(), _>(UnpackError::NotEmpty)
        });
        assert!(matches!(result, Err(UnpackError::NotEmpty)));
    }

    #[test]
    fn an_error_comes_behind_the_last_good_byte() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("wire cut"))
            }
        }
        let fed = run((&b"0123456789"[..]).chain(Failing), &Limits::default(), |chunks| {
            let mut got = Vec::new();
            let error = chunks.read_to_end(&mut got).unwrap_err();
            Ok((got, error.to_string()))
        })
        .unwrap();
        assert_eq!(fed.result, (b"0123456789".to_vec(), "wire cut".to_owned()));
    }
}
