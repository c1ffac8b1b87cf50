//! Downloads that can be resumed: `partial/sha256/<hex>`, what came of a blob so far.
//!
//! Nothing in such a file is trusted: it is hashed from its beginning each time a download goes on, and what is not the
//! blob in the end is thrown away. (After a power cut it may hold anything.)

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{StoreError, Work};
use crate::image::oci::{Digest, Hasher};

/// One download's file, locked: who else wants the same blob waits for this one.
#[derive(Debug)]
pub struct Partial {
    dir: OwnedFd,
    name: String,
    file: File,
    len: u64,
}

impl Partial {
    /// Opens or makes the file of `digest` below `images`, the image store's directory. Waits while another process downloads the same
    /// blob.
    ///
    /// # Errors
    /// Those of the file system; a symlink or anything else but a regular file is refused.
    pub fn open(images: BorrowedFd<'_>, digest: &Digest) -> io::Result<Partial> {
        let dir = below(below(images, "partial")?.as_fd(), digest_algorithm())?;
        let name = digest.hex();
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let fd = rustix::fs::openat(&dir, name.as_str(), flags, Mode::from_raw_mode(0o600))?;
            rustix::fs::flock(&fd, FlockOperation::LockExclusive)?;
            let stat = rustix::fs::fstat(&fd)?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
                return Err(io::Error::other(format!("partial/sha256/{name} is not a regular file")));
            }
            // Who held the lock has finished the download, and the file is a blob now, or is gone.
            let named = rustix::fs::statat(&dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            if !named.is_ok_and(|n| (n.st_dev, n.st_ino) == (stat.st_dev, stat.st_ino)) {
                continue;
            }
            // Its blob is in the store: who put it there was killed before it could take this name away. Never to be written to.
            if stat.st_nlink > 1 {
                rustix::fs::unlinkat(&dir, name.as_str(), AtFlags::empty())?;
                continue;
            }
            let file = File::from(fd);
            let len = file.metadata()?.len();
            return Ok(Partial { dir, name, file, len });
        }
    }

    /// Bytes kept of `digest`, 0 if there is no file. Takes no lock.
    pub fn kept(images: BorrowedFd<'_>, digest: &Digest) -> u64 {
        let path = format!("partial/{}/{}", digest_algorithm(), digest.hex());
        rustix::fs::statat(images, path, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Bytes kept.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hashes all that is kept; the next [`append`](Partial::append) goes behind it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn hash(&mut self) -> io::Result<Hasher> {
        let mut hasher = Hasher::default();
        self.file.seek(SeekFrom::Start(0))?;
        let mut buf = vec![0; 128 << 10];
        let mut bytes = 0;
        loop {
            match self.file.read(&mut buf)? {
                0 => break,
                n => {
                    hasher.update(&buf[..n]);
                    bytes += n as u64;
                }
            }
        }
        self.len = bytes;
        Ok(hasher)
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// Those of writing.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Throws away what is kept.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.len = 0;
        Ok(())
    }

    /// Makes the file a blob of `work` too, by a second name, not a copy: if the work's commit fails, the download is still here. The
    /// caller has checked the digest, and holds on to this until the commit.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn offer(&self, work: &Work<'_>, digest: &Digest) -> Result<(), StoreError> {
        let target = work.staged_path(digest);
        rustix::fs::linkat(&self.dir, self.name.as_str(), CWD, &target, AtFlags::empty())
            .map_err(|e| StoreError::io("keep the download as", &target, e.into()))
    }

    /// Removes the file: its blob is in the store.
    pub fn remove(mut self) {
        self.len = 0;
    }

    fn unlink(&self) {
        // What can't be removed now is found by `creel image gc`.
        let _ = rustix::fs::unlinkat(&self.dir, self.name.as_str(), AtFlags::empty());
    }
}

impl Drop for Partial {
    /// A file with nothing in it is of no use.
    fn drop(&mut self) {
        if self.len == 0 {
            self.unlink();
        }
    }
}

fn digest_algorithm() -> &'static str {
    "sha256"
}

/// The directory `name` in `dir`, made if it is not there.
fn below(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;

    fn images() -> (tempfile::TempDir, Store, File) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let fd = File::open(store.path()).unwrap();
        (dir, store, fd)
    }

    fn downloads(store: &Store) -> usize {
        store.path().join("partial/sha256").read_dir().unwrap().count()
    }

    #[test]
    fn what_came_is_kept() {
        let (_dir, store, images) = images();
        let digest = Digest::of(b"creel");
        let mut partial = Partial::open(images.as_fd(), &digest).unwrap();
        partial.append(b"cr").unwrap();
        drop(partial);
        assert_eq!(Partial::kept(images.as_fd(), &digest), 2);

        let mut partial = Partial::open(images.as_fd(), &digest).unwrap();
        assert_eq!(partial.len(), 2);
        let mut hasher = partial.hash().unwrap();
        partial.append(b"eel").unwrap();
        hasher.update(b"eel");
        assert_eq!(hasher.finish(), digest);
        partial.restart().unwrap();
        partial.append(b"creel").unwrap();
        assert_eq!(partial.hash().unwrap().finish(), digest);
        let work = store.begin_staged().unwrap();
        partial.offer(&work, &digest).unwrap();
        let mut text = String::new();
        work.blob(&digest).unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "creel");
        // Not committed: it is still a download.
        drop((work, partial));
        assert!(store.blob(&digest).unwrap().is_none());
        let partial = Partial::open(images.as_fd(), &digest).unwrap();
        assert_eq!(partial.len(), 5);
        partial.remove();
        assert_eq!(downloads(&store), 0);
    }

    #[test]
    fn a_blob_of_the_store_is_never_written_to() {
        let (_dir, store, images) = images();
        let digest = Digest::of(b"creel");
        let blob = store.path().join("blobs/sha256").join(digest.hex());
        std::fs::write(&blob, "creel").unwrap();
        std::fs::hard_link(&blob, store.path().join("partial/sha256").join(digest.hex())).unwrap();
        let mut partial = Partial::open(images.as_fd(), &digest).unwrap();
        assert_eq!(partial.len(), 0);
        partial.append(b"x").unwrap();
        assert_eq!(std::fs::read(&blob).unwrap(), b"creel");
    }

    #[test]
    fn nothing_leaves_no_file() {
        let (_dir, store, images) = images();
        drop(Partial::open(images.as_fd(), &Digest::of(b"")).unwrap());
        assert_eq!(downloads(&store), 0);
    }

    #[test]
    fn a_symlink_is_not_followed() {
        let (_dir, store, images) = images();
        let digest = Digest::of(b"x");
        let target = store.path().join("target");
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, store.path().join("partial/sha256").join(digest.hex())).unwrap();
        assert!(Partial::open(images.as_fd(), &digest).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    }

    #[test]
    fn the_second_waits_for_the_first() {
        let (_dir, _store, images) = images();
        let digest = Digest::of(b"x");
        let mut first = Partial::open(images.as_fd(), &digest).unwrap();
        first.append(b"old").unwrap();
        let len = std::thread::scope(|scope| {
            let second = scope.spawn(|| Partial::open(images.as_fd(), &digest).unwrap().len());
            first.append(b"er").unwrap();
            first.remove();
            second.join().unwrap()
        });
        // Whichever came first to the lock, the second never gets the file that was taken away.
        assert_eq!(len, 0);
    }
}
