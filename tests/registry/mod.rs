//! What the tests of `creel image pull` share: images made by hand, a real registry, a fake one, and looks at the store.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use creel::image::pull::{Options, PullError, pull};
use creel::image::registry::{Access, Limits, Progress};
use creel::image::store::{Installed, Store};
use tempfile::TempDir;

pub mod docker;
pub mod fake;
pub mod image;

/// A store of a test's own.
pub struct Place {
    pub dir: TempDir,
    pub store: Store,
}

impl Place {
    pub fn new() -> Place {
        let dir = TempDir::with_prefix("creel-test-").unwrap();
        let store = Store::open(dir.path()).unwrap();
        Place { dir, store }
    }

    pub fn pull(&self, reference: &str, access: Access) -> Result<Installed, PullError> {
        self.pull_with(reference, Options { access, ..Options::default() })
    }

    pub fn pull_with(&self, reference: &str, options: Options<'_>) -> Result<Installed, PullError> {
        pull(&self.store, &reference.parse().unwrap(), &options)
    }

    /// A pull that must fail and leave the store as it was, `partial/` apart. Gives the error's code and message.
    pub fn fails(&self, reference: &str, access: Access) -> (&'static str, String) {
        let before = listing(self.store.path());
        let error = self.pull(reference, access).expect_err("the pull should have failed");
        assert_eq!(listing(self.store.path()), before, "the store changed: {error}");
        let text = error.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        (error.code(), text)
    }

    /// Bytes kept of a blob in `partial/`.
    pub fn kept(&self, digest: &str) -> u64 {
        let path = self.store.path().join("partial/sha256").join(&digest[7..]);
        fs::metadata(path).map_or(0, |m| m.len())
    }

    /// Writes what an earlier download is to have left.
    pub fn keep(&self, digest: &str, bytes: &[u8]) {
        fs::write(self.store.path().join("partial/sha256").join(&digest[7..]), bytes).unwrap();
    }
}

/// Everything below the store but `partial/`: path → size and inode of files, nothing of directories.
fn listing(root: &Path) -> BTreeMap<String, Option<(u64, u64)>> {
    fn walk(dir: &Path, root: &Path, found: &mut BTreeMap<String, Option<(u64, u64)>>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            // The lock is made by the first that works.
            if name == "partial" || name == "lock" {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                found.insert(name, None);
                walk(&path, root, found);
            } else {
                use std::os::unix::fs::MetadataExt;
                found.insert(name, Some((meta.len(), meta.ino())));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

/// Retries at once, and times in which even a loaded machine answers.
pub fn quick() -> Access {
    let limits = Limits { backoff: Duration::from_millis(1), retries: 3, ..Limits::default() };
    Access { limits, ..Access::default() }
}

/// Counts what is told of downloads.
#[derive(Debug, Default)]
pub struct Counted(Mutex<Counts>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub bytes: u64,
    pub blobs: usize,
    pub received: u64,
    pub discarded: u64,
    pub ended: bool,
}

impl Counted {
    pub fn get(&self) -> Counts {
        *self.0.lock().unwrap()
    }
}

impl Progress for Counted {
    fn begin(&self, bytes: u64, blobs: usize) {
        let mut counts = self.0.lock().unwrap();
        (counts.bytes, counts.blobs) = (bytes, blobs);
    }
    fn received(&self, bytes: u64) {
        self.0.lock().unwrap().received += bytes;
    }
    fn discarded(&self, bytes: u64) {
        self.0.lock().unwrap().discarded += bytes;
    }
    fn end(&self) {
        self.0.lock().unwrap().ended = true;
    }
}

/// The largest amount of memory this process ever had, in bytes. (nextest runs each test in a process of its own.)
pub fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
