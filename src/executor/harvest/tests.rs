//! What changes between the two phases: nothing may any more, and if it does nevertheless, nothing wrong is kept.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use super::*;

const CANARY: &str = "root:$y$canary";

/// Harvests `a.txt`, `d/b.txt` and `same.txt`, with `change` between looking and copying.
fn changed_between(change: impl Fn(&Path)) -> (Vec<String>, Vec<Skipped>) {
    let t = tempfile::tempdir().unwrap();
    let (out, dest) = (t.path().join("out"), t.path().join("dest"));
    fs::create_dir_all(out.join("d")).unwrap();
    fs::create_dir(t.path().join("secret")).unwrap();
    // All of one size: nothing is told by that.
    for path in ["out/a.txt", "out/d/b.txt", "out/same.txt"] {
        fs::write(t.path().join(path), "-".repeat(CANARY.len())).unwrap();
    }
    for path in ["secret/a.txt", "secret/b.txt"] {
        fs::write(t.path().join(path), CANARY).unwrap();
    }
    let fd = open(&out, OFlags::PATH, Mode::empty()).unwrap();
    let limits = HarvestLimits { bytes: 1000, files: 10, depth: 2 };
    let walk::Found { files, mut skips } = walk::walk(fd.as_fd(), &limits, None).unwrap();
    assert_eq!(files.len(), 3);
    change(&out);
    let produced = copy::keep(fd.as_fd(), files, &dest, &mut skips).unwrap();
    let mut kept = Vec::new();
    for p in produced {
        assert_eq!(fs::read_to_string(dest.join(&p.path)).unwrap(), "-".repeat(CANARY.len()));
        kept.push(p.path);
    }
    let left: Vec<_> = fs::read_dir(&dest).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n.to_string_lossy().starts_with(".creel")), "{left:?}");
    (kept, skips.into_list())
}

fn a_is_left_out(change: impl Fn(&Path)) {
    let (kept, skipped) = changed_between(change);
    assert_eq!(kept, ["d/b.txt", "same.txt"]);
    assert_eq!(skipped, [Skipped { name: "a.txt".into(), reason: walk::CHANGED.into() }]);
}

#[test]
fn a_file_that_became_something_else_is_left_out() {
    a_is_left_out(|out| fs::remove_file(out.join("a.txt")).unwrap());
    a_is_left_out(|out| {
        fs::remove_file(out.join("a.txt")).unwrap();
        symlink("../secret/a.txt", out.join("a.txt")).unwrap();
    });
    a_is_left_out(|out| {
        fs::remove_file(out.join("a.txt")).unwrap();
        symlink("same.txt", out.join("a.txt")).unwrap();
    });
    a_is_left_out(|out| {
        fs::remove_file(out.join("a.txt")).unwrap();
        mknodat(CWD, out.join("a.txt"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    });
    // As a rename from elsewhere would do it; the size is the same.
    a_is_left_out(|out| fs::rename(out.join("../secret/a.txt"), out.join("a.txt")).unwrap());
}

#[test]
fn a_file_that_grew_or_shrank_is_left_out() {
    a_is_left_out(|out| fs::write(out.join("a.txt"), "x".repeat(1_000_000)).unwrap());
    a_is_left_out(|out| fs::write(out.join("a.txt"), "x").unwrap());
}

#[test]
fn a_directory_that_became_a_link_is_not_entered() {
    for target in ["../secret", ".", "moved"] {
        let (kept, skipped) = changed_between(|out| {
            fs::rename(out.join("d"), out.join("moved")).unwrap();
            symlink(target, out.join("d")).unwrap();
        });
        assert_eq!(kept, ["a.txt", "same.txt"]);
        assert_eq!(skipped, [Skipped { name: "d/b.txt".into(), reason: walk::CHANGED.into() }]);
    }
}
