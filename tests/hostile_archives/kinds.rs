use crate::support::*;

#[test]
fn devices_and_such_outside_creels_own_mounts() {
    for (kind, words) in [
        (b'3', "device node"),
        (b'4', "device node"),
        (b'6', "FIFO"),
        (b'V', "unknown type"),
        (b'Z', "unknown type"),
    ] {
        for name in ["sda", "dev", "devil/sda", "mnt/dev/sda", "etc/x"] {
            let node = Head::new(kind, name).patch(329, "0000010\0").bytes();
            refused(&tar(&[node]), "image.layer_kind", &[&format!("entry '{name}'"), words, "/dev"]);
        }
    }
}

#[test]
fn attributes_of_overlayfs() {
    for key in [
        "SCHILY.xattr.trusted.overlay.opaque",
        "SCHILY.xattr.trusted.overlay.redirect",
        "SCHILY.xattr.user.overlay.whiteout",
        "LIBARCHIVE.xattr.trusted.overlay.origin",
        "LIBARCHIVE.xattr.trusted%2eoverlay.opaque",
        "LIBARCHIVE.xattr.%75ser.overlay.metacopy",
    ] {
        for entry in [file("a", ""), dir("a"), symlink("a", "b")] {
            let stream = tar(&[pax(&[(key, "y")]), entry]);
            refused(&stream, "image.layer_attribute", &["entry 'a'", "overlayfs"]);
        }
    }
}

#[test]
fn owners_and_times_that_none_has() {
    let base256 = |n: u64| [&[0x80, 0, 0, 0][..], &n.to_be_bytes()].concat();
    let old = |at, bytes: &[u8]| Head::new(b'0', "a").patch(at, bytes).bytes();
    for (entry, code, rule) in [
        (old(136, &[0xff; 12]), "attribute", "mtime is negative"),
        (old(136, b"-0000000001\0"), "attribute", "mtime is negative"),
        (old(136, &base256(1 << 33)), "attribute", "after the year 2242"),
        (old(136, &base256(1 << 62)), "attribute", "after the year 2242"),
        (old(136, b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), "malformed", "too large"),
        (old(108, &[0xff; 8]), "attribute", "uid is negative"),
        (old(116, b"\x80\0\0\x01\0\0\0\0"), "attribute", "gid is over 32 bits"),
        (old(108, b"00000x0\0"), "malformed", "uid is not an octal number"),
        (old(100, b"888\0\0\0\0\0"), "malformed", "mode is not an octal number"),
    ] {
        refused(&tar(&[entry]), &format!("image.layer_{code}"), &["entry 'a'", rule]);
    }
    for (key, value, rule) in [
        ("mtime", "-1", "negative"),
        ("mtime", "-0.5", "negative"),
        ("mtime", "8589934592", "2242"),
        ("mtime", "99999999999999999", "2242"),
        // As 32 bits it would be 10001, creel's own user.
        ("uid", "4294977297", "over 32 bits"),
        ("gid", "4294967296", "over 32 bits"),
        ("uid", "-1", "negative"),
    ] {
        let stream = tar(&[pax(&[(key, value)]), file("a", "")]);
        refused(&stream, "image.layer_attribute", &[rule]);
    }
    let t = Trial::new();
    t.unpack(&tar(&[pax(&[("uid", "4294967295"), ("gid", "4294967295")]), file("a", "")])).unwrap();
}

#[test]
fn whiteouts_of_nothing_and_of_more_than_a_name() {
    for name in [".wh.", ".wh..", ".wh...", "a/.wh.", "a/.wh..", "a/.wh..."] {
        refused(
            &tar(&[file(name, "")]),
            "image.layer_whiteout",
            &[&format!("entry '{name}'"), "whiteout of"],
        );
    }
    for kind in [b'5', b'2', b'1', b'3', b'6'] {
        for name in [".wh.x", ".wh..wh..opq"] {
            let entry = Head::new(kind, name).link("f").bytes();
            let stream = tar(&[&file("f", ""), &entry]);
            refused(&stream, "image.layer_whiteout", &[&format!("entry '{name}'"), "no regular file"]);
        }
    }
    for name in [".wh.x/y", "a/.wh.x/y", ".wh..wh..opq/y", ".wh.x/.wh.y"] {
        refused(&tar(&[file(name, "")]), "image.layer_whiteout", &["beneath a whiteout"]);
    }
    // A slash at the end of the name that is hidden.
    refused(&tar(&[file(".wh.x/", "")]), "image.layer_path", &["entry '.wh.x/'", "slash"]);
    refused(&tar(&[dir(".wh./")]), "image.layer_whiteout", &["entry '.wh./'"]);
}
