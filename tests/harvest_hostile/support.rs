//! Hostile output directories, and test processes that are not root or have a mount namespace of their own.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

pub use creel::executor::harvest::{Harvest, HarvestError, HarvestLimits};
use rustix::fs::{Mode, OFlags, open};

pub const LIMITS: HarvestLimits = HarvestLimits { bytes: 50 << 20, files: 1000, depth: 32 };

/// What must never get into a destination.
pub const CANARY: &str = "root:$y$canary-7f1c9a:20000:0:99999:7:::";

/// An output directory and a destination that doesn't exist yet.
pub struct Trial {
    pub dir: tempfile::TempDir,
    pub out: PathBuf,
    pub dest: PathBuf,
}

impl Trial {
    pub fn new() -> Self {
        Trial::within(tempfile::tempdir().unwrap())
    }

    /// Where making many inodes takes no time, if there is such a place.
    pub fn in_memory() -> Self {
        Trial::within(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn within(dir: tempfile::TempDir) -> Self {
        let (out, dest) = (dir.path().join("out"), dir.path().join("dest"));
        fs::create_dir(&out).unwrap();
        Trial { dir, out, dest }
    }

    pub fn write(&self, path: &str, text: &str) {
        self.write_bytes(path.as_bytes(), text);
    }

    pub fn write_bytes(&self, path: &[u8], text: &str) {
        let path = self.out.join(OsStr::from_bytes(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.out.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn harvest(&self) -> Result<Harvest, HarvestError> {
        self.harvest_with(&LIMITS, None)
    }

    pub fn harvest_with(&self, limits: &HarvestLimits, owner: Option<u32>) -> Result<Harvest, HarvestError> {
        harvest_to(&self.out, &self.dest, limits, owner)
    }
}

pub fn harvest_to(
    out: &Path,
    dest: &Path,
    limits: &HarvestLimits,
    owner: Option<u32>,
) -> Result<Harvest, HarvestError> {
    let fd = open(out, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    creel::executor::harvest::harvest(fd.as_fd(), dest, limits, owner)
}

pub fn paths(harvest: &Harvest) -> Vec<String> {
    harvest.produced.iter().map(|p| p.path.clone()).collect()
}

pub fn code(result: Result<Harvest, HarvestError>) -> &'static str {
    match result {
        Err(HarvestError::Rejected { code, .. }) => code,
        other => panic!("not rejected: {other:?}"),
    }
}

/// Everything under `dir`, sorted; links not followed.
pub fn listing(dir: &Path) -> Vec<String> {
    fn add(dir: &Path, prefix: &str, list: &mut Vec<String>) {
        for entry in fs::read_dir(dir).into_iter().flatten().map(Result::unwrap) {
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                add(&entry.path(), &format!("{path}/"), list);
            }
            list.push(path);
        }
    }
    let mut list = Vec::new();
    add(dir, "", &mut list);
    list.sort();
    list
}

/// Ends a thread that watches it, also when the test fails.
#[derive(Default)]
pub struct Stop(pub AtomicBool);

pub struct StopOnDrop<'a>(pub &'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the caller, the test `name`, is to do its work now, because it doesn't run as root. As root it is run once more as an
/// ordinary user, in another process, and that must succeed.
pub fn as_nobody(name: &str) -> bool {
    if !is_root() {
        return true;
    }
    // A copy, since not everybody may reach the build directory.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("test");
    // Not copied by this process: a child forked meanwhile would hold it open for writing (ETXTBSY).
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(program);
    run(command.args(["--exact", name, "--nocapture"]).current_dir("/").uid(65534).gid(65534));
    false
}

/// The mount point of a tmpfs of 64 KiB, if this is the process that may see it: the test `name`, run once more in a mount
/// namespace of its own. The mount point is named `small`, and its parent is otherwise empty.
pub fn in_small_mount(name: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("CREEL_TEST_SMALL") {
        return Some(PathBuf::from(dir));
    }
    if !is_root() {
        println!("skipped: a mount takes root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let script = r#"mount -t tmpfs -o size=64k none "$CREEL_TEST_SMALL" && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    run(command.env("CREEL_TEST_SMALL", &small));
    assert_eq!(listing(&small), [""; 0], "the mount is not seen here");
    None
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
