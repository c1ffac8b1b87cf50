//! An image: its manifest found, its blobs brought.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use oci_spec::image::Descriptor;

use super::client::Client;
use super::document::{Blob, Document, ImageDocument};
use super::download::{Progress, download};
use super::error::RegistryError;
use super::limits::{MAX_DOCUMENT, MAX_DOCUMENTS, PARALLEL};
use crate::image::oci::{Digest, MAX_INDEX_DEPTH, NoPlatform, Reference, Target, choose_platform};
use crate::image::store::partial::Partial;

/// What is there already, and where downloads lie.
pub trait Shelf: Sync {
    type Error: Send;
    /// The image store's directory, in which `partial/` lies.
    fn images(&self) -> BorrowedFd<'_>;
    /// Its path, for messages.
    fn path(&self) -> PathBuf;
    /// Is this blob there already?
    ///
    /// # Errors
    /// Those of the file system.
    fn has(&self, blob: &Blob) -> Result<bool, Self::Error>;
}

/// Takes a download whose digest and size are right.
pub type Put<'a, E> = &'a mut dyn FnMut(&Blob, Partial) -> Result<(), E>;

/// Why an image was not fetched.
#[derive(Debug)]
pub enum FetchError<E> {
    Registry(RegistryError),
    /// Of the shelf, or of who takes the downloads.
    Store(E),
}

impl<E> From<RegistryError> for FetchError<E> {
    fn from(error: RegistryError) -> FetchError<E> {
        FetchError::Registry(error)
    }
}

/// The manifest of `reference` for `target`, through the indexes that lead to it.
///
/// # Errors
/// [`RegistryError`]; nothing for this machine is [`RegistryError::Platform`].
pub fn find(client: &Client, reference: &Reference, target: &Target) -> Result<ImageDocument, RegistryError> {
    let mut fetched = 0;
    match client.document(&reference.tag_or_digest(), reference.digest.as_ref())? {
        Document::Image(image) => Ok(image),
        Document::Index(entries) => match search(client, &entries, target, 1, &mut fetched)? {
            Ok(image) => Ok(image),
            Err(source) => Err(RegistryError::Platform { at: client.at(), source }),
        },
    }
}

/// The first fitting manifest in an index at `depth`, depth first.
fn search(
    client: &Client,
    entries: &[Descriptor],
    target: &Target,
    depth: usize,
    fetched: &mut usize,
) -> Result<Result<ImageDocument, NoPlatform>, RegistryError> {
    let malformed =
        |reason: String| RegistryError::Malformed { at: client.at(), what: "the index".into(), reason };
    let fitting = match choose_platform(entries, target) {
        Ok(fitting) => fitting,
        Err(none) => return Ok(Err(none)),
    };
    let mut missed = None;
    for entry in fitting {
        *fetched += 1;
        if *fetched > MAX_DOCUMENTS {
            return Err(malformed(format!("more than {MAX_DOCUMENTS} manifests lead to no image")));
        }
        let blob = Blob::of(entry.digest().as_ref(), entry.size(), MAX_DOCUMENT).map_err(malformed)?;
        match client.document("", Some(&blob.digest))? {
            Document::Image(image) => return Ok(Ok(image)),
            Document::Index(_) if depth == MAX_INDEX_DEPTH => {
                return Err(malformed(format!("indexes are nested more than {MAX_INDEX_DEPTH} deep")));
            }
            Document::Index(inner) => match search(client, &inner, target, depth + 1, fetched)? {
                Ok(image) => return Ok(Ok(image)),
                Err(none) => missed = Some(none),
            },
        }
    }
    let wanted = target.to_string();
    Ok(Err(missed.unwrap_or(NoPlatform { wanted, there: Vec::new() })))
}

/// Brings those of the image's configuration and layers that are not on the shelf, at most [`PARALLEL`] at once, and hands each to `put`.
///
/// # Errors
/// The first that happened; the other download ends then, and keeps what it has.
pub fn fetch<S: Shelf>(
    client: &Client,
    image: &ImageDocument,
    shelf: &S,
    put: Put<'_, S::Error>,
    progress: &dyn Progress,
) -> Result<(), FetchError<S::Error>> {
    let missing = missing(image, shelf).map_err(FetchError::Store)?;
    check_room(&missing, shelf)?;
    progress.begin(missing.iter().map(|b| b.size).sum(), missing.len());

    let stop = AtomicBool::new(false);
    let next = AtomicUsize::new(0);
    // The capacity lets a finished download wait in its file while another is taken.
    let (send, receive) = mpsc::sync_channel::<Result<(Blob, Partial), FetchError<S::Error>>>(PARALLEL);
    let result = thread::scope(|scope| {
        for _ in 0..PARALLEL.min(missing.len()) {
            let (send, stop, next, missing) = (send.clone(), &stop, &next, &missing);
            scope.spawn(move || {
                while let Some(blob) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = match one(client, shelf, blob, progress, stop) {
                        Ok(None) => continue,
                        Ok(Some(partial)) => Ok((*blob, partial)),
                        Err(e) => Err(e),
                    };
                    let failed = done.is_err();
                    if send.send(done).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut first = Ok(());
        // To the end, so that no thread waits for us.
        for done in &receive {
            if first.is_ok() {
                first = done.and_then(|(blob, partial)| put(&blob, partial).map_err(FetchError::Store));
                stop.store(first.is_err(), Ordering::Relaxed);
            }
        }
        first
    });
    progress.end();
    result
}

/// `None`: another process that we waited for has brought it.
fn one<S: Shelf>(
    client: &Client,
    shelf: &S,
    blob: &Blob,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<Partial>, FetchError<S::Error>> {
    let mut partial = Partial::open(shelf.images(), &blob.digest).map_err(|source| RegistryError::Io {
        what: format!("can't use the file of the download {}", blob.digest),
        source,
    })?;
    if partial.is_empty() && shelf.has(blob).map_err(FetchError::Store)? {
        progress.received(blob.size);
        return Ok(None);
    }
    download(client, blob, &mut partial, progress, stop)?;
    Ok(Some(partial))
}

/// Configuration first: it is small, and an image of the wrong kind is found out early. Each blob once.
fn missing<S: Shelf>(image: &ImageDocument, shelf: &S) -> Result<Vec<Blob>, S::Error> {
    let mut seen: HashSet<Digest> = HashSet::new();
    let mut missing = Vec::new();
    for blob in [&image.config].into_iter().chain(&image.layers) {
        if seen.insert(blob.digest) && !shelf.has(blob)? {
            missing.push(*blob);
        }
    }
    Ok(missing)
}

/// Is there room for what is to come? (What the layers hold unpacked nobody knows yet.)
fn check_room<S: Shelf>(missing: &[Blob], shelf: &S) -> Result<(), RegistryError> {
    let to_come = |b: &Blob| b.size.saturating_sub(Partial::kept(shelf.images(), &b.digest));
    let needed = missing.iter().map(to_come).fold(0, u64::saturating_add);
    let stat = rustix::fs::fstatvfs(shelf.images())
        .map_err(|e| RegistryError::Io { what: "can't ask for the free space".into(), source: e.into() })?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needed > free {
        return Err(RegistryError::NoRoom { path: shelf.path(), needed, free });
    }
    Ok(())
}
