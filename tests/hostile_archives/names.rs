use crate::support::*;

#[test]
fn paths_that_lead_out() {
    for (name, rule) in [
        ("/etc/creel-was-here", "is absolute"),
        ("//etc/x", "is absolute"),
        ("..", "\"..\""),
        ("../x", "\"..\""),
        ("./../x", "\"..\""),
        ("a/../../x", "\"..\""),
        ("a/../x", "\"..\""),
        ("a/..", "\"..\""),
        ("a//x", "empty component"),
        ("a/./x", "\".\""),
    ] {
        let quoted = format!("entry '{name}'");
        for kind in [b'0', b'2', b'1', b'5', b'3', b'6'] {
            let stored = Head::new(kind, name).link("secret").bytes();
            refused(&tar(&[&file("secret", "x"), &stored]), "image.layer_path", &[&quoted, rule]);
        }
        let by_pax = tar(&[pax(&[("path", name)]), file("harmless", "x")]);
        refused(&by_pax, "image.layer_path", &[&quoted, rule]);
        let by_gnu = tar(&[gnu_long(b'L', name), Head::new(b'0', "harmless").magic(GNU).bytes()]);
        refused(&by_gnu, "image.layer_path", &[&quoted, rule]);
    }
    // The prefix of POSIX is a part of the name.
    let prefix = Head::new(b'0', "x").patch(345, "/etc").bytes();
    refused(&tar(&[prefix]), "image.layer_path", &["'/etc/x'", "absolute"]);
    let prefix = Head::new(b'0', "x").patch(345, "..").bytes();
    refused(&tar(&[prefix]), "image.layer_path", &["'../x'", "\"..\""]);
}

#[test]
fn names_that_are_too_long() {
    let (name, path) = ("n".repeat(256), ["d".repeat(250).as_str(); 17].join("/"));
    let deep = vec!["d"; 256].join("/");
    for (name, rule) in [(&name, "255 bytes"), (&path, "4096 bytes"), (&deep, "255 directories")] {
        for long in [pax(&[("path", name)]), gnu_long(b'L', name)] {
            let head = Head::new(b'0', "x").bytes();
            refused(&tar(&[long, head]), "image.layer_path", &[&name[..20], rule]);
        }
    }
}

#[test]
fn metadata_of_more_than_a_mebibyte() {
    let text = "n".repeat(1 << 20);
    let rule = "larger than 1 MiB";
    for long in [gnu_long(b'L', &text), gnu_long(b'K', &text)] {
        refused(&tar(&[long, file("x", "")]), "image.layer_limit", &["'././@LongLink'", rule]);
    }
    let comment = pax(&[("comment", &text)]);
    refused(&tar(&[comment, file("x", "")]), "image.layer_limit", &["'PaxHeaders/x'", rule]);
    // Together.
    let half = &text[..600_000];
    let both = tar(&[gnu_long(b'L', half), pax(&[("comment", half)]), file("x", "")]);
    refused(&both, "image.layer_limit", &["'PaxHeaders/x'", rule]);
    // A size that only is claimed takes no memory.
    let claimed = Head::new(b'x', "PaxHeaders/x").size(1 << 40).bytes();
    refused(&tar(&[claimed]), "image.layer_limit", &["'PaxHeaders/x'", rule]);
}

#[test]
fn nul_in_a_name() {
    let rule = "NUL";
    let cut = Head::new(b'0', "a\0b").bytes();
    refused(&tar(&[cut]), "image.layer_malformed", &["'a'", rule]);
    let link = Head::new(b'2', "a").link("b\0c").bytes();
    refused(&tar(&[link]), "image.layer_malformed", &["entry 'a'", rule]);
    for key in ["path", "linkpath"] {
        let long = tar(&[pax(&[(key, "a\0b")]), file("x", "")]);
        refused(&long, "image.layer_malformed", &["PaxHeaders/x", rule, key]);
    }
    let long = tar(&[gnu_long(b'L', "a\0b"), file("x", "")]);
    refused(&long, "image.layer_malformed", &["@LongLink", rule]);
}

#[test]
fn empty_names() {
    refused(&tar(&[file("", "x")]), "image.layer_path", &["entry ''", "is empty"]);
    for stream in [tar(&[pax(&[("path", "")]), file("x", "")]), tar(&[gnu_long(b'L', ""), file("x", "")])] {
        refused(&stream, "image.layer_malformed", &["empty"]);
    }
}

#[test]
fn messages_do_not_carry_control_characters() {
    // refused() asserts it.
    refused(&tar(&[file("../\x1b[2J\nok", "")]), "image.layer_path", &["'../\\u{1b}[2J\\nok'"]);
    refused(&tar(&[file(b"../\xff", "")]), "image.layer_path", &["'../\\xFF'"]);
    refused(&tar(&[file("../\u{202e}txt.exe", "")]), "image.layer_path", &["'../\\u{202e}txt.exe'"]);
    refused(&tar(&[file("../报告", "")]), "image.layer_path", &["'../报告'"]);
}

#[test]
fn a_file_named_like_a_directory() {
    let rule = "ends in a slash";
    for head in [Head::new(b'0', "a/"), Head::new(b'2', "a/").link("x"), Head::new(0, "a/").magic(GNU)] {
        refused(&tar(&[head.bytes()]), "image.layer_path", &["entry 'a/'", rule]);
    }
}

#[test]
fn the_root_is_a_directory() {
    for kind in [b'0', b'2', b'1', b'3'] {
        let root = Head::new(kind, ".").link("x").bytes();
        refused(&tar(&[file("x", ""), root]), "image.layer_kind", &["entry '.'", "root"]);
    }
}
