//! Trees that a path can't name, that keep their owner out, that change while they are walked.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    CWD, FileType, IFlags, Mode, OFlags, RenameFlags, mkdirat, mknodat, open, openat, renameat_with,
};

use super::*;

mod count;

const ALL: UsageBound = UsageBound { bytes: u64::MAX, entries: 10_000_000 };

fn handle(path: &Path) -> OwnedFd {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn remove(dir: &Path, name: &str) -> std::io::Result<()> {
    remove_tree(handle(dir).as_fd(), OsStr::new(name))
}

fn used(dir: &Path) -> Usage {
    usage(handle(dir).as_fd(), &ALL)
}

/// Where making many inodes takes no time, if there is such a place.
fn in_memory() -> Option<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").ok()
}

/// A chain of `depth` directories under `dir/deep`, each with a file and a second directory.
fn chain(dir: &Path, depth: usize) {
    fs::create_dir(dir.join("deep")).unwrap();
    let mut at = handle(&dir.join("deep"));
    for _ in 0..depth {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        mkdirat(&at, "e", Mode::RWXU).unwrap();
        at = openat(&at, "d", OFlags::PATH, Mode::empty()).unwrap();
    }
}

/// As in `tests/harvest_hostile/support.rs`.
fn as_nobody(name: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("test");
    // Not copied by this process: a child forked meanwhile would hold it open for writing (ETXTBSY).
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let name = format!("sandbox::tree::tests::{name}");
    let mut command = Command::new(program);
    run(command.args(["--exact", &name, "--nocapture"]).current_dir("/").uid(65534).gid(65534));
    false
}

/// Ends the thread that watches it, also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn what_is_not_there_is_removed_and_odd_names_are_refused() {
    let t = tempfile::tempdir().unwrap();
    remove(t.path(), "nothing").unwrap();
    for name in ["", ".", "..", "a/b", "/"] {
        assert_eq!(remove(t.path(), name).unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{name:?}");
    }
    assert!(t.path().exists());
}

#[test]
fn anything_can_be_the_top() {
    let t = tempfile::tempdir().unwrap();
    fs::create_dir(t.path().join("kept")).unwrap();
    fs::write(t.path().join("kept/file"), "kept").unwrap();
    fs::write(t.path().join("file"), "").unwrap();
    symlink("kept", t.path().join("link")).unwrap();
    mknodat(CWD, t.path().join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    for name in ["file", "link", "fifo"] {
        remove(t.path(), name).unwrap();
    }
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(t.path().join("kept/file")).unwrap(), "kept");
}

#[test]
fn links_in_a_tree_are_removed_not_followed() {
    let t = tempfile::tempdir().unwrap();
    let (outside, tree) = (t.path().join("outside"), t.path().join("tree/a/b"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "kept").unwrap();
    fs::create_dir_all(&tree).unwrap();
    symlink(&outside, tree.join("dir")).unwrap();
    symlink("../../../outside", t.path().join("tree/rel")).unwrap();
    symlink(outside.join("file"), tree.join("file")).unwrap();
    let used = used(&t.path().join("tree"));
    assert_eq!((used.entries, used.complete), (5, true));
    remove(t.path(), "tree").unwrap();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 1);
}

#[test]
fn a_hundred_thousand_levels() {
    // On a disk, 300,000 inodes take minutes to make: there it is 3,000 levels.
    let (t, depth) = in_memory().map_or_else(|| (tempfile::tempdir().unwrap(), 3_000), |t| (t, 100_000));
    chain(t.path(), depth);
    let used = used(t.path());
    assert_eq!((used.entries, used.complete), (3 * depth as u64 + 1, true));
    let bound = UsageBound { entries: 5000, ..ALL };
    let cut = usage(handle(t.path()).as_fd(), &bound);
    assert_eq!((cut.entries, cut.complete, cut.exceeds(&bound)), (5001, false, true));
    remove(t.path(), "deep").unwrap();
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 0);
}

#[test]
fn deeper_than_the_descriptors_and_branched() {
    let t = tempfile::tempdir().unwrap();
    chain(t.path(), 500);
    // Branches at levels that stay open, that are closed, and at the edge.
    for level in [1, 15, 16, 17, 33, 400] {
        let at = t.path().join("deep").join(vec!["d"; level].join("/"));
        for name in ["a", "z"] {
            fs::create_dir(at.join(name)).unwrap();
            chain(&at.join(name), 40);
        }
    }
    let used = used(t.path());
    assert_eq!((used.entries, used.complete), (1 + 3 * 500 + 12 * (2 + 3 * 40), true));
    remove(t.path(), "deep").unwrap();
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 0);
}

#[test]
fn wide_directories() {
    let t = in_memory().unwrap_or_else(|| tempfile::tempdir().unwrap());
    fs::create_dir_all(t.path().join("wide/sub")).unwrap();
    for i in 0..20_000 {
        fs::write(t.path().join(format!("wide/sub/{i}")), "").unwrap();
    }
    // Each is not empty, so each moves up: the top itself gets wide.
    for i in 0..5_000 {
        fs::create_dir_all(t.path().join(format!("wide/sub/d{i}/x/y"))).unwrap();
    }
    assert_eq!(used(t.path()).entries, 2 + 20_000 + 15_000);
    remove(t.path(), "wide").unwrap();
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 0);
}

#[test]
fn names_like_those_given_in_passing_are_no_obstacle() {
    let t = tempfile::tempdir().unwrap();
    for i in 0..3 {
        fs::create_dir_all(t.path().join(format!("tree/.creel-rm-{i}/a/b/.creel-rm-1"))).unwrap();
        fs::write(t.path().join(format!("tree/.creel-rm-{i}/a/.creel-rm-0")), "").unwrap();
    }
    remove(t.path(), "tree").unwrap();
    assert_eq!(fs::read_dir(t.path()).unwrap().count(), 0);
}

#[test]
fn modes_that_keep_the_owner_out() {
    if !as_nobody("modes_that_keep_the_owner_out") {
        return;
    }
    let t = tempfile::tempdir().unwrap();
    let root = t.path().join("tree");
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir_all(root.join("list/in")).unwrap();
    fs::create_dir_all(root.join("search/in/x")).unwrap();
    fs::write(root.join("a/b/c/file"), vec![1; 100_000]).unwrap();
    fs::write(root.join("list/file"), vec![1; 100_000]).unwrap();
    let set =
        |path: &str, mode| fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    for (path, mode) in
        [("a/b/c", 0), ("a/b", 0), ("a", 0o500), ("list", 0o400), ("search/in", 0o100), ("search", 0o100)]
    {
        set(path, mode);
    }
    let counted = used(t.path());
    assert_eq!((counted.entries, counted.complete), (11, true));
    assert!(counted.bytes >= 200_000, "{counted:?}");
    for (path, mode) in [("a/b", 0), ("list", 0o400), ("search", 0o100)] {
        assert_eq!(
            fs::metadata(root.join(path)).unwrap().mode() & 0o777,
            mode,
            "the mode of {path} is as before"
        );
    }
    set("", 0);
    assert_eq!(used(&root).entries, 10, "the top itself");
    remove(t.path(), "tree").unwrap();
    assert!(!root.exists());
}

#[test]
fn immutable_and_append_only_entries_go_when_we_may() {
    let t = tempfile::tempdir().unwrap();
    fs::create_dir_all(t.path().join("tree/dir/sub")).unwrap();
    fs::write(t.path().join("tree/dir/file"), "").unwrap();
    fs::write(t.path().join("tree/dir/sub/file"), "").unwrap();
    for (path, flag) in [
        ("tree/dir/file", IFlags::IMMUTABLE),
        ("tree/dir/sub/file", IFlags::APPEND),
        ("tree/dir/sub", IFlags::IMMUTABLE),
        ("tree/dir", IFlags::APPEND),
        ("tree", IFlags::IMMUTABLE),
    ] {
        let fd = open(t.path().join(path), OFlags::RDONLY, Mode::empty()).unwrap();
        let set = rustix::fs::ioctl_getflags(&fd).and_then(|f| rustix::fs::ioctl_setflags(&fd, f | flag));
        if let Err(e) = set {
            remove(t.path(), "tree").unwrap();
            return println!("skipped: no such flags here ({e})");
        }
    }
    remove(t.path(), "tree").unwrap();
    assert!(!t.path().join("tree").exists());
}

#[test]
fn what_cannot_be_removed_is_named_and_the_rest_goes() {
    // A mount in the tree, in a mount namespace of its own.
    let Some(dir) = std::env::var_os("CREEL_TEST_MOUNT") else {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: a mount takes root");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/a/m")).unwrap();
        let name = "sandbox::tree::tests::what_cannot_be_removed_is_named_and_the_rest_goes";
        let script = r#"mount -t tmpfs none "$CREEL_TEST_MOUNT/tree/a/m" && exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
        command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
        return run(command.env("CREEL_TEST_MOUNT", dir.path()));
    };
    let dir = Path::new(&dir);
    fs::write(dir.join("tree/a/m/precious"), vec![1; 1 << 20]).unwrap();
    for i in 0..50 {
        fs::create_dir_all(dir.join(format!("tree/{i}/x"))).unwrap();
        fs::write(dir.join(format!("tree/a/{i}")), "").unwrap();
    }
    let used = used(&dir.join("tree"));
    assert!(used.bytes < 1 << 20 && used.complete, "what is mounted there is not counted: {used:?}");
    let error = remove(dir, "tree").unwrap_err().to_string();
    assert!(error.contains("\"m\""), "{error}");
    let left = Command::new("find").arg(dir.join("tree")).output().unwrap().stdout;
    let left = String::from_utf8(left).unwrap();
    assert_eq!(left.lines().count(), 4, "{left}");
    assert!(left.contains("/m/precious"), "{left}");
    let mount = left.lines().find(|l| l.ends_with("/m")).unwrap();
    assert!(Command::new("umount").arg(mount).status().unwrap().success());
    remove(dir, "tree").unwrap();
}

#[test]
fn a_tree_that_changes_while_it_is_walked() {
    let t = tempfile::tempdir().unwrap();
    let (tree, outside) = (t.path().join("tree"), t.path().join("outside"));
    fs::create_dir_all(outside.join("big")).unwrap();
    fs::write(outside.join("big/file"), vec![1; 8 << 20]).unwrap();
    fs::create_dir(&tree).unwrap();
    chain(&tree, 60);
    fs::create_dir(t.path().join("side")).unwrap();
    symlink(&outside, t.path().join("side/link")).unwrap();
    fs::create_dir(tree.join("swapped")).unwrap();
    let middle = tree.join("deep").join(["d"; 30].join("/"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // A directory for a link out of the tree, files that come and go, and a branch that leaves the tree.
                let (a, b) = (tree.join("swapped"), t.path().join("side/link"));
                renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
                fs::write(tree.join("flicker"), "x").unwrap();
                fs::remove_file(tree.join("flicker")).unwrap();
                fs::rename(&middle, outside.join("moved")).unwrap();
                fs::rename(outside.join("moved"), &middle).unwrap();
            }
        });
        let _stop = StopOnDrop(&stop);
        for _ in 0..1000 {
            let used = used(&tree);
            assert!(used.bytes < 8 << 20 && used.entries < 400, "went out of the tree: {used:?}");
        }
    });
    // And while it is removed: what is outside stays.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let name = tree.join(format!("s{}", i % 7));
                let _ = fs::create_dir_all(name.join("x"));
                let _ = renameat_with(CWD, &name, CWD, t.path().join("side/link"), RenameFlags::EXCHANGE);
            }
        });
        let _stop = StopOnDrop(&stop);
        for _ in 0..200 {
            let _ = remove(t.path(), "tree");
        }
    });
    let _ = remove(t.path(), "tree");
    assert_eq!(fs::metadata(outside.join("big/file")).unwrap().len(), 8 << 20);
}
