//! Over a limit nothing is harvested, and finding that out costs neither time nor disk (issue 2, item 8).

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

#[path = "harvest_hostile/support.rs"]
mod support;
use support::*;

#[test]
fn a_sparse_giant_is_refused_unread() {
    let t = Trial::new();
    t.write("a.txt", "small");
    fs::File::create(t.out.join("giant")).unwrap().set_len(1 << 40).unwrap();
    let error = t.harvest().unwrap_err();
    assert_eq!(error.code(), "outputs.too_large");
    assert!(error.to_string().contains("giant") && error.to_string().contains("1099511627776"), "{error}");
    assert!(!t.dest.exists(), "nothing may be created when the outputs are refused");
}

#[test]
fn sizes_cannot_overflow_the_sum() {
    let t = Trial::new();
    for i in 0..3 {
        let file = fs::File::create(t.out.join(format!("{i}"))).unwrap();
        // The most that ext4 takes is 16 TiB, tmpfs and xfs 8 EiB.
        file.set_len(i64::MAX as u64).or_else(|_| file.set_len((1 << 44) - 4096)).unwrap();
    }
    assert_eq!(code(t.harvest()), "outputs.too_large");
}

#[test]
fn the_limits_hold_exactly() {
    let t = Trial::new();
    t.write("a", "12345");
    t.write("b", "12345");
    let exact = HarvestLimits { bytes: 10, files: 2, depth: 0 };
    assert_eq!(paths(&t.harvest_with(&exact, None).unwrap()), ["a", "b"]);
    assert_eq!(code(t.harvest_with(&HarvestLimits { bytes: 9, ..exact }, None)), "outputs.too_large");
    assert_eq!(code(t.harvest_with(&HarvestLimits { files: 1, ..exact }, None)), "outputs.too_many_files");
    fs::create_dir(t.out.join("d")).unwrap();
    assert_eq!(code(t.harvest_with(&exact, None)), "outputs.too_deep");
    assert_eq!(paths(&t.harvest_with(&HarvestLimits { depth: 1, ..exact }, None).unwrap()), ["a", "b"]);
    assert_eq!(listing(&t.dest), ["a", "b"], "an empty directory is not kept");
}

#[test]
fn too_deep_and_too_many_are_refused_whole() {
    let t = Trial::new();
    t.write("a.txt", "a");
    let deep = ["d"; 32].join("/");
    fs::create_dir_all(t.out.join(&deep)).unwrap();
    t.write(&format!("{deep}/end.txt"), "end");
    assert_eq!(paths(&t.harvest().unwrap()), ["a.txt", &format!("{deep}/end.txt")]);
    fs::create_dir(t.out.join(&deep).join("d")).unwrap();
    assert_eq!(code(t.harvest()), "outputs.too_deep");

    let t = Trial::new();
    for i in 0..1001 {
        t.write(&format!("{i}"), "");
    }
    assert_eq!(code(t.harvest()), "outputs.too_many_files");
    assert!(!t.dest.exists());
    fs::remove_file(t.out.join("500")).unwrap();
    assert_eq!(t.harvest().unwrap().produced.len(), 1000);
}

#[test]
fn a_hundred_thousand_fifos_end_quickly() {
    let t = Trial::in_memory();
    t.write("a.txt", "a");
    for i in 0..100_000 {
        mknodat(CWD, t.out.join(format!("f{i}")), FileType::Fifo, Mode::RUSR, 0).unwrap();
    }
    let error = t.harvest().unwrap_err();
    assert_eq!(error.code(), "outputs.too_many_files");
    assert!(error.to_string().contains("11000 entries"), "{error}");
}

#[test]
fn the_list_of_skipped_entries_is_bounded_and_always_the_same() {
    let t = Trial::new();
    t.write("a.txt", "a");
    for i in 0..500 {
        symlink("/", t.out.join(format!("l{i:03}"))).unwrap();
    }
    let h = t.harvest().unwrap();
    assert_eq!(h.skipped.len(), 101);
    assert_eq!((&*h.skipped[0].name, &*h.skipped[99].name), ("l000", "l099"));
    assert!(h.skipped[100].reason.contains("and 400 more"), "{:?}", h.skipped[100]);
}
