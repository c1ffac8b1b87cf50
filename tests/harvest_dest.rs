//! The harvest's other end: what is at the destination is safe, files come whole or not at all, and nothing of creel's stays
//! (issue 2, items 8 and 9).

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

#[path = "harvest_hostile/support.rs"]
mod support;
use support::*;

#[test]
fn what_is_at_the_destination_is_replaced_only_if_it_is_a_regular_file() {
    let t = Trial::new();
    for name in ["file", "link", "dir", "fifo", "sub/a", "sub/deep/b", "linked/c", "blocked/d"] {
        t.write(name, "new");
    }
    t.chmod("file", 0o4777);
    let other = t.dir.path().join("other");
    fs::create_dir_all(other.join("keep")).unwrap();
    fs::write(other.join("target"), "old").unwrap();
    fs::create_dir_all(t.dest.join("dir")).unwrap();
    fs::create_dir_all(t.dest.join("sub")).unwrap();
    fs::write(t.dest.join("file"), "old and longer").unwrap();
    fs::write(t.dest.join("blocked"), "old").unwrap();
    symlink(other.join("target"), t.dest.join("link")).unwrap();
    symlink(other.join("keep"), t.dest.join("linked")).unwrap();
    mknodat(CWD, t.dest.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let h = t.harvest().unwrap();
    assert_eq!(paths(&h), ["file", "sub/a", "sub/deep/b"]);
    let skipped: Vec<_> = h.skipped.iter().map(|s| &*s.name).collect();
    assert_eq!(skipped, ["blocked/d", "dir", "fifo", "link", "linked/c"]);
    assert!(h.skipped.iter().all(|s| s.reason.contains("in the output directory")), "{h:?}");
    assert_eq!(fs::read_to_string(t.dest.join("file")).unwrap(), "new");
    assert_eq!(fs::metadata(t.dest.join("file")).unwrap().permissions().mode() & 0o7133, 0);
    assert_eq!(fs::read_to_string(other.join("target")).unwrap(), "old");
    assert_eq!(listing(&other), ["keep", "target"]);
    assert!(
        t.dest.join("link").is_symlink() && t.dest.join("fifo").metadata().unwrap().file_type().is_fifo()
    );
    let expected =
        ["blocked", "dir", "fifo", "file", "link", "linked", "sub", "sub/a", "sub/deep", "sub/deep/b"];
    assert_eq!(listing(&t.dest), expected);
}

#[test]
fn the_destination_is_made_with_parents_and_only_when_needed() {
    let t = Trial::new();
    fs::create_dir(t.out.join("empty")).unwrap();
    let dest = t.dir.path().join("x/y/z");
    assert_eq!(harvest_to(&t.out, &dest, &LIMITS, None).unwrap().produced, []);
    assert!(!t.dir.path().join("x").exists());
    t.write("a", "a");
    harvest_to(&t.out, &dest, &LIMITS, None).unwrap();
    assert_eq!(listing(&dest), ["a"]);
    for (path, what) in [(dest.join("a"), "not a directory"), (dest.join("a/b"), "not a directory")] {
        let error = harvest_to(&t.out, &path, &LIMITS, None).unwrap_err().to_string().to_lowercase();
        assert!(error.contains(what) && error.contains("z/a"), "{error}");
    }
    symlink("nowhere", t.dir.path().join("dangling")).unwrap();
    assert!(harvest_to(&t.out, &t.dir.path().join("dangling"), &LIMITS, None).is_err());
}

#[test]
fn a_full_disk_keeps_nothing_and_spoils_nothing() {
    let Some(small) = in_small_mount("a_full_disk_keeps_nothing_and_spoils_nothing") else {
        return;
    };
    let t = Trial::new();
    t.write("a.txt", "new");
    t.write("b/big.bin", &"x".repeat(200_000));
    fs::write(small.join("a.txt"), "old").unwrap();
    let dest = small.clone();
    let error = harvest_to(&t.out, &dest, &LIMITS, None).unwrap_err();
    assert!(matches!(error, HarvestError::Io { .. }), "{error:?}");
    assert!(
        error.to_string().contains("b/big.bin") && error.to_string().contains("No space left"),
        "{error}"
    );
    assert_eq!(listing(&dest), ["a.txt"]);
    assert_eq!(fs::read_to_string(dest.join("a.txt")).unwrap(), "old");
    // A destination that was made for this goes again.
    harvest_to(&t.out, &small.join("new/dest"), &LIMITS, None).unwrap_err();
    assert_eq!(listing(&small), ["a.txt"]);
}

#[test]
fn a_failed_rename_takes_the_others_back() {
    if !as_nobody("a_failed_rename_takes_the_others_back") {
        return;
    }
    let t = Trial::new();
    t.write("a.txt", "a");
    t.write("b/b.txt", "b");
    t.write("c/c.txt", "c");
    fs::create_dir_all(t.dest.join("c")).unwrap();
    fs::set_permissions(t.dest.join("c"), fs::Permissions::from_mode(0o555)).unwrap();
    let error = t.harvest().unwrap_err();
    assert!(error.to_string().contains("c/c.txt"), "{error}");
    assert_eq!(listing(&t.dest), ["c"]);
}

#[test]
fn what_a_killed_harvest_left_goes_unless_another_is_at_work() {
    let t = Trial::new();
    t.write("a", "a");
    let left = ".creel-00000000000000aa-12.tmp";
    fs::create_dir_all(t.dest.join(".creel-00000000000000bb-1.tmp/kept")).unwrap();
    fs::write(t.dest.join(".creel-mine.tmp"), "kept").unwrap();
    fs::write(t.dest.join(left), "half a file").unwrap();
    // A live harvest's hold on the directory.
    let lock = open(&t.dest, OFlags::RDONLY, Mode::empty()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared).unwrap();
    t.harvest().unwrap();
    assert!(t.dest.join(left).exists());
    // Somebody's own lock on the directory holds nothing up.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(paths(&t.harvest().unwrap()), ["a"]);
    drop(lock);
    t.harvest().unwrap();
    let kept =
        [".creel-00000000000000bb-1.tmp", ".creel-00000000000000bb-1.tmp/kept", ".creel-mine.tmp", "a"];
    assert_eq!(listing(&t.dest), kept);
}

#[test]
fn many_harvests_into_one_destination_do_not_disturb_each_other() {
    let t = Trial::new();
    for i in 0..20 {
        t.write(&format!("d{}/{i}", i % 3), "x");
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(t.harvest().unwrap().produced.len(), 20);
                }
            });
        }
    });
    assert_eq!(listing(&t.dest).len(), 23, "no temporary file is left");
}
