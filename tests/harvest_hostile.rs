//! What a run leaves in `/outputs` can't trick the harvest: no host file is read, nothing hangs, no disk is filled, and over
//! a limit nothing is kept (issue 2, item 8; lessons 9 and 10).

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, mknodat, open, renameat_with};

#[path = "harvest_hostile/support.rs"]
mod support;
use support::*;

#[test]
fn links_are_never_followed() {
    let t = Trial::new();
    fs::create_dir(t.out.join("real")).unwrap();
    t.write("real/a.txt", "mine");
    let secret = t.dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("canary.txt"), CANARY).unwrap();
    for (name, target) in [
        ("abs.txt", secret.join("canary.txt").to_str().unwrap()),
        ("rel.txt", "../secret/canary.txt"),
        ("dir", secret.to_str().unwrap()),
        ("up", ".."),
        ("inside", "real"),
        ("environ", "/proc/self/environ"),
        ("root", "/proc/1/root/etc/shadow"),
        ("fd", "/proc/self/fd/0"),
        ("dangling", "nowhere"),
        ("loop", "loop"),
    ] {
        symlink(target, t.out.join(name)).unwrap();
    }
    let h = t.harvest().unwrap();
    assert_eq!(paths(&h), ["real/a.txt"]);
    assert_eq!(h.skipped.len(), 10);
    assert!(h.skipped.iter().all(|s| s.reason.contains("symbolic link")), "{h:?}");
    assert_eq!(listing(&t.dest), ["real", "real/a.txt"]);
}

#[test]
fn fifos_sockets_and_devices_are_skipped_without_a_hang() {
    let t = Trial::new();
    t.write("z.txt", "z");
    mknodat(CWD, t.out.join("fifo.csv"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let _socket = UnixListener::bind(t.out.join("socket")).unwrap();
    let mut expected = vec!["fifo.csv", "socket"];
    let zero = rustix::fs::makedev(1, 5);
    if mknodat(CWD, t.out.join("char"), FileType::CharacterDevice, Mode::RUSR, zero).is_ok() {
        mknodat(CWD, t.out.join("block"), FileType::BlockDevice, Mode::RUSR, rustix::fs::makedev(7, 0))
            .unwrap();
        expected.splice(0..0, ["block", "char"]);
    } else {
        println!("no devices tried: making one takes root");
    }
    let h = t.harvest().unwrap();
    assert_eq!(paths(&h), ["z.txt"]);
    assert_eq!(h.skipped.iter().map(|s| &*s.name).collect::<Vec<_>>(), expected);
    assert_eq!(listing(&t.dest), ["z.txt"]);
}

#[test]
fn each_name_of_a_hard_linked_file_is_a_copy_and_counts() {
    let t = Trial::new();
    t.write("a.bin", &"x".repeat(1000));
    fs::hard_link(t.out.join("a.bin"), t.out.join("b.bin")).unwrap();
    let h = t.harvest().unwrap();
    assert_eq!(paths(&h), ["a.bin", "b.bin"]);
    assert_eq!(fs::metadata(t.dest.join("a.bin")).unwrap().nlink(), 1);
    // Else a thousand names of one 50 MB file would put 50 GB on the caller's disk.
    let limits = HarvestLimits { bytes: 1999, ..LIMITS };
    assert_eq!(code(t.harvest_with(&limits, None)), "outputs.too_large");
}

#[test]
fn odd_names() {
    let t = Trial::new();
    let long = "n".repeat(255);
    let good = ["...", "a b", "back\\slash", "图表/图.png", "报告/销售汇总.xlsx", &long, "-rf", "名\u{301}"];
    for name in good {
        t.write(name, name);
    }
    let bad: [&[u8]; 7] =
        [b"\xff\xfe.txt", b"a\nb", b"\x1b[31m", b"tab\t", b"d\xe9/in.txt", b"x\x7f", "\u{202e}".as_bytes()];
    for name in bad {
        t.write_bytes(name, "odd");
    }
    t.write(".creel-0123456789abcdef-7.tmp", "looks like creel's own");
    let h = t.harvest().unwrap();
    let mut expected: Vec<_> = good.iter().map(|n| n.to_string()).collect();
    expected.sort();
    assert_eq!(paths(&h), expected);
    for (name, p) in expected.iter().zip(&h.produced) {
        assert_eq!(fs::read_to_string(t.dest.join(name)).unwrap(), *name);
        assert_eq!(p.sha256, sha256sum(&t.dest.join(name)));
        assert_eq!(p.size, name.len() as u64);
    }
    assert_eq!(h.produced.iter().find(|p| p.name == "销售汇总.xlsx").unwrap().path, "报告/销售汇总.xlsx");
    let skipped: Vec<_> = h.skipped.iter().map(|s| &*s.name).collect();
    for name in ["\\xff\\xfe.txt", "a\\x0ab", "\\x1b[31m", "tab\\x09", "d\\xe9", "x\\x7f", "\\xe2\\x80\\xae"]
    {
        assert!(skipped.contains(&name), "{name} in {skipped:?}");
    }
    assert_eq!(skipped.len(), 8);
}

#[test]
fn paths_longer_than_a_program_can_open_are_skipped() {
    let t = Trial::new();
    let mut at = open(&t.out, OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..20 {
        let name = "d".repeat(250);
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &name, OFlags::PATH, Mode::empty()).unwrap();
    }
    rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    let h = t.harvest().unwrap();
    assert!(h.produced.is_empty() && !t.dest.exists());
    assert!(h.skipped[0].reason.contains("longer than") && h.skipped[0].name.len() < 600, "{h:?}");
    drop(at);
    creel::sandbox::tree::remove_tree(
        open(t.dir.path(), OFlags::PATH, Mode::empty()).unwrap().as_fd(),
        "out".as_ref(),
    )
    .unwrap();
}

#[test]
fn what_belongs_to_another_user_is_skipped() {
    let t = Trial::new();
    t.write("mine", "mine");
    t.write("theirs", "theirs");
    t.write("dir/inner", "theirs");
    if std::os::unix::fs::chown(t.out.join("theirs"), Some(12345), None).is_err() {
        return println!("skipped: giving a file away takes root");
    }
    std::os::unix::fs::chown(t.out.join("dir"), Some(12345), None).unwrap();
    let me = fs::metadata(t.out.join("mine")).unwrap().uid();
    let h = t.harvest_with(&LIMITS, Some(me)).unwrap();
    assert_eq!(paths(&h), ["mine"]);
    assert!(h.skipped.len() == 2 && h.skipped.iter().all(|s| s.reason.contains("12345")), "{h:?}");
}

#[test]
fn modes_that_keep_the_owner_out_do_not_keep_the_harvest_out() {
    if !as_nobody("modes_that_keep_the_owner_out_do_not_keep_the_harvest_out") {
        return;
    }
    let t = Trial::new();
    t.write("none", "mode 000");
    t.write("dir/inner/file", "below mode 000");
    t.write("list/file", "no right to search");
    t.write("search/file", "no right to list");
    for (name, mode) in
        [("none", 0), ("dir/inner/file", 0o200), ("dir/inner", 0), ("dir", 0), ("list", 0o400)]
    {
        t.chmod(name, mode);
    }
    t.chmod("search", 0o100);
    t.chmod("", 0);
    // Opened as a handle, the only way that is left.
    let h = t.harvest().unwrap();
    assert_eq!(paths(&h), ["dir/inner/file", "list/file", "none", "search/file"]);
    assert_eq!(h.skipped, []);
    assert_eq!(fs::read_to_string(t.dest.join("dir/inner/file")).unwrap(), "below mode 000");
}

#[test]
fn a_live_attacker_swapping_files_gets_nothing_in() {
    let t = Trial::in_memory();
    let secret = t.dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("canary.txt"), CANARY).unwrap();
    let side = t.dir.path().join("side");
    fs::create_dir(&side).unwrap();
    // As long as the canary, so that the size alone tells nothing.
    t.write("file.txt", &"-".repeat(CANARY.len()));
    t.write("dir/canary.txt", &"-".repeat(CANARY.len()));
    t.write("pipe.txt", "-");
    symlink(secret.join("canary.txt"), side.join("file.txt")).unwrap();
    symlink(&secret, side.join("dir")).unwrap();
    mknodat(CWD, side.join("pipe.txt"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let stop = Stop::default();
    let mut kept = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.0.load(Ordering::Relaxed) {
                for name in ["file.txt", "dir", "pipe.txt"] {
                    let (a, b) = (t.out.join(name), side.join(name));
                    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        for _ in 0..3000 {
            let dest = t.dir.path().join("dest");
            let h = harvest_to(&t.out, &dest, &LIMITS, None).unwrap();
            kept += h.produced.len();
            for path in listing(&dest).iter().map(|p| dest.join(p)).filter(|p| p.is_file()) {
                assert!(
                    !path.is_symlink() && !fs::read_to_string(&path).unwrap().contains(CANARY),
                    "{path:?}"
                );
            }
        }
    });
    println!("{kept} files kept in 3000 rounds");
}

#[test]
fn mounts_are_not_crossed() {
    let Some(small) = in_small_mount("mounts_are_not_crossed") else {
        return;
    };
    // The mount lies in the outputs, then in the destination.
    let out = small.parent().unwrap();
    fs::write(small.join("other.txt"), CANARY).unwrap();
    fs::write(out.join("a.txt"), "a").unwrap();
    let t = Trial::new();
    let h = harvest_to(out, &t.dest, &LIMITS, None).unwrap();
    assert_eq!((paths(&h), &*h.skipped[0].name), (vec!["a.txt".to_owned()], "small"));
    t.write("small/new.txt", "new");
    let h = harvest_to(&t.out, out, &LIMITS, None).unwrap();
    assert!(h.produced.is_empty() && h.skipped[0].reason.contains("mounted"), "{h:?}");
    assert_eq!(listing(&small), ["other.txt"]);
}

fn sha256sum(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum")
        .arg("-b")
        .arg("--")
        .stdin(fs::File::open(path).unwrap())
        .arg("-")
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap().split(' ').next().unwrap().to_owned()
}
