//! One blob, however often the connection breaks.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::client::{BlobStream, Client};
use super::document::Blob;
use super::error::RegistryError;
use super::http::{broke_off, seconds};
use super::limits::GETS_ON;
use crate::image::oci::Hasher;
use crate::image::store::partial::Partial;

/// Who is told how downloads get on. Called by several threads.
pub trait Progress: Sync {
    /// All that is to come, in bytes, before the first of it.
    fn begin(&self, bytes: u64, blobs: usize);
    /// Bytes of a blob that are there; those kept from an earlier time count too.
    fn received(&self, bytes: u64);
    /// Bytes that turned out to be of no use.
    fn discarded(&self, bytes: u64);
    /// All is there.
    fn end(&self);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: u64, _: usize) {}
    fn received(&self, _: u64) {}
    fn discarded(&self, _: u64) {}
    fn end(&self) {}
}

/// Why a stream ended before the blob did.
enum Ended {
    /// Another try may go on.
    Broke(String),
    Final(RegistryError),
}

impl From<RegistryError> for Ended {
    fn from(error: RegistryError) -> Ended {
        match error {
            RegistryError::Unreachable { reason, .. } => Ended::Broke(reason),
            other => Ended::Final(other),
        }
    }
}

/// Brings `blob` into `partial`: afterwards the file is the blob, size and digest checked.
///
/// # Errors
/// [`RegistryError::Interrupted`] when the connection broke too often without getting on: what came is kept. With a wrong digest or size nothing is.
/// [`RegistryError::Stopped`] once `stop` is set.
pub fn download(
    client: &Client,
    blob: &Blob,
    partial: &mut Partial,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(), RegistryError> {
    let mut run = Run { client, blob, partial, progress, stop, hasher: Hasher::default(), fresh: true };
    run.take_up()?;
    // The furthest that this download ever came, and tries since it last got on.
    let mut furthest = run.partial.len();
    let mut tries = 0;
    loop {
        if run.partial.len() == blob.size && run.verify()? {
            return Ok(());
        }
        let ended = match run.attempt() {
            Ok(()) => continue,
            Err(ended) => ended,
        };
        let reason = match ended {
            Ended::Broke(reason) => reason,
            Ended::Final(error) => return Err(error),
        };
        if run.partial.len() >= furthest + GETS_ON {
            furthest = run.partial.len();
            tries = 0;
        }
        if tries == client.limits().retries {
            let kept = run.partial.len();
            let (at, digest, size) = (client.at(), blob.digest, blob.size);
            return Err(RegistryError::Interrupted { at, digest, kept, size, reason });
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RegistryError::Stopped);
        }
        thread::sleep(client.limits().pause(tries));
        tries += 1;
    }
}

struct Run<'a> {
    client: &'a Client,
    blob: &'a Blob,
    partial: &'a mut Partial,
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
    /// Over what is in the file.
    hasher: Hasher,
    /// All in the file came in this download.
    fresh: bool,
}

impl Run<'_> {
    /// Takes up what an earlier download kept.
    fn take_up(&mut self) -> Result<(), RegistryError> {
        if self.partial.len() > self.blob.size {
            self.partial.restart().map_err(io_error)?;
        }
        if !self.partial.is_empty() {
            self.hasher = self.partial.hash().map_err(io_error)?;
            self.fresh = false;
            self.progress.received(self.partial.len());
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), RegistryError> {
        self.progress.discarded(self.partial.len());
        self.hasher = Hasher::default();
        self.fresh = true;
        self.partial.restart().map_err(io_error)
    }

    /// False: what an earlier time had kept was not of this blob, once more from the beginning.
    fn verify(&mut self) -> Result<bool, RegistryError> {
        let found = self.hasher.clone().finish();
        if found == self.blob.digest {
            return Ok(true);
        }
        let fresh = self.fresh;
        self.restart()?;
        if fresh {
            let what = format!("the blob {}", self.blob.digest);
            return Err(RegistryError::WrongDigest { at: self.client.at(), what, found });
        }
        Ok(false)
    }

    /// One request: `Ok` when all bytes are there.
    fn attempt(&mut self) -> Result<(), Ended> {
        let BlobStream { from, mut reader } =
            self.client.blob(&self.blob.digest, self.blob.size, self.partial.len())?;
        if from != self.partial.len() {
            self.restart()?;
        }
        let limits = self.client.limits();
        let mut buf = vec![0; 128 << 10];
        let mut window = (Instant::now(), 0);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Ended::Final(RegistryError::Stopped));
            }
            let n = match reader.read(&mut buf) {
                Ok(0) if self.partial.len() == self.blob.size => return Ok(()),
                Ok(0) => {
                    return Err(Ended::Broke(format!(
                        "the answer ended after {} of {} bytes",
                        self.partial.len(),
                        self.blob.size
                    )));
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Ended::Broke(broke_off(&e, limits))),
            };
            if self.partial.len() + n as u64 > self.blob.size {
                // Whatever this is, it is not the blob.
                self.restart()?;
                let what = format!("the blob {}", self.blob.digest);
                let (at, max) = (self.client.at(), self.blob.size);
                return Err(Ended::Final(RegistryError::TooLarge { at, what, max }));
            }
            self.hasher.update(&buf[..n]);
            self.partial.append(&buf[..n]).map_err(io_error)?;
            self.progress.received(n as u64);
            window.1 += n as u64;
            if window.0.elapsed() >= limits.pace {
                if window.1 < limits.slowest && self.partial.len() < self.blob.size {
                    return Err(Ended::Broke(format!(
                        "too slow: {} bytes came in {}",
                        window.1,
                        seconds(limits.pace)
                    )));
                }
                window = (Instant::now(), 0);
            }
        }
    }
}

fn io_error(source: io::Error) -> RegistryError {
    RegistryError::Io { what: "can't write the download".into(), source }
}
