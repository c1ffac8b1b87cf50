//! What counts, and what doesn't.

use super::*;

#[test]
fn usage_counts_blocks_once_and_holes_not() {
    let t = tempfile::tempdir().unwrap();
    let empty = used(t.path()).bytes;
    fs::write(t.path().join("full"), vec![1; 1 << 20]).unwrap();
    fs::File::create(t.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
    for i in 0..100 {
        fs::hard_link(t.path().join("full"), t.path().join(format!("link{i}"))).unwrap();
    }
    let used = used(t.path());
    assert_eq!((used.entries, used.complete), (102, true));
    let grown = used.bytes - empty;
    assert!((1 << 20..(1 << 20) + (1 << 16)).contains(&grown), "{grown}");
    let bound = UsageBound { bytes: 1 << 19, ..ALL };
    let over = usage(handle(t.path()).as_fd(), &bound);
    assert!(over.exceeds(&bound) && !over.complete);
}

#[test]
fn what_is_not_a_directory_has_no_usage_and_is_not_complete() {
    let t = tempfile::tempdir().unwrap();
    let file = t.path().join("file");
    fs::write(&file, "x").unwrap();
    let fd = open(&file, OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(usage(fd.as_fd(), &ALL), Usage { bytes: 0, entries: 0, complete: false });
}
