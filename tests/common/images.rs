//! The image `minimal`, built once for all tests and kept in the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Ctx, finish, spawn};

/// The recipes of this repository.
pub fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rootfs")
}

/// A state directory, common to all tests, that has the image. To be looked at and run from, not to be changed.
pub fn state() -> PathBuf {
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
    fs::create_dir_all(&state).unwrap();
    // Group and others may have been let in by the umask; creel wants it for itself.
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let lock = File::create(state.join("tests.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut build = Command::new(env!("CARGO_BIN_EXE_creel"));
    build.args(["image", "build", "minimal", "--recipes"]).arg(recipes()).env("CREEL_STATE_DIR", &state);
    let built = finish(spawn(&mut build)).expect_code(0);
    assert!(built.out().starts_with("minimal:latest  "), "{}", built.out());
    state
}

/// Gives the test a store of its own that has the image: the same files, other locks.
pub fn give(ctx: &Ctx) {
    let from = state().join("images");
    let to = ctx.state().join("images");
    let copied = |mode: &str| {
        let _ = fs::remove_dir_all(&to);
        let status = Command::new("cp").arg(mode).arg(&from).arg(&to).status().unwrap();
        status.success()
    };
    // Hard links can't leave a file system.
    assert!(copied("-al") || copied("-a"));
    let locks = Command::new("find")
        .arg(&to)
        .args(["-maxdepth", "3", "(", "-name", "lock", "-o", "-name", "index.lock", ")", "-print0"])
        .output()
        .unwrap();
    for lock in locks.stdout.split(|b| *b == 0).filter(|l| !l.is_empty()) {
        let lock = Path::new(std::str::from_utf8(lock).unwrap());
        fs::remove_file(lock).unwrap();
        File::create(lock).unwrap();
    }
}

/// A bundle directory below `dir` that is the image `minimal` and a Python module in it.
pub fn with_module(dir: &Path, name: &str, code: &str) -> PathBuf {
    let bundles = state().join("images/bundles");
    let from = fs::read_dir(bundles).unwrap().next().unwrap().unwrap().path();
    let to = dir.join("bundle");
    let copied = |mode: &str| Command::new("cp").arg(mode).arg(&from).arg(&to).status().unwrap().success();
    assert!(copied("-al") || copied("-a"));
    let place = to.join("rootfs/usr/lib/python3/dist-packages");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join(format!("{name}.py")), code).unwrap();
    to
}
