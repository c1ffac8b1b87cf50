//! Adding to the store.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::FlockOperation;

use super::unfinished::Unfinished;
use super::{Observer, Quiet, Store, StoreError, lock, make_dirs, random_name};
use crate::image::oci::{Digest, Hasher};
use crate::image::unpack::Limits;
use crate::sandbox::tree::remove_tree;

/// What is known of a blob before it is read.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    pub digest: Option<Digest>,
    pub size: Option<u64>,
    /// What it is, for messages: `blob sha256:…`, `layer 3 of 5`.
    pub what: String,
}

/// A blob that is in the store, or will be with the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blob {
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// One piece of work that adds to the store. As long as it lives nothing is removed; what it did not commit goes with it.
#[derive(Debug)]
pub struct Work<'s> {
    pub(super) store: &'s Store,
    /// `tmp/<random>`.
    pub(super) dir: PathBuf,
    pub(super) observer: Rc<dyn Observer>,
    /// Blobs wait in `dir` for the commit.
    staged: bool,
    /// How many times larger a layer may be than its compressed bytes.
    pub(super) ratio: u64,
    buffer: RefCell<Vec<u8>>,
    _unfinished: Unfinished,
    _lock: File,
}

impl Store {
    /// Begins a piece of work. Its blobs are in the store as soon as they are complete, so that a pull that broke off goes on
    /// where it was; those that no image came to need are freed by `gc`.
    ///
    /// Waits while another creel removes something.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn begin(&self) -> Result<Work<'_>, StoreError> {
        self.begin_with(false)
    }

    /// The same for work of which nothing at all shall stay unless it is committed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn begin_staged(&self) -> Result<Work<'_>, StoreError> {
        self.begin_with(true)
    }

    fn begin_with(&self, staged: bool) -> Result<Work<'_>, StoreError> {
        let path = self.path.join("lock");
        let fail = |e| StoreError::io("lock", &path, e);
        let lock = lock::file(&path).map_err(fail)?;
        // Nobody else is at work: what lies in tmp/ is a dead process's.
        if lock::attempt(&lock, FlockOperation::NonBlockingLockExclusive).map_err(fail)? {
            self.sweep_tmp()?;
        }
        lock::wait(&lock, FlockOperation::LockShared).map_err(fail)?;
        let dir = self.path.join("tmp").join(random_name()?);
        let (_unfinished, made) = Unfinished::made(&dir, || make_dirs(&dir.join("blobs")));
        made?;
        let buffer = RefCell::new(Vec::new());
        let ratio = Limits::default().ratio;
        Ok(Work {
            store: self,
            dir,
            observer: Rc::new(Quiet),
            staged,
            ratio,
            buffer,
            _unfinished,
            _lock: lock,
        })
    }

    /// Removes everything below `tmp/`; the caller holds the store's lock exclusively.
    pub(super) fn sweep_tmp(&self) -> Result<(), StoreError> {
        self.empty("tmp")
    }

    /// Removes everything in a directory of the store.
    pub(super) fn empty(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let fail = |e| StoreError::io("clear", &path, e);
        let dir = File::open(&path).map_err(fail)?;
        for entry in fs::read_dir(&path).map_err(fail)? {
            remove_tree(dir.as_fd(), &entry.map_err(fail)?.file_name()).map_err(fail)?;
        }
        Ok(())
    }
}

impl Work<'_> {
    /// A directory of this work's own, gone with it. The names `blobs`, `layer-…`, `bundle-…`, `unpacking`, `building` and `….part` in it
    /// are taken.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The layers of this work are creel's own, not a stranger's: however well they are compressed, none is taken for a decompression
    /// bomb. The other limits stay.
    pub fn trust(&mut self) {
        self.ratio = u64::MAX;
    }

    /// Tells `observer` from now on.
    pub fn observe(&mut self, observer: Rc<dyn Observer>) {
        self.observer = observer;
    }

    /// Tells the observer what is being done from now on.
    pub fn tell(&self, phase: &str) {
        self.observer.phase(phase);
    }

    /// Tells the observer of so many more bytes.
    pub fn tell_read(&self, bytes: u64) {
        self.observer.read(bytes);
    }

    /// Reads a blob to its end, hashing it on the way, and keeps it if it is what was expected. One that is there already is
    /// not read, unless it has another size than was expected: then it is damaged, and what `reader` gives, if that is good, takes its
    /// place. Reads at most one buffer more than the expected size.
    ///
    /// # Errors
    /// [`StoreError::WrongDigest`], [`StoreError::WrongSize`], [`StoreError::Source`] when `reader` fails, [`StoreError::Io`];
    /// nothing is kept then.
    pub fn put_blob(&self, expected: Expected, reader: &mut dyn Read) -> Result<Blob, StoreError> {
        if let Some(digest) = expected.digest
            && let Some(file) = self.blob(&digest)?
        {
            let size = file.metadata().map_err(|e| StoreError::io("look at", self.store.path(), e))?.len();
            if expected.size.is_none_or(|wanted| wanted == size) {
                return Ok(Blob { digest, size });
            }
        }
        let tmp = self.dir.join(format!("{}.part", random_name()?));
        let result = self.write_blob(&tmp, &expected, reader);
        if result.is_err() {
            let _ = fs::remove_file(&tmp);
        }
        result
    }

    /// Opens a blob of this work or of the store.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn blob(&self, digest: &Digest) -> Result<Option<File>, StoreError> {
        let staged = self.staged_path(digest);
        match File::open(&staged) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.store.blob(digest),
            Err(e) => Err(StoreError::io("open", &staged, e)),
        }
    }

    pub(super) fn staged_path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("blobs").join(digest.hex())
    }

    fn write_blob(&self, tmp: &Path, expected: &Expected, reader: &mut dyn Read) -> Result<Blob, StoreError> {
        let fail = |e| StoreError::io("write", tmp, e);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(tmp).map_err(fail)?;
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(256 << 10, 0);
        loop {
            let n = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(StoreError::Source { what: expected.what.clone(), source }),
            };
            size += n as u64;
            if expected.size.is_some_and(|most| size > most) {
                break;
            }
            hasher.update(&buffer[..n]);
            file.write_all(&buffer[..n]).map_err(fail)?;
        }
        check_size(expected, size)?;
        let found = hasher.finish();
        if let Some(promised) = expected.digest
            && promised != found
        {
            return Err(StoreError::WrongDigest { what: expected.what.clone(), expected: promised, found });
        }
        let target = if self.staged {
            // The commit syncs.
            self.staged_path(&found)
        } else {
            file.sync_all().map_err(fail)?;
            self.store.blob_path(&found)
        };
        fs::rename(tmp, target).map_err(fail)?;
        Ok(Blob { digest: found, size })
    }
}

fn check_size(expected: &Expected, found: u64) -> Result<(), StoreError> {
    match expected.size {
        Some(size) if size != found => {
            Err(StoreError::WrongSize { what: expected.what.clone(), expected: size, found })
        }
        _ => Ok(()),
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        // What can't be removed now is removed by the next work that is alone.
        if let (Some(parent), Some(name)) = (self.dir.parent(), self.dir.file_name())
            && let Ok(parent) = File::open(parent)
        {
            let _ = remove_tree(parent.as_fd(), OsStr::new(name));
        }
    }
}
