//! The base of an image: Debian's essential packages and some more, by mmdebstrap.
//!
//! mmdebstrap runs as 0 of a user namespace whose ids are reserved to this build, so that neither it nor the packages' scripts are root of the host.
//! (Started by root, its own `--mode=unshare` makes none.) Its `--mode=chrootless` is never used: it has those scripts change the host.

use std::fs::{DirBuilder, File};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::BuildError;
use super::recipe::Debian;
use crate::executor::ids::Lease;
use crate::sys;
use crate::sys::userns::{start_inside, with_maps};

const PROGRAM: &str = "mmdebstrap";

/// Nothing of this host in the image, and nothing that differs from one build to the next.
const TIDY: &str = r#"set -e
rm -f "$1/etc/hostname"
: > "$1/etc/resolv.conf"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' > "$1/etc/hosts"
rm -rf "$1"/var/log/*.log "$1"/var/log/apt "$1"/var/cache/*/* "$1"/var/lib/apt/lists/* "$1"/etc/*- "$1"/var/lib/dpkg/*-old
: > "$1/etc/machine-id"
"#;

/// A base in the making: its tar stream.
pub struct Base {
    child: Child,
    log: PathBuf,
    scratch: Scratch,
    watch: JoinHandle<bool>,
    /// Closed, it ends the watch.
    _watching: PipeWriter,
}

/// Where mmdebstrap builds the tree. Below the store it could not: the way there is closed to its ids.
struct Scratch(PathBuf);

impl Base {
    /// Starts mmdebstrap as 0 of a user namespace over the ids of `lease`. `log`: a file for what it prints; with `verbose` it goes to
    /// our standard error instead. A signal that cancels us ends it.
    pub fn start(
        debian: &Debian,
        epoch: u64,
        lease: &Lease,
        log: &Path,
        verbose: bool,
    ) -> Result<Base, BuildError> {
        let host = |what: &'static str| {
            move |source: io::Error| BuildError::Io { what, path: PROGRAM.into(), source }
        };
        let scratch = Scratch::make(lease.ids.user())?;
        let (uids, gids) = lease.ids.maps();
        let userns = with_maps(&uids, &gids).map_err(host("make a user namespace for"))?;
        let mut command = Command::new(PROGRAM);
        command
            // Its user namespace is this one, which it takes for the host's.
            .args(["--mode=unshare", "--variant=essential", "--skip=output/dev", "--format=tar", "--quiet"])
            .arg("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
            .args(debian.exclude.iter().map(|p| format!("--dpkgopt=path-exclude={p}")))
            .args(debian.include.iter().map(|p| format!("--dpkgopt=path-include={p}")))
            .arg(format!("--include={}", debian.packages.join(",")))
            .args(debian.hook_text.iter().map(|text| format!("--customize-hook={text}")))
            .arg(format!("--customize-hook={TIDY}"))
            .args([&debian.suite, "-"])
            .env("SOURCE_DATE_EPOCH", epoch.to_string())
            .env("LC_ALL", "C.UTF-8")
            .env("TMPDIR", &scratch.0)
            .env("HOME", &scratch.0)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if !verbose {
            let file = File::create(log).map_err(|source| BuildError::Io {
                what: "write",
                path: log.to_owned(),
                source,
            })?;
            command.stderr(file);
        }
        start_inside(&mut command, userns);
        let signals = sys::signal::block_and_watch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
            .map_err(host("watch signals for"))?;
        let (stop, _watching) = io::pipe().map_err(host("make a pipe for"))?;
        let child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(BuildError::NoProgram { program: PROGRAM });
            }
            Err(e) => return Err(host("execute")(e)),
        };
        let pid = child.id();
        let watch = std::thread::spawn(move || end_on_signal(&signals, &stop, pid));
        Ok(Base { child, log: log.to_owned(), scratch, watch, _watching })
    }

    /// The stream: read it to its end, then ask [`finish`](Base::finish).
    pub fn stream(&mut self) -> Option<impl Read + Send + use<>> {
        self.child.stdout.take()
    }

    /// Whether all of it came.
    pub fn finish(self) -> Result<(), BuildError> {
        let Base { mut child, log, scratch, watch, _watching } = self;
        drop(_watching);
        // Joined before the child is waited for, so that its pid is still its own.
        let cancelled = watch.join().unwrap_or(false);
        let status = child.wait().map_err(|source| BuildError::Io {
            what: "wait for",
            path: PROGRAM.into(),
            source,
        })?;
        drop(scratch);
        if cancelled {
            return Err(BuildError::Cancelled);
        }
        if status.success() {
            return Ok(());
        }
        let printed = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = printed.lines().collect();
        let tail = lines[lines.len().saturating_sub(25)..].join("\n");
        Err(BuildError::Step { step: "base".into(), how: format!("mmdebstrap: {status}"), tail })
    }
}

/// Waits for a signal, and passes it on as SIGTERM, on which mmdebstrap tidies up; or for the other end of `stop` to be closed.
fn end_on_signal(signals: &OwnedFd, stop: &PipeReader, pid: u32) -> bool {
    loop {
        let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() && sys::signal::next(signals.as_fd()).is_some() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            return true;
        }
        if !fds[1].revents().is_empty() {
            return false;
        }
    }
}

impl Scratch {
    /// One for each range of ids: what a build left that was killed is found by the next one with the same ids.
    fn make(owner: u32) -> Result<Scratch, BuildError> {
        let path = std::env::temp_dir().join(format!("creel-build-{owner}"));
        let io = |what| {
            let path = path.clone();
            move |source| BuildError::Io { what, path, source }
        };
        if let Ok(old) = std::fs::symlink_metadata(&path) {
            if old.uid() != owner && old.uid() != 0 {
                let source = io::Error::other("it belongs to somebody else: remove it");
                return Err(BuildError::Io { what: "use", path, source });
            }
            remove(&path).map_err(io("remove"))?;
        }
        DirBuilder::new().mode(0o755).create(&path).map_err(io("make"))?;
        chown(&path, Some(owner), Some(owner)).map_err(io("give away"))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed now is removed by the next build with these ids.
        let _ = remove(&self.0);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    crate::sandbox::tree::remove_tree(File::open(parent)?.as_fd(), name)
}
