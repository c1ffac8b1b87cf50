//! Reading and writing the small files of a cgroup, and getting rid of a cgroup.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::CgroupError;

/// How long a cgroup may take to become empty after its processes were killed.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

pub fn fail(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_owned();
    move |source| CgroupError::File { action, path, source }
}

/// Makes a directory; one that is there already is fine when `shared`.
pub fn make_dir(path: &Path, shared: bool) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(e) if shared && e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(fail("make", path)),
    }
}

/// Opens a cgroup directory, to be born in or to reach its files by.
pub fn open_dir(path: &Path) -> Result<OwnedFd, CgroupError> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .map_err(fail("open", path))
}

/// Opens one file of a cgroup.
pub fn open_at(dir: impl AsFd, name: &str, flags: OFlags) -> io::Result<fs::File> {
    Ok(rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?.into())
}

pub fn write_at(dir: impl AsFd, name: &str, value: &str) -> io::Result<()> {
    open_at(dir, name, OFlags::WRONLY)?.write_all(value.as_bytes())
}

pub fn read_at(dir: impl AsFd, name: &str) -> Option<String> {
    let mut buf = [0u8; 4096];
    let file = open_at(dir, name, OFlags::RDONLY).ok()?;
    let n = rustix::io::read(&file, &mut buf).ok()?;
    Some(String::from_utf8_lossy(&buf[..n]).into_owned())
}

/// Reads an open file from its beginning.
pub fn again(file: &fs::File) -> Option<String> {
    let mut buf = [0u8; 4096];
    let n = rustix::io::pread(file, &mut buf, 0).ok()?;
    Some(String::from_utf8_lossy(&buf[..n]).into_owned())
}

pub fn number_at(dir: impl AsFd, name: &str) -> Option<u64> {
    read_at(dir, name)?.trim().parse().ok()
}

/// Processes in a cgroup. A crowd that does not fit into one read is cut: callers only take samples.
pub fn pids_at(dir: impl AsFd) -> Vec<i32> {
    read_at(dir, "cgroup.procs")
        .map(|t| t.lines().filter_map(|l| l.trim().parse().ok()).collect())
        .unwrap_or_default()
}

/// The value of `key` in a file of `key value` lines.
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Removes `parent/name`, waiting for the kernel to finish with processes that are dead already.
pub fn remove_at(parent: impl AsFd, name: &str, path: &Path) -> Result<(), CgroupError> {
    let until = Instant::now() + EMPTY_WITHIN;
    loop {
        match rustix::fs::unlinkat(parent.as_fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => wait_a_moment(),
            Err(rustix::io::Errno::BUSY) => {
                return Err(CgroupError::Busy { path: path.to_owned() });
            }
            Err(e) => return Err(fail("remove", path)(e.into())),
        }
    }
}

/// v1 has no event for "empty" and v2's `populated` may lag behind the reaped pid by a moment: the only wait is a short one.
fn wait_a_moment() {
    let ms = rustix::time::Timespec { tv_sec: 0, tv_nsec: 500_000 };
    let _ = rustix::event::poll(&mut [], Some(&ms));
}

/// Kills what lives in the cgroup at `path` and removes it.
pub fn reclaim_dir(path: &Path) -> Result<(), CgroupError> {
    let dir = match open_dir(path) {
        Ok(dir) => dir,
        Err(CgroupError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if write_at(&dir, "cgroup.kill", "1").is_err() {
        let until = Instant::now() + EMPTY_WITHIN;
        while let Some(pids) = read_at(&dir, "cgroup.procs").filter(|p| !p.trim().is_empty()) {
            for pid in pids.lines().filter_map(|l| rustix::process::Pid::from_raw(l.trim().parse().ok()?)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            if Instant::now() >= until {
                return Err(CgroupError::Busy { path: path.to_owned() });
            }
            wait_a_moment();
        }
    }
    let (parent, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    remove_at(open_dir(parent)?, &name.to_string_lossy(), path)
}
