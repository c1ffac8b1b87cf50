//! Odd archives on which GNU tar, bsdtar and Python's tarfile don't agree are refused; where we unpack, all three agree.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::*;

/// Names and sizes of the entries of each archive, by each of the three. Where one gives up it says `error`.
fn listings(archives: &[&[u8]]) -> Vec<[Vec<String>; 3]> {
    let dir = tempfile::TempDir::with_prefix("creel-test-").unwrap();
    for (n, archive) in archives.iter().enumerate() {
        fs::write(dir.path().join(n.to_string()), archive).unwrap();
    }
    let python = r#"
import sys, tarfile
for n in range(int(sys.argv[1])):
    try:
        with tarfile.open(str(n)) as t:
            for m in t:
                data = m.isreg() or m.type not in tarfile.SUPPORTED_TYPES
                print(m.name.rstrip("/"), m.size if data else 0)
    except Exception:
        print("error")
    print("end")
"#;
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(dir.path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command.output().unwrap_or_else(|e| panic!("{program}: {e}"))
    };
    let all = run("python3", &["-c", python, &archives.len().to_string()]);
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    let by_python = all.split("end\n").map(|one| one.lines().map(str::to_owned).collect::<Vec<_>>());
    // tar: mode owner size date time name; bsdtar: mode links owner group size month day time name.
    let by_tool = |program: &str, n: usize, size: usize, name: usize| {
        let out = run(program, &["-tvf", &n.to_string()]);
        let mut names = Vec::new();
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let word = |n: usize| words.get(n).copied().unwrap_or_default();
            names.push(format!("{} {}", word(name).trim_end_matches('/'), word(size)));
        }
        if !out.status.success() {
            names.push("error".into());
        }
        names
    };
    let each = by_python.take(archives.len()).enumerate();
    each.map(|(n, python)| [python, by_tool("tar", n, 2, 5), by_tool("bsdtar", n, 4, 8)]).collect()
}

#[test]
fn all_agree_or_we_refuse() {
    let inner = tar(&[file("smuggled", "x")]);
    let size = inner.len() as u64;
    let said = |pax_size: u64, header: u64| {
        [pax(&[("size", pax_size.to_string())]), Head::new(b'0', "a").size(header).content(&inner).bytes()]
            .concat()
    };
    let zeros = vec![0u8; 512];
    let global = |key: &str, value: &str| Head::new(b'g', "g").content(record(key, value)).bytes();
    let (mut taken, mut refused, mut disagreed) = (0, 0, 0);
    let archives = [
        ("plain", tar(&[file("a", "x"), dir("d")])),
        ("pax size equal", tar(&[said(size, size)])),
        ("pax size, header 0", tar(&[said(size, 0), file("z", "")])),
        ("pax size smaller", tar(&[said(0, size), file("z", "")])),
        ("pax size larger", tar(&[said(size, 512), file("z", "")])),
        ("a lone zero block", [file("a", "x"), zeros.clone(), tar(&[file("b", "x")])].concat()),
        ("behind the end", [tar(&[file("a", "x")]), tar(&[file("b", "x")])].concat()),
        ("no end", file("a", "x")),
        ("prefix in GNU header", tar(&[Head::new(b'0', "a").magic(GNU).patch(345, "p").bytes()])),
        ("prefix in V7 header", tar(&[Head::new(b'0', "a").magic(V7).patch(345, "p").bytes()])),
        ("prefix in POSIX header", tar(&[Head::new(b'0', "a").patch(345, "p").bytes()])),
        (
            "hard link with size",
            tar(&[file("x", ""), Head::new(b'1', "a").link("x").content(&inner).bytes()]),
        ),
        ("symlink with size", tar(&[Head::new(b'2', "a").link("x").content(&inner).bytes()])),
        ("directory with size", tar(&[Head::new(b'5', "a").content(&inner).bytes()])),
        ("FIFO with size", tar(&[Head::new(b'6', "dev/a").content(&inner).bytes()])),
        ("unknown type with size", tar(&[Head::new(b'Z', "tmp/a").content(&inner).bytes(), file("b", "")])),
        ("file named like a directory", tar(&[Head::new(b'0', "a/").content(&inner).bytes()])),
        ("V7 directory", tar(&[Head::new(0, "a/").magic(V7).bytes(), file("b", "")])),
        ("two pax paths", tar(&[pax(&[("path", "one"), ("path", "two")]), file("x", "")])),
        ("two pax headers", tar(&[pax(&[("path", "one")]), pax(&[("path", "two")]), file("x", "")])),
        ("long name and pax path", tar(&[gnu_long(b'L', "one"), pax(&[("path", "two")]), file("x", "")])),
        ("pax path and long name", tar(&[pax(&[("path", "two")]), gnu_long(b'L', "one"), file("x", "")])),
        ("two long names", tar(&[gnu_long(b'L', "one"), gnu_long(b'L', "two"), file("x", "")])),
        (
            "junk behind a record",
            tar(&[pax_raw([record("path", "one"), b"junk".to_vec()].concat()), file("x", "")]),
        ),
        (
            "junk before a record",
            tar(&[pax_raw([b"junk\n".to_vec(), record("path", "one")].concat()), file("x", "")]),
        ),
        ("empty pax path", tar(&[pax(&[("path", "")]), file("x", "")])),
        ("global path", tar(&[global("path", "all"), file("x", "")])),
        ("global size", tar(&[global("size", "0"), Head::new(b'0', "a").content(&inner).bytes()])),
        ("global comment", tar(&[global("comment", "hello"), file("x", "")])),
        (
            "base 256 size",
            tar(&[Head::new(b'0', "a").content("x").patch(124, b"\x80\0\0\0\0\0\0\0\0\0\0\x01").bytes()]),
        ),
        (
            "base 256 size over 64 bits",
            tar(&[Head::new(b'0', "a").content(&inner).patch(124, b"\x80\0\0\x01\0\0\0\0\0\0\0\0").bytes()]),
        ),
        ("negative size", tar(&[Head::new(b'0', "a").content(&inner).patch(124, [0xff; 12]).bytes()])),
        (
            "size with a plus",
            tar(&[Head::new(b'0', "a").content(&inner).patch(124, b"+0000003000\0").bytes()]),
        ),
        (
            "size with junk",
            tar(&[Head::new(b'0', "a").content(&inner).patch(124, b"1000\x0077777\0\0").bytes()]),
        ),
        (
            "size with spaces",
            tar(&[Head::new(b'0', "a").content(&inner).patch(124, b"       3000 ").bytes()]),
        ),
        ("name with NUL", tar(&[Head::new(b'0', "a\0b").bytes()])),
        ("pax path with NUL", tar(&[pax(&[("path", "a\0b")]), file("x", "")])),
        (
            "old sparse map",
            tar(&[pax(&[("GNU.sparse.map", "0,1"), ("GNU.sparse.size", "9")]), file("x", "y")]),
        ),
        ("a letter in the checksum", tar(&[Head::new(b'0', "a").patch(148, "00001a\0 ").bytes()])),
        ("junk", vec![b'x'; 2048]),
    ];
    let seen = listings(&archives.iter().map(|(_, archive)| archive.as_slice()).collect::<Vec<_>>());
    for ((what, archive), seen) in archives.iter().zip(seen) {
        let agree = seen.iter().all(|names| *names == seen[0]);
        disagreed += usize::from(!agree);
        let t = Trial::new();
        match t.unpack(archive) {
            Err(error) => {
                assert!(!error.is_host_fault(), "{what}: {error}");
                refused += 1;
            }
            Ok(_) => {
                assert!(agree, "{what}: {seen:?}");
                taken += 1;
            }
        }
    }
    println!("{taken} taken, {refused} refused, the three disagree on {disagreed}");
    // Were the listings read wrongly, they would all agree or none.
    assert!(taken >= 9 && disagreed >= 8, "{taken} taken, {disagreed} disagreed on");
}
