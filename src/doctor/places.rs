//! Files and directories: the programs of the image `host`, the state directory, disk space.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use super::Check;
use crate::executor::state::{State, StateError};
use crate::image::DEFAULT_PATH;
use crate::image::store::Store;
use crate::sys::quota;
use crate::text::quoted;

/// Less free space than this is worth a word: it is the `/work` and `/outputs` of three runs of the default profile.
const SPARE: u64 = 1 << 30;

pub fn checks() -> Vec<Check> {
    let location = State::location();
    let mut checks = vec![host_image(), state(&location)];
    if let Ok(path) = &location {
        checks.extend(free_space(path));
    }
    checks.push(Check::ok("project quota", quota_words(&location)));
    if let Ok(path) = &location {
        checks.push(images(path));
    }
    checks.push(Check::ok("image building", building_words()));
    checks
}

/// What bounds `/work` and `/outputs` when they can't be a tmpfs; a run works either way.
fn quota_words(location: &Result<PathBuf, StateError>) -> &'static str {
    let there = |path: &PathBuf| {
        // The state directory may not be there yet: its file system is that of its nearest ancestor.
        let dir = path.ancestors().find_map(|p| std::fs::File::open(p).ok());
        dir.is_some_and(|dir| quota::available(dir.as_fd(), crate::executor::ids::ROOT_ID))
    };
    if location.as_ref().is_ok_and(there) {
        "there: it bounds /work and /outputs where memory is too small for a tmpfs"
    } else {
        "not there: a watcher bounds /work and /outputs where memory is too small for a tmpfs"
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let paths = DEFAULT_PATH.split(':').map(|dir| Path::new(dir).join(name));
    paths.into_iter().find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}

/// What is installed. A run of the host image works without.
fn images(state: &Path) -> Check {
    const NAME: &str = "images";
    let listed = Store::existing(state).and_then(|store| store.map_or(Ok(Vec::new()), |s| s.list()));
    match listed {
        Ok(images) => {
            let default = images.iter().find(|i| i.default).map_or("host", |i| i.name.as_str());
            Check::ok(NAME, format!("{} installed; creel run takes {default} without --image", images.len()))
        }
        Err(e) => Check::warn(
            NAME,
            e.to_string(),
            "creel image gc, and creel image rm for an image that is damaged",
        ),
    }
}

fn building_words() -> &'static str {
    match (rustix::process::geteuid().is_root(), find_program("mmdebstrap").is_some()) {
        (true, true) => "possible: mmdebstrap makes the base, each further step runs in a sandbox",
        (true, false) => {
            "not possible: the base is made by mmdebstrap, which is not installed (apt-get install mmdebstrap)"
        }
        (false, _) => "not possible as an ordinary user: build as root, or import or pull images",
    }
}

/// Programs that scripts are run with.
fn host_image() -> Check {
    const NAME: &str = "host image";
    let (python, bash) = (find_program("python3"), find_program("bash"));
    match (&python, &bash) {
        (Some(python), Some(bash)) => Check::ok(NAME, format!("{} and {}", python.display(), bash.display())),
        _ => {
            let missing: Vec<&str> = [("python3", &python), ("bash", &bash)]
                .into_iter()
                .filter_map(|(name, found)| found.is_none().then_some(name))
                .collect();
            let names = missing.join(" ");
            Check::warn(
                NAME,
                format!("this host's /usr has no {}", missing.join(" and no ")),
                format!(
                    "as root: apt install {names} (or your distribution's way), or run with a bundle: --image ./path"
                ),
            )
        }
    }
}

/// Whether a run could use the state directory; nothing is made.
fn state(location: &Result<PathBuf, StateError>) -> Check {
    const NAME: &str = "state directory";
    let path = match location {
        Ok(path) => path,
        Err(e) => return Check::fail(NAME, e.to_string(), "export CREEL_STATE_DIR=/path/of/a/directory"),
    };
    let fix = |path: &Path| {
        format!("mkdir -p -m 0700 {0} and chown it to this user, or set CREEL_STATE_DIR", path.display())
    };
    let usable = if path.join("runs").symlink_metadata().is_ok() {
        State::open_at(path).map(|_| "is ready")
    } else {
        let fail = |source| StateError::Io { path: path.clone(), source };
        match nearest(path) {
            Some(place) if !place.is_dir() => Err(fail(io::ErrorKind::NotADirectory.into())),
            Some(place) => access(&place, Access::WRITE_OK | Access::EXEC_OK)
                .map(|()| "is made by the first run")
                .map_err(|e| fail(e.into())),
            None => Err(fail(io::ErrorKind::NotFound.into())),
        }
    };
    match usable {
        Ok(how) => Check::ok(NAME, format!("{} {how}", quoted(path))),
        Err(e) => Check::fail(NAME, e.to_string(), fix(path)),
    }
}

/// `path`, or the nearest directory above it that is there.
fn nearest(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find(|p| p.symlink_metadata().is_ok()).map(Path::to_owned)
}

fn free_space(path: &Path) -> Option<Check> {
    const NAME: &str = "disk space";
    let place = nearest(path)?;
    let stat = statvfs(&place).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{:.1} GiB free at {}", free as f64 / (1u64 << 30) as f64, quoted(path));
    // Some file systems have no fixed number of inodes and say 0.
    let inodes_low = stat.f_files > 0 && stat.f_favail < 100_000;
    Some(if free >= SPARE && !inodes_low {
        Check::ok(NAME, found)
    } else {
        let found = if inodes_low { format!("{found}, {} inodes", stat.f_favail) } else { found };
        Check::warn(NAME, found, "make room there, or set CREEL_STATE_DIR to a larger disk")
    })
}

/// Creel maps the caller's own uid only; other programs of this kind need more.
pub fn subordinate_ids() -> Check {
    const NAME: &str = "subordinate ids";
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&uid)).then_some(name)
    });
    let text = fs::read_to_string("/etc/subuid").unwrap_or_default();
    let range = text.lines().find_map(|line| {
        let (owner, range) = line.split_once(':')?;
        (Some(owner) == name || owner == uid).then(|| range.replacen(':', ", ", 1))
    });
    Check::ok(
        NAME,
        match range {
            Some(range) => format!("first and count: {range}; creel needs none"),
            None => "none; creel needs none".into(),
        },
    )
}
