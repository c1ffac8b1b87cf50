//! Pulling an image from a registry into the store.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::rc::Rc;

use super::oci::{Reference, Target};
use super::registry::{self, Access, Blob, Client, FetchError, Progress, RegistryError, Shelf};
use super::store::partial::Partial;
use super::store::{Expected, Installed, Observer, Quiet, Store, StoreError, check_name};

/// What is pulled, how, and as what.
pub struct Options<'a> {
    pub access: Access,
    /// The local name; `None`: the reference as it is.
    pub name: Option<Reference>,
    /// Is told of the downloads.
    pub progress: &'a dyn Progress,
    /// Is told of the unpacking.
    pub observer: Rc<dyn Observer>,
}

impl Default for Options<'_> {
    /// Anonymous, silent, the name as it is.
    fn default() -> Self {
        Options {
            access: Access::default(),
            name: None,
            progress: &registry::Silent,
            observer: Rc::new(Quiet),
        }
    }
}

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PullError {
    /// The code, `image.reason`; `host.reason` where the host is at fault.
    pub fn code(&self) -> &'static str {
        match self {
            PullError::Registry(e) => e.code(),
            PullError::Store(e) => e.code(),
        }
    }

    /// True when the host is at fault (exit code 125), false when the caller, the registry or the image is (126).
    pub fn is_host_fault(&self) -> bool {
        match self {
            PullError::Registry(e) => e.code().starts_with("host."),
            PullError::Store(e) => e.is_host_fault(),
        }
    }
}

impl From<FetchError<StoreError>> for PullError {
    fn from(error: FetchError<StoreError>) -> PullError {
        match error {
            FetchError::Registry(e) => PullError::Registry(e),
            FetchError::Store(e) => PullError::Store(e),
        }
    }
}

/// Pulls `reference` for this machine: what the store has is not downloaded again, what came of a download that broke off is gone
/// on from. The image gets its name when all of it is there.
///
/// # Errors
/// [`PullError`]. The store is as it was then, but for `partial/`, which the next pull takes up and `gc` frees.
pub fn pull(store: &Store, reference: &Reference, options: &Options<'_>) -> Result<Installed, PullError> {
    let name = options.name.as_ref().unwrap_or(reference);
    check_name(name)?;
    let client = Client::new(reference, &options.access)?;
    let image = registry::find(&client, reference, &Target::here())?;
    let shelf = Blobs::open(store)?;
    let mut work = store.begin_staged()?;
    work.observe(Rc::clone(&options.observer));
    // Downloads stay in `partial/` until all are there: of a pull that fails, nothing else is left in the store.
    let mut whole: Vec<(Blob, Partial)> = Vec::new();
    let mut put = |blob: &Blob, partial: Partial| {
        whole.push((*blob, partial));
        Ok(())
    };
    registry::fetch(&client, &image, &shelf, &mut put, options.progress)?;
    for (blob, partial) in &whole {
        partial.offer(&work, &blob.digest)?;
    }
    let manifest = Expected {
        digest: Some(image.digest),
        size: Some(image.bytes.len() as u64),
        what: format!("manifest {}", image.digest),
    };
    work.put_blob(manifest, &mut image.bytes.as_slice())?;
    let installed = work.commit(&image.digest, std::slice::from_ref(name))?;
    whole.into_iter().for_each(|(_, partial)| partial.remove());
    Ok(installed)
}

/// The blobs of a store.
struct Blobs<'a> {
    store: &'a Store,
    images: File,
}

impl Blobs<'_> {
    fn open(store: &Store) -> Result<Blobs<'_>, RegistryError> {
        let io =
            |source: io::Error| RegistryError::Io { what: format!("can't open {:?}", store.path()), source };
        Ok(Blobs { store, images: File::open(store.path()).map_err(io)? })
    }
}

impl Shelf for Blobs<'_> {
    type Error = StoreError;

    fn images(&self) -> BorrowedFd<'_> {
        self.images.as_fd()
    }

    fn path(&self) -> PathBuf {
        self.store.path().to_owned()
    }

    fn has(&self, blob: &Blob) -> Result<bool, StoreError> {
        // One of another size is damaged: it comes anew.
        Ok(self
            .store
            .blob(&blob.digest)?
            .and_then(|f| f.metadata().ok())
            .is_some_and(|m| m.len() == blob.size))
    }
}
