//! The state directory: a ledger of live runs, and a directory for each that needs the disk.
//!
//! A run holds a lock on its line of the ledger as long as its creel or its launcher lives, so that what a crash left is told from what
//! is in use. Without inputs, and with `/work` in memory, a run makes no file at all: on a journalling file system a single directory costs
//! more than all the mounts of a sandbox.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::sandbox::cgroup::{Found, reclaim, reclaim_in};
use crate::sandbox::run_dirs::INPUTS;
use crate::sandbox::tree::remove_tree;
use crate::state_dir::not_ours;
use crate::sys::lock::{try_lock_byte, unlock_byte};

#[derive(Debug, Error)]
pub enum StateError {
    #[error(
        "cannot use the state directory {path}: {source}; name another one with CREEL_STATE_DIR, or mend this one"
    )]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the state directory is not this user's alone: {}, or name another one with CREEL_STATE_DIR",
        not_ours(.path, *.owner, *.mode)
    )]
    NotOurs { path: PathBuf, owner: u32, mode: u32 },
    #[error("no state directory: neither CREEL_STATE_DIR, XDG_STATE_HOME nor HOME is set")]
    NoHome,
}

/// `/var/lib/creel` as root, `$XDG_STATE_HOME/creel` else; `CREEL_STATE_DIR` overrides both.
#[derive(Debug)]
pub struct State {
    /// Directories of runs.
    runs: OwnedFd,
    path: PathBuf,
    ledger: PathBuf,
}

/// A live run in the ledger; taken out of it, with its directory, when dropped.
#[derive(Debug)]
pub struct Run {
    /// Where the run's directory is, if it has one.
    pub path: PathBuf,
    /// Open directory, once [`make`](Run::make) made it.
    pub dir: Option<OwnedFd>,
    /// The ledger, locked at our line as long as a copy of this descriptor is open anywhere.
    pub ledger: OwnedFd,
    /// The directory of all runs' directories.
    pub runs: OwnedFd,
    line: u32,
    name: String,
    settled: bool,
}

/// A [`Run`] without its descriptors.
#[derive(Debug)]
pub struct Entry {
    line: u32,
    name: String,
    has_dir: bool,
}

impl Entry {
    /// Takes the run out of the ledger and removes its directory in `runs`.
    pub fn remove(&self, runs: BorrowedFd<'_>, ledger: BorrowedFd<'_>) -> io::Result<()> {
        if self.has_dir {
            remove_tree(runs, OsStr::new(&self.name))?;
        }
        write_line(ledger, self.line, b"")
    }
}

/// Bytes of a line of the ledger: a run id and, on cgroup v2, a space and the directory in which the run's cgroup lies (a later session of
/// the same user may have another one, or none); filled up with zeroes.
const LINE: usize = 512;

/// What [`State::sweep`] did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    pub failed: Vec<String>,
}

impl Run {
    /// Takes it out of the ledger and removes its directory.
    pub fn remove(mut self) -> io::Result<()> {
        self.settled = true;
        self.end()
    }

    /// Leaves it to the next sweep, which cleans up what belongs to it first.
    pub fn leave(mut self) {
        self.settled = true;
    }

    /// Leaves it to who holds copies of `runs` and `ledger`, and calls [`Entry::remove`] with them.
    pub fn hand_over(mut self) -> Entry {
        self.settled = true;
        self.entry()
    }

    fn entry(&self) -> Entry {
        Entry { line: self.line, name: self.name.clone(), has_dir: self.dir.is_some() }
    }

    fn end(&self) -> io::Result<()> {
        self.entry().remove(self.runs.as_fd(), self.ledger.as_fd())
    }

    /// Makes the run's directory, if it has none yet, and directories in it, parents first, mode 0755 whatever our umask is.
    pub fn make(&mut self, names: &[&str]) -> Result<(), StateError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source: rustix::io::Errno| StateError::Io { path, source: source.into() }
        };
        if self.dir.is_none() {
            rustix::fs::mkdirat(&self.runs, self.name.as_str(), Mode::from_raw_mode(0o700))
                .map_err(fail(&self.path))?;
            self.dir = Some(
                open_dir(&self.path).map_err(|source| StateError::Io { path: self.path.clone(), source })?,
            );
        }
        let Some(dir) = &self.dir else { return Ok(()) };
        let mode = Mode::from_raw_mode(0o755);
        for name in names {
            rustix::fs::mkdirat(dir, *name, mode)
                .and_then(|()| rustix::fs::chmodat(dir, *name, mode, rustix::fs::AtFlags::empty()))
                .map_err(fail(&self.path.join(name)))?;
        }
        Ok(())
    }
}

impl Run {
    /// Makes the directory for staged inputs and opens it.
    pub fn inputs(&mut self) -> Result<OwnedFd, StateError> {
        self.make(&[INPUTS])?;
        let path = self.path.join(INPUTS);
        open_dir(&path).map_err(|source| StateError::Io { path, source })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.settled {
            // What can't be removed now is found by the next start.
            let _ = self.end();
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
        crate::state_dir::location().ok_or(StateError::NoHome)
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
        for dir in [path, &runs] {
            let meta = fs::metadata(dir).map_err(fail)?;
            if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
                return Err(StateError::NotOurs {
                    path: dir.to_owned(),
                    owner: meta.uid(),
                    mode: meta.mode(),
                });
            }
        }
        Ok(State { runs: dir, path: runs, ledger: path.join("ledger") })
    }

    /// The file system that directories of runs lie on.
    pub fn disk(&self) -> BorrowedFd<'_> {
        self.runs.as_fd()
    }

    /// Enters run `id` into the ledger.
    pub fn new_run(&self, id: &str, cgroups: &Found) -> Result<Run, StateError> {
        let text = match cgroups.place() {
            Some(place) => format!("{id} {}", place.display()),
            None => id.to_owned(),
        };

        let fail = |source: io::Error| StateError::Io { path: self.ledger.clone(), source };
        let ledger = self.open_ledger().map_err(fail)?;
        for line in 0..u32::MAX {
            if !try_lock_byte(ledger.as_fd(), line).map_err(fail)? {
                continue;
            }
            // A line whose holders are dead is not ours to take: the sweep must clean up after it first.
            if read_line(ledger.as_fd(), line).map_err(fail)?.is_some() {
                unlock_byte(ledger.as_fd(), line).map_err(fail)?;
                continue;
            }
            write_line(ledger.as_fd(), line, text.as_bytes()).map_err(fail)?;
            return Ok(Run {
                path: self.path.join(id),
                dir: None,
                ledger,
                runs: self.runs.try_clone().map_err(fail)?,
                line,
                name: id.to_owned(),
                settled: false,
            });
        }
        Err(fail(io::Error::other("the ledger of runs is full")))
    }

    /// Cleans up after runs whose creel and launcher are gone: their processes, cgroups and directories. At most `most` runs are looked at;
    /// nothing that is alive is touched.
    pub fn sweep(&self, cgroups: &Found, most: usize) -> Swept {
        let mut swept = Swept::default();
        let Ok(ledger) = self.open_ledger() else { return swept };
        let lines = rustix::fs::fstat(&ledger).map_or(0, |s| s.st_size as usize / LINE);
        let mut seen = 0;
        for line in 0..lines as u32 {
            if seen == most {
                break;
            }
            if !matches!(read_line(ledger.as_fd(), line), Ok(Some(_))) {
                continue;
            }
            seen += 1;
            if !try_lock_byte(ledger.as_fd(), line).unwrap_or(false) {
                continue;
            }
            // Read again: its run may have ended well in between.
            if let Ok(Some((id, place))) = read_line(ledger.as_fd(), line) {
                match self.clean_up(cgroups, &id, place.as_deref()) {
                    Ok(()) => {
                        swept.removed += 1;
                        let _ = write_line(ledger.as_fd(), line, b"");
                    }
                    Err(e) => swept.failed.push(e),
                }
            }
            let _ = unlock_byte(ledger.as_fd(), line);
        }
        swept
    }

    fn clean_up(&self, cgroups: &Found, id: &str, place: Option<&Path>) -> Result<(), String> {
        match place {
            Some(place) => reclaim_in(place, id),
            None => reclaim(cgroups, id),
        }
        .map_err(|e| e.to_string())?;
        remove_tree(self.runs.as_fd(), OsStr::new(id))
            .map_err(|e| format!("cannot remove {}: {e}", self.path.join(id).display()))
    }

    /// A description of its own for each call: that is what the locks belong to.
    fn open_ledger(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(&self.ledger, flags, Mode::from_raw_mode(0o600))?)
    }
}

/// The run id in a line, and where its cgroup is; `None` when the line is free. Anything else than a run id is nobody's.
fn read_line(ledger: BorrowedFd<'_>, line: u32) -> io::Result<Option<(String, Option<PathBuf>)>> {
    let mut buf = [0; LINE];
    let n = rustix::io::pread(ledger, &mut buf, u64::from(line) * LINE as u64)?;
    let text = buf[..n].split(|&b| b == 0).next().unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    let (id, place) = match text.split_once(' ') {
        Some((id, place)) => (id, Some(PathBuf::from(place))),
        None => (text, None),
    };
    let plain = |t: &str| t.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    Ok((id.starts_with("run_") && plain(id)).then(|| (id.to_owned(), place)))
}

fn write_line(ledger: BorrowedFd<'_>, line: u32, text: &[u8]) -> io::Result<()> {
    let mut buf = [0; LINE];
    // A line that is full to the brim would have lost its end.
    let space = buf.get_mut(..text.len()).filter(|_| text.len() < LINE).ok_or(io::ErrorKind::InvalidInput)?;
    space.copy_from_slice(text);
    let written = rustix::io::pwrite(ledger, &buf, u64::from(line) * LINE as u64)?;
    if written == LINE { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
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
        let mut live = state.new_run("run_live", &none()).unwrap();
        let mut dead = state.new_run("run_dead", &none()).unwrap();
        live.make(&["a"]).unwrap();
        dead.make(&["a", "a/b"]).unwrap();
        dead.leave();
        // A dead run's line is not taken over before it was swept.
        let other = state.new_run("run_other", &none()).unwrap();
        let swept = state.sweep(&none(), 100);
        assert_eq!(swept, Swept { removed: 1, failed: vec![] });
        assert!(live.path.join("a").is_dir());
        assert!(!live.path.with_file_name("run_dead").exists());
        drop((live, other));
        assert_eq!(fs::read_dir(&state.path).unwrap().count(), 0);
        assert!(fs::read(&state.ledger).unwrap().iter().all(|&b| b == 0));
        assert_eq!(state.sweep(&none(), 100), Swept::default());
    }

    #[test]
    fn a_ledger_that_holds_something_else_cleans_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let state = State::open_at(&tmp.path().join("creel")).unwrap();
        fs::write(&state.ledger, "run_../../x\n".repeat(100)).unwrap();
        assert_eq!(state.sweep(&none(), 100), Swept::default());
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
