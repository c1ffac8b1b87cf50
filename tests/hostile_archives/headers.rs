//! Headers that two readers would understand in two ways.

use crate::support::*;

const BAD: &str = "image.layer_malformed";

#[test]
fn checksums_and_magics() {
    for sum in ["000000\0 ", "777777\0 ", "\0\0\0\0\0\0\0\0", "xxxxxx\0 ", "-00001\0 "] {
        let entry = Head::new(b'0', "a").patch(148, sum).bytes();
        refused(&tar(&[entry]), BAD, &["the header 'a' at byte 0", "checksum"]);
    }
    let behind = tar(&[file("ok", "x"), Head::new(b'0', "a").patch(148, "000000\0 ").bytes()]);
    refused(&behind, BAD, &["the header 'a' at byte 1024", "checksum"]);
    let magic = Head::new(b'0', "a").patch(257, "posix\x0000").bytes();
    refused(&tar(&[magic]), BAD, &["'a'", "unknown magic"]);
}

#[test]
fn what_is_no_archive() {
    for junk in [&b"hello"[..], &[b'x'; 511]] {
        refused(junk, "image.layer_truncated", &["byte"]);
    }
    for junk in [&[b'x'; 512][..], &[0xff; 4096], &[b'P'; 100_000]] {
        refused(junk, BAD, &["no tar archive"]);
    }
    refused(b"", BAD, &["empty"]);
    refused(&gz(b""), BAD, &["empty"]);
    // gzip in gzip is unpacked once.
    refused(&gz(&gz(&tar(&[file("a", "x")]))), "image.layer_truncated", &["byte"]);
    refused(
        &gz(&gz(&(0..40_000u32).flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>())),
        BAD,
        &["no tar archive"],
    );
}

#[test]
fn numbers_that_readers_differ_in() {
    for (at, field, rule) in [
        // Wraps to 0 where it is only shifted: the content would be taken for headers.
        (124, &b"\x80\0\0\x01\0\0\0\0\0\0\0\0"[..], "size is too large"),
        (124, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\0", "size is negative"),
        (124, b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "size is too large"),
        (124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", "too large for any file"),
        (124, b"-0000000777\0", "size is negative"),
        (124, b"+0000000777\0", "size is not an octal number"),
        (124, b"0x000000777\0", "size is not an octal number"),
        (124, b"00000001000\x009", "size is not an octal number"),
        (124, b"000000 01000", "size is not an octal number"),
        (124, b"\x81\0\0\0\0\0\0\0\0\0\x02\0", "size is not an octal number"),
    ] {
        if at + field.len() > 136 {
            continue;
        }
        let entry = Head::new(b'0', "a").content(inner()).patch(at, field).bytes();
        let code = if rule.contains("negative") { "image.layer_attribute" } else { BAD };
        refused(&tar(&[entry]), code, &["entry 'a'", rule]);
    }
}

/// A header that is somebody's content.
fn inner() -> Vec<u8> {
    file("smuggled", "")
}

#[test]
fn content_where_there_is_none() {
    let rule = "of a kind that has no content";
    for kind in [b'1', b'2', b'5', b'3', b'4', b'6'] {
        let entry = Head::new(kind, "dev/a").link("x").content(inner()).bytes();
        refused(&tar(&[&file("x", "")[..], &entry]), BAD, &["entry 'dev/a'", rule]);
        let by_pax =
            [pax(&[("size", "512")]), Head::new(kind, "dev/a").link("x").size(512).bytes(), inner()].concat();
        refused(&tar(&[&file("x", "")[..], &by_pax]), BAD, &["entry 'dev/a'", rule]);
    }
    // GNU tar and V7: a directory by its name.
    let old = Head::new(0, "a/").magic(V7).content(inner()).bytes();
    refused(&tar(&[old]), BAD, &["entry 'a/'", rule]);
}

#[test]
fn a_prefix_in_a_header_that_has_none() {
    for magic in [GNU, V7] {
        let entry = Head::new(b'0', "a").magic(magic).patch(345, "prefix").bytes();
        refused(&tar(&[entry]), BAD, &["entry 'a'", "readers disagree"]);
        let longer = Head::new(b'0', "a").magic(magic).patch(345, "prefix").bytes();
        let named = tar(&[gnu_long(b'L', "name"), longer]);
        refused(&named, BAD, &["entry 'name'", "readers disagree"]);
    }
}

#[test]
fn the_end_of_the_archive() {
    let rule = "follows the end of the archive";
    let zero = [0u8; 512];
    let smuggled = inner();
    for tail in [
        [&zero[..], &smuggled].concat(),
        [&zero[..], &zero, &smuggled].concat(),
        [&zero[..], &zero, &[0; 9000], b"x"].concat(),
        [&zero[..], b"x"].concat(),
    ] {
        let stream = [file("a", "x"), tail].concat();
        refused(&stream, BAD, &["byte", rule]);
        refused(&gz(&stream), BAD, &["byte", rule]);
        refused(&zst(&stream), BAD, &["byte", rule]);
    }
}

#[test]
fn cut_streams() {
    let stream = [file("a", "x".repeat(600)), file("b", "y")].concat();
    for cut in 1..stream.len() {
        if cut == 512 + 1024 {
            // Between two entries: all readers take that, and so the answer says that there was no end mark.
            assert!(!Trial::new().unpack(&stream[..cut]).unwrap().end_mark);
        } else if cut % 64 == 1 || cut % 512 == 0 {
            let error = Trial::new().unpack(&stream[..cut]).unwrap_err();
            assert_eq!(error.code(), "image.layer_truncated", "{cut}");
            if (512..1536).contains(&cut) {
                assert!(error.to_string().contains("entry 'a'"), "{cut}: {error}");
            }
        }
    }
    let whole = [stream.as_slice(), &[0; 1024]].concat();
    assert!(Trial::new().unpack(&whole).unwrap().end_mark);
}

#[test]
fn extensions_that_belong_to_nothing_or_come_twice() {
    let rule = "belongs to an entry";
    for extension in [gnu_long(b'L', "a"), gnu_long(b'K', "a"), pax(&[("path", "a")])] {
        refused(&tar(&[&extension]), BAD, &["byte", rule]);
        refused(&extension, BAD, &["byte", rule]);
        let twice = tar(&[&extension[..], &extension, &file("x", "")]);
        refused(&twice, BAD, &["two "]);
    }
    let both = tar(&[gnu_long(b'L', "one"), pax(&[("path", "two")]), file("x", "")]);
    refused(&both, BAD, &["a GNU long name and a PAX path"]);
    let both = tar(&[gnu_long(b'K', "one"), pax(&[("linkpath", "two")]), symlink("x", "y")]);
    refused(&both, BAD, &["entry 'x'", "long link name and a PAX linkpath"]);
    for kind in [b'L', b'K', b'x', b'g'] {
        let old = Head::new(kind, "ext").magic(V7).content("a").bytes();
        refused(&tar(&[old, file("x", "")]), BAD, &["'ext'", "header without magic"]);
    }
}

#[test]
fn holes_of_a_terabyte() {
    let limit = "image.layer_limit";
    let tb = 1u64 << 40;
    // Old GNU: one piece at the end of a hole.
    let place = |offset: u64, length: u64| format!("{offset:011o}\0{length:011o}\0");
    let big = |n: u64| [&[0x80, 0, 0, 0][..], &n.to_be_bytes()].concat();
    let old =
        Head::new(b'S', "hole").magic(GNU).patch(386, [big(tb - 1), b"00000000001\0".to_vec()].concat());
    let old = old.patch(483, big(tb)).content("x").bytes();
    refused(&tar(&[old]), limit, &["entry 'hole'", "bytes"]);
    // GNU 1.0.
    let map = |text: String| padded(text.as_bytes());
    let keys = |size: u64| {
        pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.name", "hole"),
            ("GNU.sparse.realsize", &size.to_string()),
        ])
    };
    let content = [map(format!("1\n{}\n1\n", tb - 1)), b"x".to_vec()].concat();
    refused(&tar(&[keys(tb), file("GNUSparseFile.1/hole", content)]), limit, &["entry 'hole'", "bytes"]);
    // Maps that lie.
    for (text, rule) in [
        ("1\n0\n100\n", "does not fit"),
        ("1\n99\n5\n", "outside the file"),
        ("2\n5\n2\n6\n3\n", "overlap"),
        ("1\nx\n5\n", "decimal"),
        ("9\n0\n5\n", "decimal"),
        ("99999\n", "decimal"),
    ] {
        let content = [map(text.to_owned()), b"hello".to_vec()].concat();
        refused(&tar(&[keys(100), file("x", content)]), BAD, &["entry 'hole'", rule]);
    }
    let many: String = (0..10_001).map(|n| format!("{n}\n0\n")).collect();
    let content = map(format!("10001\n{many}"));
    refused(&tar(&[keys(20_000), file("x", content)]), limit, &["entry 'hole'", "10000 pieces"]);
    let lying =
        Head::new(b'S', "hole").magic(GNU).patch(386, place(0, 5) + &place(3, 5)).content("xxxxxxxxxx");
    refused(&tar(&[lying.patch(483, "00000000100\0").bytes()]), BAD, &["entry 'hole'", "overlap"]);
    // A map without an end.
    let head = Head::new(b'S', "hole").magic(GNU).patch(482, [1]).patch(483, "00000000100\0").bytes();
    let mut block = [0u8; 512];
    block[504] = 1;
    let endless = [head, block.repeat(3000)].concat();
    refused(&tar(&[endless]), limit, &["entry 'hole'", "1 MiB"]);
}
