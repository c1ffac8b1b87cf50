//! What GNU tar, bsdtar and Python's tarfile write is unpacked as GNU tar unpacks it, and the two others list it so.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::*;

/// A tree with what archives find hard to write.
fn plant(top: &Path) {
    let long = format!("{}/{}", "a-directory-with-a-long-name".repeat(5), "文件名".repeat(20));
    let deep = vec!["子目录"; 40].join("/");
    for (name, text) in [
        ("plain.txt", "plain"),
        ("empty", ""),
        ("512", &"x".repeat(512)[..]),
        ("513", &"x".repeat(513)),
        ("中文/数据.csv", "列一,列二\n"),
        (&long, "long"),
        (&format!("{deep}/底"), "deep"),
        ("a b", "space"),
        ("new\nline", "newline"),
        ("back\\slash\"'", "quotes"),
        ("-dash", "dash"),
        (&"p".repeat(100), "just 100"),
        (&"q".repeat(101), "101"),
        (&format!("{}/{}", "r".repeat(155), "s".repeat(100)), "all of ustar"),
        ("modes/exec", "x"),
        ("modes/none", "x"),
        ("ro/child", "x"),
    ] {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir(top.join("emptydir")).unwrap();
    for (name, mode) in
        [("modes/exec", 0o755), ("modes/none", 0o400), ("ro", 0o755), ("emptydir", 0o1777), ("modes", 0o711)]
    {
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::hard_link(top.join("plain.txt"), top.join("中文/hard")).unwrap();
    fs::hard_link(top.join(&long), top.join("hard-to-long")).unwrap();
    for (target, name) in [
        ("plain.txt", "sym"),
        ("/etc/passwd", "sym-abs"),
        ("../../nowhere", "中文/sym-up"),
        (&*long, "sym-long"),
        (&"目标".repeat(100), "sym-longer"),
    ] {
        std::os::unix::fs::symlink(target, top.join(name)).unwrap();
    }
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    for n in 0..40u64 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", n * 20_000).unwrap();
    }
    sparse.set_len(900_000).unwrap();
    fs::write(top.join("sparse-holes"), "").unwrap();
    fs::File::options().write(true).open(top.join("sparse-holes")).unwrap().set_len(500_000).unwrap();
}

/// What archives of the oldest kinds can't hold is left out of the tree.
fn simplify(top: &Path) {
    for name in fs::read_dir(top).unwrap().map(|e| e.unwrap().file_name()) {
        let keep: &[&str] =
            &["plain.txt", "empty", "512", "513", "中文", "a b", "-dash", "modes", "sym", "emptydir"];
        if !keep.iter().any(|k| name.as_bytes() == k.as_bytes()) {
            let path = top.join(name);
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    }
}

#[derive(Debug, PartialEq)]
struct Seen {
    mode: u32,
    mtime: Option<(i64, i64)>,
    size: u64,
    content: Vec<u8>,
    nlink: u64,
}

/// Everything beneath `top`, the root included.
fn look(top: &Path, nanos: bool) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    let mut todo = vec![top.to_owned()];
    while let Some(path) = todo.pop() {
        let m = fs::symlink_metadata(&path).unwrap();
        let content = if m.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().as_bytes().to_vec()
        } else if m.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let seen = Seen {
            mode: m.mode(),
            mtime: Some((m.mtime(), if nanos { m.mtime_nsec() } else { 0 })),
            size: if m.is_dir() { 0 } else { m.len() },
            content,
            nlink: if m.is_dir() { 0 } else { m.nlink() },
        };
        found.insert(path.strip_prefix(top).unwrap().to_owned(), seen);
    }
    found
}

fn run(dir: &Path, program: &str, args: &[&str]) -> Vec<u8> {
    let out = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// Names, kinds, sizes and link targets, a record each.
const LIST: &str = r#"
import sys, tarfile
with tarfile.open(sys.argv[1], encoding="utf-8", errors="surrogateescape") as t:
    for m in t:
        name = m.name.rstrip("/")
        name = name[2:] if name.startswith("./") else name
        kind = "d" if m.isdir() else "l" if m.issym() else "h" if m.islnk() else "f" if m.isreg() else "?"
        link = m.linkname if kind in "lh" else ""
        record = f"{kind} {name} {m.size if kind == 'f' else 0} {int(m.mtime)} {link}\0"
        sys.stdout.buffer.write(record.encode("utf-8", "surrogateescape"))
"#;

/// Unpacks an archive with creel, GNU tar and bsdtar, and asserts that all are the same; that tarfile sees no more and no less.
fn compare(name: &str, work: &Path) {
    let archive = work.join(name);
    let t = Trial::new();
    let done = t.unpack(&fs::read(&archive).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let ours = look(&t.target(), true);
    assert!(ours.len() > 5, "{name}: {ours:?}");
    for (program, args) in [("tar", &["-p"][..]), ("bsdtar", &["-p"])] {
        let into = tempfile::TempDir::with_prefix("creel-test-").unwrap();
        let mut all = vec!["-C", into.path().to_str().unwrap(), "-xf", archive.to_str().unwrap()];
        all.extend(args);
        run(work, program, &all);
        let mut theirs = look(into.path(), true);
        let mut ours = look(&t.target(), true);
        for (path, seen) in theirs.iter_mut() {
            // Documented: the owner can always read, and go into directories.
            seen.mode |= if seen.mode & 0o170000 == 0o040000 { 0o700 } else { 0o400 };
            // bsdtar doesn't set the time of the directory that it was called in; GNU tar sets those of others too early when
            // something is put into them later, as bsdtar's order has it. The list below is compared with them, too.
            let root = path.as_os_str().is_empty();
            if seen.mode & 0o170000 == 0o040000 && (program == "tar" || root) {
                seen.mtime = ours[path].mtime;
            }
            // Not in the archive: each tool makes them as it likes.
            if done.record.implied.iter().any(|p| p.0 == path.as_os_str().as_bytes()) {
                let mine = ours.get_mut(path).unwrap();
                (seen.mtime, mine.mtime) = (None, None);
                (seen.mode, mine.mode) = (0, 0);
            }
        }
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{name} by {program}");
        for (path, seen) in &ours {
            let other = &theirs[path];
            let same = seen == other;
            assert!(
                same,
                "{name} by {program}: {path:?} {:o} {:?} {} {} / {:o} {:?} {} {}",
                seen.mode,
                seen.mtime,
                seen.size,
                seen.nlink,
                other.mode,
                other.mtime,
                other.size,
                other.nlink
            );
        }
    }
    let listed = run(work, "python3", &["-c", LIST, archive.to_str().unwrap()]);
    let mut listed: Vec<_> = listed.split(|&b| b == 0).filter(|r| !r.is_empty()).collect();
    assert_eq!(listed.len() as u64, done.record.entries, "{name}: entries by tarfile");
    listed.retain(|r| !r.starts_with(b"h"));
    for record in listed {
        let text = std::str::from_utf8(record).unwrap();
        let path = ours.iter().find(|(path, seen)| {
            let path = if path.as_os_str().is_empty() { "." } else { path.to_str().unwrap() };
            let (kind, size, link) = match seen.mode & 0o170000 {
                0o040000 => ('d', 0, String::new()),
                0o120000 => ('l', 0, String::from_utf8(seen.content.clone()).unwrap()),
                _ => ('f', seen.size, String::new()),
            };
            text == format!("{kind} {path} {size} {} {link}", seen.mtime.unwrap().0)
        });
        assert!(path.is_some(), "{name}: tarfile sees {text:?}");
    }
}

fn grown(simple: bool) -> tempfile::TempDir {
    let work = tempfile::TempDir::with_prefix("creel-test-").unwrap();
    fs::create_dir(work.path().join("tree")).unwrap();
    plant(&work.path().join("tree"));
    if simple {
        simplify(&work.path().join("tree"));
    }
    work
}

#[test]
fn by_gnu_tar() {
    let work = grown(false);
    for (n, args) in [
        &["--format=gnu"][..],
        &["--format=gnu", "-S"],
        &["--format=oldgnu"],
        &["--format=oldgnu", "-S"],
        &["--format=pax"],
        &["--format=pax", "-S"],
        &["--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"],
        &["--format=pax", "--sort=name", "--numeric-owner", "--owner=4294967294", "--group=3000000"],
        &["--format=gnu", "--numeric-owner", "--owner=4294967294", "--mtime=@8589934591"],
        &["--format=gnu", "--no-recursion", "plain.txt", "中文", "sym", "a b", "emptydir", "modes"],
        &["--format=gnu", "--blocking-factor=300"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("gnu{n}.tar");
        let mut all = vec!["-C", "tree", "-cf", &name];
        all.extend(*args);
        if !args.contains(&"--no-recursion") {
            all.push(".");
        }
        run(work.path(), "tar", &all);
        compare(&name, work.path());
    }
}

#[test]
fn by_gnu_tar_in_old_formats() {
    let work = grown(true);
    for format in ["ustar", "v7"] {
        run(work.path(), "tar", &["-C", "tree", "-cf", format, &format!("--format={format}"), "."]);
        compare(format, work.path());
    }
}

#[test]
fn by_bsdtar() {
    let work = grown(false);
    // bsdtar's own sparse files are of GNU 1.0.
    for format in ["pax", "gnutar"] {
        run(work.path(), "bsdtar", &["-C", "tree", "-cf", format, "--format", format, "--no-xattrs", "."]);
        compare(format, work.path());
    }
    let work = grown(true);
    for format in ["ustar", "v7"] {
        run(work.path(), "bsdtar", &["-C", "tree", "-cf", format, "--format", format, "."]);
        compare(format, work.path());
    }
}

#[test]
fn by_python() {
    let work = grown(false);
    for format in ["GNU", "PAX"] {
        let code = format!(
            "import tarfile\nwith tarfile.open('{format}', 'w', format=tarfile.{format}_FORMAT) as t: t.add('tree', '.')"
        );
        run(work.path(), "python3", &["-c", &code]);
        compare(format, work.path());
    }
    let work = grown(true);
    let code = "import tarfile\nwith tarfile.open('ustar', 'w', format=tarfile.USTAR_FORMAT) as t: t.add('tree', '.')";
    run(work.path(), "python3", &["-c", code]);
    compare("ustar", work.path());
}
