//! What has to go when the process is cancelled.
//!
//! A process that ends by itself removes what it did not finish. One that a signal ends does not come to it: it has another thread do so,
//! which finds here what there is.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sandbox::tree::remove_tree;

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// So often a tree is removed in which another thread still makes files. One is enough where nobody does.
const TRIES: usize = 1000;

fn paths() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of paths is whole at any moment.
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or directory that is of no use before it is finished; dropped, it is no longer looked after.
#[derive(Debug)]
pub struct Unfinished(PathBuf);

impl Unfinished {
    /// From now on [`cancel`] removes `path`, which need not be there yet.
    pub fn new(path: &Path) -> Unfinished {
        paths().push(path.to_owned());
        Unfinished(path.to_owned())
    }

    /// The same, and `make` makes it at once: no cancelling comes in between, after which it would be made all the same.
    pub fn made<T>(path: &Path, make: impl FnOnce() -> T) -> (Unfinished, T) {
        let mut paths = paths();
        paths.push(path.to_owned());
        (Unfinished(path.to_owned()), make())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut paths = paths();
        if let Some(at) = paths.iter().rposition(|p| *p == self.0) {
            paths.swap_remove(at);
        }
    }
}

/// As long as it lives, no other thread begins or finishes anything.
#[must_use]
pub struct Stopped(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, Vec<PathBuf>>);

/// Removes what is unfinished. The caller ends the process while it holds the result.
pub fn cancel() -> Stopped {
    let paths = paths();
    for path in paths.iter() {
        remove(path);
    }
    Stopped(paths)
}

/// Waits for ever if the process is being cancelled, so that nothing else is said or done.
pub fn settle() {
    drop(paths());
}

fn remove(path: &Path) {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
    let here = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    for _ in 0..TRIES {
        let Ok(meta) = fs::symlink_metadata(path) else { return };
        let removed = match meta.is_dir() {
            true => File::open(here).and_then(|dir| remove_tree(dir.as_fd(), name)),
            false => fs::remove_file(path),
        };
        if removed.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unfinished_goes() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        fs::create_dir_all(at("目录/x")).unwrap();
        for name in ["目录/x/y", "file", "done"] {
            fs::write(at(name), "x").unwrap();
        }
        let _kept =
            [Unfinished::new(&at("目录")), Unfinished::new(&at("file")), Unfinished::new(&at("none"))];
        drop(Unfinished::new(&at("done")));
        drop(cancel());
        let left: Vec<_> = fs::read_dir(tmp.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["done"]);
    }
}
