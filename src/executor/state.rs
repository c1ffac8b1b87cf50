//! The state directory: one directory a run, locked while the run lives, so that what a crash left is told from what is in use.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use thiserror::Error;

use crate::sandbox::cgroup::{Found, reclaim};
use crate::sandbox::tree::remove_tree;

#[derive(Debug, Error)]
pub enum StateError {
    #[error("cannot use the state directory {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the state directory {path} belongs to uid {owner} or others may write to it: give it to this user, mode 0700"
    )]
    NotOurs { path: PathBuf, owner: u32 },
    #[error("no state directory: neither CREEL_STATE_DIR, XDG_STATE_HOME nor HOME is set")]
    NoHome,
}

/// `/var/lib/creel` as root, `$XDG_STATE_HOME/creel` else; `CREEL_STATE_DIR` overrides both.
#[derive(Debug)]
pub struct State {
    runs: OwnedFd,
    path: PathBuf,
}

/// The directory of one live run; removed when dropped.
#[derive(Debug)]
pub struct RunDir {
    pub path: PathBuf,
    /// Open directory; holds the lock, as long as a copy of it is open anywhere.
    pub dir: OwnedFd,
    runs: OwnedFd,
    name: String,
    settled: bool,
}

/// What [`State::sweep`] did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    pub failed: Vec<String>,
}

impl RunDir {
    /// Removes it.
    pub fn remove(mut self) -> io::Result<()> {
        self.settled = true;
        remove_tree(self.runs.as_fd(), OsStr::new(&self.name))
    }

    /// Leaves it to the next sweep, which cleans up what belongs to it first.
    pub fn leave(mut self) {
        self.settled = true;
    }

    /// Makes directories in it, parents first, mode 0755 whatever our umask is.
    pub fn make(&self, names: &[&str]) -> Result<(), StateError> {
        let mode = Mode::from_raw_mode(0o755);
        for name in names {
            rustix::fs::mkdirat(&self.dir, *name, mode)
                .and_then(|()| rustix::fs::chmodat(&self.dir, *name, mode, rustix::fs::AtFlags::empty()))
                .map_err(|e| StateError::Io { path: self.path.join(name), source: e.into() })?;
        }
        Ok(())
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.settled {
            // What can't be removed now is found by the next start.
            let _ = remove_tree(self.runs.as_fd(), OsStr::new(&self.name));
        }
    }
}

impl State {
    /// Opens the state directory, making it when missing.
    pub fn open() -> Result<State, StateError> {
        State::open_at(&State::location()?)
    }

    /// Where the state directory is.
    pub fn location() -> Result<PathBuf, StateError> {
        let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(dir) = set("CREEL_STATE_DIR") {
            return Ok(dir);
        }
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/creel"));
        }
        set("XDG_STATE_HOME")
            .or_else(|| set("HOME").map(|h| h.join(".local/state")))
            .map(|d| d.join("creel"))
            .ok_or(StateError::NoHome)
    }

    /// Opens the state directory at `path`. It must be ours alone: another user who may write there could plant runs of his
    /// own (CVE-2022-31214 began like that).
    pub fn open_at(path: &Path) -> Result<State, StateError> {
        let fail = |source| StateError::Io { path: path.to_owned(), source };
        let runs = path.join("runs");
        let dir = match open_dir(&runs) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&runs).map_err(fail)?;
                open_dir(&runs).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        for meta in [fs::metadata(path).map_err(fail)?, fs::metadata(&runs).map_err(fail)?] {
            if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
                return Err(StateError::NotOurs { path: path.to_owned(), owner: meta.uid() });
            }
        }
        Ok(State { runs: dir, path: runs })
    }

    /// Makes and locks the directory of run `id`.
    pub fn new_run(&self, id: &str) -> Result<RunDir, StateError> {
        let path = self.path.join(id);
        let fail = |source: io::Error| StateError::Io { path: path.clone(), source };
        // Against a sweeper that sees the directory before it is locked.
        let _shared = self.gate(FlockOperation::LockShared).map_err(fail)?;
        let mode = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(&self.runs, id, mode).map_err(|e| fail(e.into()))?;
        let dir = open_dir(&path).map_err(fail)?;
        flock(&dir, FlockOperation::NonBlockingLockExclusive).map_err(|e| fail(e.into()))?;
        Ok(RunDir {
            runs: self.runs.try_clone().map_err(fail)?,
            path,
            dir,
            name: id.to_owned(),
            settled: false,
        })
    }

    /// Cleans up after runs whose creel and launcher are gone: their processes, cgroups and directories. At most `most` runs are looked at;
    /// nothing that is alive is touched.
    pub fn sweep(&self, cgroups: &Found, most: usize) -> Swept {
        let mut swept = Swept::default();
        let names: Vec<_> = fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name())
            .filter(|n| n.as_encoded_bytes().starts_with(b"run_"))
            .take(most)
            .collect();
        if names.is_empty() {
            return swept;
        }
        let Ok(_exclusive) = self.gate(FlockOperation::NonBlockingLockExclusive) else {
            return swept;
        };
        for name in names {
            let Ok(dir) = open_dir(&self.path.join(&name)) else {
                continue;
            };
            if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let id = name.to_string_lossy();
            let cleaned = reclaim(cgroups, &id).map_err(|e| e.to_string()).and_then(|()| {
                remove_tree(self.runs.as_fd(), &name)
                    .map_err(|e| format!("cannot remove {}: {e}", self.path.join(&name).display()))
            });
            match cleaned {
                Ok(()) => swept.removed += 1,
                Err(e) => swept.failed.push(e),
            }
        }
        swept
    }

    fn gate(&self, how: FlockOperation) -> io::Result<OwnedFd> {
        // A description of its own for each call: flock belongs to the open file description.
        let gate = rustix::fs::openat(
            &self.runs,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::io::retry_on_intr(|| flock(&gate, how))?;
        Ok(gate)
    }
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Found {
        Found::None { reason: "test".into() }
    }

    #[test]
    fn a_live_run_survives_the_sweep_and_a_dead_one_goes() {
        let tmp = tempfile::tempdir().unwrap();
        let state = State::open_at(&tmp.path().join("creel")).unwrap();
        let live = state.new_run("run_live").unwrap();
        state.new_run("run_dead").unwrap().leave();
        let swept = state.sweep(&none(), 100);
        assert_eq!(swept, Swept { removed: 1, failed: vec![] });
        assert!(live.path.is_dir());
        assert!(!live.path.with_file_name("run_dead").exists());
        drop(live);
        assert_eq!(fs::read_dir(&state.path).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("creel");
        State::open_at(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let err = State::open_at(&path).unwrap_err();
        assert!(err.to_string().contains("others may write"), "{err}");
    }
}
