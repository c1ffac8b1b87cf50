use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use creel::image::oci::Digest;
use creel::image::unpack::{LayerRecord, PathBytes, UnpackError};

use crate::support::*;

fn done(t: &Trial, parts: &[Vec<u8>]) -> LayerRecord {
    t.unpack(&tar(parts)).unwrap().record
}

fn paths(list: &[PathBytes]) -> Vec<&str> {
    list.iter().map(|p| std::str::from_utf8(&p.0).unwrap()).collect()
}

#[test]
fn files_directories_and_links() {
    let t = Trial::new();
    let parts = [
        dir("./"),
        dir("./etc/"),
        file("./etc/a", "hello"),
        Head::new(b'7', "contiguous").content("c").bytes(),
        Head::new(0, "old").magic(V7).content("v7").bytes(),
        Head::new(0, "olddir/").magic(V7).bytes(),
        symlink("abs", "/etc/passwd"),
        symlink("up", "../../outside/secret"),
        symlink("odd", "\x1b[2J\n技能"),
        hard_link("b", "./etc/a"),
        file("no/parents/here", "x"),
        dir("報告/图/"),
        file("報告/图/销售.csv", "数据"),
    ];
    let stream = tar(&parts);
    let unpacked = t.unpack(&stream).unwrap();
    assert_eq!(unpacked.diff_id, Digest::of(&stream));
    assert_eq!(unpacked.tar_bytes, stream.len() as u64);
    assert!(unpacked.end_mark);
    let record = unpacked.record;
    assert_eq!((record.entries, record.bytes), (13, 5 + 1 + 2 + 1 + 6));
    assert_eq!(paths(&record.implied), ["no", "no/parents", "報告"]);
    assert_eq!(record.dropped, [""; 0]);
    assert_eq!(
        (t.text("etc/a"), t.text("contiguous"), t.text("old")),
        ("hello".into(), "c".into(), "v7".into())
    );
    assert_eq!(t.text("報告/图/销售.csv"), "数据");
    assert_eq!(t.stat("etc/a").ino(), t.stat("b").ino());
    assert!(t.stat("olddir").is_dir());
    assert_eq!(fs::read_link(t.path("abs")).unwrap().to_str(), Some("/etc/passwd"));
    assert_eq!(fs::read_link(t.path("up")).unwrap().to_str(), Some("../../outside/secret"));
    assert_eq!(fs::read_link(t.path("odd")).unwrap().to_str(), Some("\x1b[2J\n技能"));
    assert_eq!(t.mode("no/parents"), 0o755);
}

#[test]
fn all_compressions_give_the_same() {
    let stream = tar(&[file("a", "hello"), dir("d")]);
    for compressed in [stream.clone(), gz(&stream), zst(&stream)] {
        let t = Trial::new();
        assert_eq!(t.unpack(&compressed).unwrap().diff_id, Digest::of(&stream));
        assert_eq!(t.text("a"), "hello");
    }
    // What follows the end of the archive is a part of the digest.
    let long = [&stream[..], &[0; 10_000]].concat();
    assert_eq!(Trial::new().unpack(&gz(&long)).unwrap().diff_id, Digest::of(&long));
}

#[test]
fn names_are_bytes() {
    let t = Trial::new();
    let names: [&[u8]; 10] = [
        b"\xff\xfe.bin",
        b"a\nb",
        b"\x1b[31mred",
        b"README",
        b"readme",
        b"back\\slash",
        b"...",
        b" ",
        b"-rf",
        "é".as_bytes(),
    ];
    let mut parts: Vec<_> = names.iter().map(|n| file(n, n)).collect();
    // The other way to write é is another name.
    parts.push(file("e\u{301}", "decomposed"));
    parts.push([pax(&[("path", b"d\xff/long\n\x1b")]), file("x", "pax")].concat());
    done(&t, &parts);
    for name in names {
        assert_eq!(fs::read(t.path(OsStr::from_bytes(name))).unwrap(), name);
    }
    assert_eq!(t.text(OsStr::from_bytes(b"d\xff/long\n\x1b")), "pax");
    assert_eq!(fs::read_dir(t.target()).unwrap().count(), 12);
}

#[test]
fn long_names() {
    let t = Trial::new();
    let component = "n".repeat(255);
    let path = format!("{}/{component}", ["目录".repeat(20).as_str(); 25].join("/"));
    let deep = vec!["d"; 255].join("/");
    let parts = [
        [pax(&[("path", &path)]), file("x", "pax")].concat(),
        [gnu_long(b'L', &deep), Head::new(b'0', "x").magic(GNU).content("gnu").bytes()].concat(),
        [gnu_long(b'K', &path), gnu_long(b'L', "link"), Head::new(b'2', "x").magic(GNU).bytes()].concat(),
        [pax(&[("path", "hard"), ("linkpath", &path)]), hard_link("x", "y")].concat(),
        Head::new(b'0', "name").patch(345, "the/prefix").content("ustar").bytes(),
    ];
    done(&t, &parts);
    assert_eq!((t.text(&path), t.text(&deep)), ("pax".into(), "gnu".into()));
    assert_eq!(fs::read_link(t.path("link")).unwrap().to_str(), Some(&*path));
    assert_eq!(t.stat("hard").ino(), t.stat(&path).ino());
    assert_eq!(t.text("the/prefix/name"), "ustar");
}

#[test]
fn what_comes_twice() {
    let t = Trial::new();
    let parts = [
        file("a", "first, and longer"),
        Head::new(b'0', "a").mode(0o600).content("second").bytes(),
        symlink("a2", "a"),
        file("a2", "third"),
        file("a3", "x"),
        symlink("a3", "a"),
        dir("d"),
        file("d/x", "x"),
        Head::new(b'5', "d").mode(0o700).bytes(),
        file("h", "h"),
        hard_link("a4", "a"),
        hard_link("a4", "h"),
        // GNU tar writes this for a file named twice.
        hard_link("h", "h"),
        hard_link("a4", "h"),
    ];
    done(&t, &parts);
    assert_eq!((t.text("a"), t.mode("a")), ("second".into(), 0o600));
    assert_eq!((t.text("a2"), t.text("d/x"), t.mode("d")), ("third".into(), "x".into(), 0o700));
    assert!(t.stat("a3").is_symlink());
    assert_eq!((t.text("h"), t.stat("h").ino()), ("h".into(), t.stat("a4").ino()));
}

#[test]
fn modes_whatever_the_umask() {
    let t = Trial::new();
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
    let of = |kind, name: &str, mode, uid, gid| Head::new(kind, name).mode(mode).owner(uid, gid).bytes();
    let result = t.unpack(&tar(&[
        of(b'5', "./", 0o751, 0, 0),
        of(b'5', "none", 0, 0, 0),
        of(b'0', "none/child", 0, 0, 0),
        of(b'5', "ro", 0o555, 0, 0),
        of(b'0', "ro/child", 0o444, 0, 0),
        of(b'5', "sticky", 0o1777, 0, 0),
        of(b'0', "su", 0o4755, 0, 0),
        of(b'0', "sg", 0o2755, 0, 0),
        of(b'5', "sgdir", 0o2775, 0, 0),
        of(b'0', "both", 0o6711, 0, 0),
        of(b'0', "mine", 0o700, 10001, 0),
        of(b'0', "ours", 0o650, 0, 10001),
        of(b'0', "theirs", 0o600, 10000, 10000),
        [pax(&[("uid", "10001")]), of(b'0', "pax", 0o600, 0, 0)].concat(),
        of(b'0', "bits", 0o100644, 0, 0),
        file("implied/x", ""),
    ]));
    rustix::process::umask(old);
    let record = result.unwrap().record;
    for (name, mode) in [
        ("", 0o751),
        ("none", 0o700),
        ("none/child", 0o400),
        ("ro", 0o755),
        ("ro/child", 0o444),
        ("sticky", 0o1777),
        ("su", 0o755),
        ("sg", 0o755),
        ("sgdir", 0o775),
        ("both", 0o711),
        ("mine", 0o705),
        ("ours", 0o655),
        ("theirs", 0o600),
        ("pax", 0o604),
        ("bits", 0o644),
        ("implied", 0o755),
    ] {
        assert_eq!(t.mode(name), mode, "{name}: {:o}", t.mode(name));
    }
    assert_eq!(record.dropped, ["2 setuid bits", "3 setgid bits"]);
    let me = fs::metadata(t.outside()).unwrap();
    assert!(
        ["mine", "ours", "none"].iter().all(|n| (t.stat(n).uid(), t.stat(n).gid()) == (me.uid(), me.gid()))
    );
}

#[test]
fn times_are_kept() {
    let t = Trial::new();
    let at = |mtime: &str, entry: Vec<u8>| [pax(&[("mtime", mtime)]), entry].concat();
    let parts = [
        at("1.5", dir("./")),
        at("1234567890.123456789", file("d/f", "x")),
        at("8589934591.999999999", file("last", "x")),
        at("77", dir("d")),
        at("99.25", symlink("d/s", "nowhere")),
        at("0", file("d/zero", "")),
        file("d/plain", ""),
    ];
    done(&t, &parts);
    let time = |name: &str| (t.stat(name).mtime(), t.stat(name).mtime_nsec());
    assert_eq!(time(""), (1, 500_000_000));
    assert_eq!(time("d/f"), (1234567890, 123456789));
    assert_eq!(time("last"), (8589934591, 999_999_999));
    // Though files were put into it later.
    assert_eq!(time("d"), (77, 0));
    assert_eq!(time("d/s"), (99, 250_000_000));
    assert_eq!(time("d/zero"), (0, 0));
    assert_eq!(time("d/plain"), (1_700_000_000, 0));
}

#[test]
fn whiteouts_are_recorded_and_not_made() {
    let t = Trial::new();
    let parts = [
        dir("a"),
        file("a/.wh.gone", ""),
        file("a/.wh.gone", ""),
        file("a/gone", "new"),
        file(".wh.top", ""),
        file("not/here/.wh.x", ""),
        file("opaque/dir/.wh..wh..opq", ""),
        file(".wh..wh..opq", ""),
        file(".wh....", ""),
        file(b".wh.\xff", ""),
        file("a/.wh.图", ""),
        file(".wh..wh.aufs", ""),
        dir(".wh..wh.plnk"),
        file(".wh..wh.plnk/1.2", "x"),
        file("a/wh.file", "x"),
        file("a/x.wh.y", "x"),
    ];
    let record = done(&t, &parts);
    let whiteouts: Vec<_> = record.whiteouts.iter().map(|p| p.0.as_slice()).collect();
    let expected: [&[u8]; 6] = [b"...", b"a/gone", "a/图".as_bytes(), b"not/here/x", b"top", b"\xff"];
    let mut sorted = expected.to_vec();
    sorted.sort();
    assert_eq!(whiteouts, sorted);
    assert_eq!(paths(&record.opaque), ["", "opaque/dir"]);
    assert_eq!(paths(&record.implied), ["", "opaque", "opaque/dir"]);
    assert_eq!(record.dropped, ["'.wh..wh.aufs' and 2 more files of AUFS"]);
    let mut top: Vec<_> = fs::read_dir(t.target()).unwrap().map(|e| e.unwrap().file_name()).collect();
    top.sort();
    assert_eq!(top, ["a", "opaque"]);
    let mut inner: Vec<_> = fs::read_dir(t.path("a")).unwrap().map(|e| e.unwrap().file_name()).collect();
    inner.sort();
    assert_eq!(inner, ["gone", "wh.file", "x.wh.y"]);
    // As the store keeps it.
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<LayerRecord>(&json).unwrap(), record);
}

#[test]
fn devices_beneath_creels_own_mounts_are_left_out() {
    let t = Trial::new();
    let parts = [
        dir("dev"),
        Head::new(b'3', "dev/null").bytes(),
        Head::new(b'3', "./dev/zero").bytes(),
        Head::new(b'4', "dev/disk/sda").bytes(),
        Head::new(b'6', "run/initctl").bytes(),
        Head::new(b'Z', "tmp/what").content("skipped").bytes(),
        file("after", "x"),
    ];
    let record = done(&t, &parts);
    assert_eq!(
        record.dropped,
        [
            "'run/initctl', a FIFO",
            "'dev/null' and 2 more device nodes",
            "'tmp/what', an entry of an unknown type"
        ]
    );
    assert_eq!(fs::read_dir(t.path("dev")).unwrap().count(), 0);
    assert_eq!(t.text("after"), "x");
}

#[test]
fn extended_attributes_are_dropped() {
    let t = Trial::new();
    let keys = [
        ("SCHILY.xattr.security.capability", "\x01\0\0\x02"),
        ("SCHILY.xattr.user.note", "x"),
        ("SCHILY.acl.access", "user::rwx"),
        ("RHT.security.selinux", "system_u:object_r:bin_t:s0"),
        ("LIBARCHIVE.xattr.user.other", "eA=="),
    ];
    let record =
        done(&t, &[[pax(&keys), file("a", "x")].concat(), [pax(&keys[..1]), file("b", "x")].concat()]);
    let listed = rustix::fs::llistxattr(t.path("a"), &mut [0u8; 1000][..]);
    assert!(matches!(listed, Ok(0) | Err(rustix::io::Errno::OPNOTSUPP)), "{listed:?}");
    assert!(record.dropped.contains(&"2 extended attributes 'security.capability'".to_owned()), "{record:?}");
    assert_eq!(record.dropped.len(), 5);
}

#[test]
fn sparse_files_keep_their_holes() {
    let t = Trial::new();
    let size = 64 << 20;
    let keys = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "dir/稀疏"),
        ("GNU.sparse.realsize", "67108864"),
    ];
    let content = [padded(b"2\n1048576\n5\n67108864\n0\n"), b"hello".to_vec()].concat();
    let record = done(&t, &[[pax(&keys), file("GNUSparseFile.1/x", content)].concat(), file("after", "x")]);
    assert_eq!(record.bytes, size + 1);
    let stat = t.stat("dir/稀疏");
    assert_eq!(stat.len(), size);
    assert!(stat.blocks() * 512 < 1 << 20, "{} blocks", stat.blocks());
    let bytes = fs::read(t.path("dir/稀疏")).unwrap();
    assert_eq!(&bytes[1 << 20..(1 << 20) + 6], b"hello\0");
}

#[test]
fn only_an_empty_directory_is_taken() {
    let t = Trial::new();
    fs::write(t.path("there"), "x").unwrap();
    assert!(matches!(t.unpack(&tar(&[file("a", "x")])), Err(UnpackError::NotEmpty)));
    assert_eq!(t.text("there"), "x");
}

#[test]
fn a_full_disk_is_named() {
    // A tmpfs of its own in a mount namespace of its own; as an ordinary user there is no such place.
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: a mount takes root");
    }
    if let Some(dir) = std::env::var_os("CREEL_TEST_SMALL") {
        let into = fs::File::open(dir).unwrap();
        let stream = tar(&[file("fits", "x"), file("usr/lib/large", vec![1; 300_000])]);
        let error = creel::image::unpack::layer(
            &stream[..],
            std::os::fd::AsFd::as_fd(&into),
            &creel::image::unpack::Limits::default(),
        )
        .unwrap_err();
        assert_eq!(error.code(), "image.layer_unwritable");
        assert!(error.is_host_fault());
        let text = error.to_string();
        assert!(text.contains("entry 'usr/lib/large'") && text.contains("creel image gc"), "{text}");
        return;
    }
    let dir = tempfile::TempDir::with_prefix("creel-test-").unwrap();
    let script = r#"mount -t tmpfs -o size=64k none "$CREEL_TEST_SMALL" && exec "$@""#;
    let status = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "semantics::a_full_disk_is_named", "--nocapture"])
        .env("CREEL_TEST_SMALL", dir.path())
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn permissions_do_not_stop_an_ordinary_user() {
    // The store of an ordinary user: modes that keep the owner out must not.
    if !rustix::process::geteuid().is_root() {
        let t = Trial::new();
        let dir000 = Head::new(b'5', "d").mode(0).bytes();
        let again = Head::new(b'5', "d").mode(0o111).bytes();
        let deep = Head::new(b'0', "d/e/f").mode(0).content("x").bytes();
        t.unpack(&tar(&[dir000, deep, hard_link("g", "d/e/f"), again, file("d/h", "")])).unwrap();
        assert_eq!((t.text("g"), t.mode("d")), ("x".into(), 0o711));
        t.clear();
        return;
    }
    let dir = tempfile::TempDir::with_prefix("creel-test-").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("test");
    // Not copied by this process: a child forked meanwhile would hold it open for writing (ETXTBSY).
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let status = std::os::unix::process::CommandExt::uid(&mut std::process::Command::new(program), 65534)
        .args(["--exact", "semantics::permissions_do_not_stop_an_ordinary_user", "--nocapture"])
        .current_dir("/")
        .status();
    assert!(status.unwrap().success());
}
