//! PAX headers that say something else than the header behind them, or nothing that can be read.

use crate::support::*;

const BAD: &str = "image.layer_malformed";

#[test]
fn a_size_beside_that_of_the_header() {
    // CVE-2025-62518 (TARmageddon), RUSTSEC-2026-0068: who believes the other number finds an archive in the content.
    let inner = tar(&[file("smuggled", "x")]);
    let said = |pax_size: u64, size: u64| {
        tar(&[
            pax(&[("size", pax_size.to_string())]),
            Head::new(b'0', "a").size(size).content(&inner).bytes(),
        ])
    };
    let real = inner.len() as u64;
    for (pax_size, size) in [(real, 0), (real, 512), (0, real), (real - 512, real), (real, real + 512)] {
        refused(&said(pax_size, size), BAD, &["entry 'a'", &format!("header says {size} bytes"), "PAX"]);
    }
    // The same number twice is none of that.
    Trial::new().unpack(&said(real, real)).unwrap();
    // Over eight GiB the header can't say it. The rule that bites then is another one.
    for size in [0, 0o77777777777] {
        let stream =
            tar(&[pax(&[("size", (64u64 << 30).to_string())]), Head::new(b'0', "a").size(size).bytes()]);
        refused(&stream, "image.layer_limit", &["entry 'a'", "more than 34359738368 bytes"]);
    }
}

#[test]
fn malformed_records() {
    // CVE-2026-32766: one that can't be read was skipped, with the path or size in it.
    let path = record("path", "good");
    for body in [
        &b"path=a\n"[..],
        b"junk",
        b"\0\0\0\0",
        b"99 path=a\n",
        b"5 path=a\n",
        b"+9 path=a\n",
        b"-9 path=a\n",
        b"09 path=a\n",
        b" 9 path=a\n",
        b"9\tpath=a\n",
        b"9 path=ax",
        b"9 path a\n",
        b"4 =\n",
        b"18446744073709551625 path=a\n",
    ] {
        for body in [body.to_vec(), [&path[..], body].concat(), [body, &path].concat()] {
            let stream = tar(&[pax_raw(body), file("x", "")]);
            refused(&stream, BAD, &["'PaxHeaders/x'", "LENGTH KEY=VALUE"]);
        }
    }
}

#[test]
fn the_same_key_twice() {
    for (key, one, two) in [
        ("path", "a", "../b"),
        ("path", "a", "a"),
        ("linkpath", "a", "/etc/passwd"),
        ("size", "1", "2"),
        ("mtime", "1", "2"),
        ("uid", "0", "10001"),
    ] {
        let stream = tar(&[pax(&[(key, one), (key, two)]), file("x", "")]);
        refused(&stream, BAD, &["'PaxHeaders/x'", key, "twice"]);
    }
}

#[test]
fn headers_for_all_entries() {
    for (key, value) in [
        ("path", "../all"),
        ("path", "all"),
        ("size", "0"),
        ("linkpath", "/etc/passwd"),
        ("mtime", "1"),
        ("uid", "10001"),
        ("GNU.sparse.name", "x"),
        ("SCHILY.xattr.trusted.overlay.opaque", "y"),
        ("hdrcharset", "BINARY"),
    ] {
        let global = Head::new(b'g', "pax_global_header").content(record(key, value)).bytes();
        refused(&tar(&[global, file("x", "")]), BAD, &["'pax_global_header'", key]);
    }
    let junk = Head::new(b'g', "pax_global_header").content("junk").bytes();
    refused(&tar(&[junk, file("x", "")]), BAD, &["'pax_global_header'", "LENGTH"]);
    let large = Head::new(b'g', "pax_global_header").size(1 << 30).bytes();
    refused(&tar(&[large]), "image.layer_limit", &["'pax_global_header'", "1 MiB"]);
    let between = Head::new(b'g', "pax_global_header").content(record("comment", "x")).bytes();
    let stream = tar(&[pax(&[("path", "a")]), between, file("x", "")]);
    refused(&stream, BAD, &["'pax_global_header'", "stands between"]);
}

#[test]
fn sparse_files_in_the_old_ways() {
    for records in [
        vec![("GNU.sparse.size", "100"), ("GNU.sparse.numblocks", "1")],
        vec![("GNU.sparse.map", "0,5"), ("GNU.sparse.size", "100")],
        vec![("GNU.sparse.major", "0"), ("GNU.sparse.minor", "1")],
        vec![("GNU.sparse.realsize", "100")],
        vec![("GNU.sparse.name", "../x")],
        vec![("SCHILY.realsize", "100")],
    ] {
        let stream = tar(&[pax(&records), file("x", "hello")]);
        refused(&stream, BAD, &["'PaxHeaders/x'", "sparse"]);
    }
    // The name of a sparse file is a name like all others.
    let keys = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "../x"),
        ("GNU.sparse.realsize", "0"),
    ];
    let stream = tar(&[pax(&keys), file("x", padded(b"0\n"))]);
    refused(&stream, "image.layer_path", &["entry '../x'", "\"..\""]);
    // With a PAX size the map counts; a reader that forgets it loses its place.
    let keys = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "s"),
        ("GNU.sparse.realsize", "5"),
        ("size", "517"),
    ];
    let stream =
        tar(&[pax(&keys), file("x", [padded(b"1\n0\n5\n"), b"hello".to_vec()].concat()), file("y", "y")]);
    let t = Trial::new();
    t.unpack(&stream).unwrap();
    assert_eq!((t.text("s"), t.text("y")), ("hello".into(), "y".into()));
}
