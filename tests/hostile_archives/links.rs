use crate::support::*;

/// What must not be reached, as a symlink's target: absolute, and relative to the target directory's root.
fn outsides() -> [&'static str; 3] {
    ["/tmp", "../outside", "../outside/dir"]
}

#[test]
fn a_file_through_a_symlinked_directory() {
    // CVE-2018-15664's kind, RUSTSEC-2021-0080.
    let rule = "symbolic link";
    for outside in outsides() {
        let link = symlink("link", outside);
        for inner in [file("link/x", "x"), dir("link/x"), symlink("link/x", "y"), dir("link/a/b")] {
            refused(&tar(&[&link, &inner]), "image.layer_link", &["entry 'link/", rule]);
        }
        let hard = tar(&[&file("f", ""), &link, &hard_link("link/x", "f")]);
        refused(&hard, "image.layer_link", &["entry 'link/x'", rule]);
    }
    // Inside too: what it leads to depends on the layers below.
    let inside = tar(&[&dir("real")[..], &symlink("link", "real"), &file("link/x", "x")]);
    refused(&inside, "image.layer_link", &["entry 'link/x'", rule]);
    let dangling = tar(&[symlink("link", "nowhere"), file("link/x", "x")]);
    refused(&dangling, "image.layer_link", &["entry 'link/x'", rule]);
}

#[test]
fn chains_of_symlinks() {
    let chain = tar(&[
        &symlink("a", "b")[..],
        &symlink("b", "c"),
        &symlink("c", ".."),
        &file("a/outside/dir/file", "overwritten"),
    ]);
    refused(&chain, "image.layer_link", &["entry 'a/outside/dir/file'", "symbolic link"]);
    let up = tar(&[&dir("d")[..], &symlink("d/up", "../.."), &file("d/up/outside/secret", "x")]);
    refused(&up, "image.layer_link", &["entry 'd/up/outside/secret'", "symbolic link"]);
    let looped = tar(&[symlink("loop", "loop"), file("loop/x", "x")]);
    refused(&looped, "image.layer_link", &["entry 'loop/x'", "symbolic link"]);
}

#[test]
fn a_directory_in_the_place_of_a_symlink() {
    // RUSTSEC-2026-0067: the mode of the directory that the link leads to was changed.
    let same = tar(&[symlink("d", "../outside/dir"), Head::new(b'5', "d").mode(0o777).bytes()]);
    refused(&same, "image.layer_conflict", &["entry 'd'", "something else before"]);
    // The other way round.
    let back = tar(&[dir("d"), symlink("d", "../outside/dir")]);
    refused(&back, "image.layer_conflict", &["entry 'd'", "was a directory"]);
}

#[test]
fn a_symlink_is_replaced_and_never_written_through() {
    let t = Trial::new();
    t.unpack(&tar(&[symlink("secret", "../outside/secret"), file("secret", "new")])).unwrap();
    assert!(t.stat("secret").is_file());
    assert_eq!(t.text("secret"), "new");
}

#[test]
fn hard_links_to_elsewhere() {
    for (target, code, rule) in [
        ("/etc/passwd", "image.layer_path", "is absolute"),
        ("../outside/secret", "image.layer_path", "\"..\""),
        ("a/../../outside/secret", "image.layer_path", "\"..\""),
        ("lower/file", "image.layer_link", "not in the layer"),
        ("later", "image.layer_link", "not in the layer"),
        ("dir", "image.layer_link", "no regular file"),
        ("dir/", "image.layer_link", "directory"),
        (".", "image.layer_link", "directory"),
        ("sym", "image.layer_link", "no regular file"),
        ("symdir/secret", "image.layer_link", "symbolic link"),
        ("dev/null", "image.layer_link", "not in the layer"),
        ("f/x", "image.layer_conflict", "no directory"),
    ] {
        let before = [
            dir("dir"),
            file("f", ""),
            symlink("sym", "../outside/secret"),
            symlink("symdir", "../outside"),
            Head::new(b'3', "dev/null").bytes(),
        ]
        .concat();
        for link in
            [hard_link("link", target), [pax(&[("linkpath", target)]), hard_link("link", "f")].concat()]
        {
            refused(&tar(&[&before, &link, &file("later", "")]), code, &["entry 'link'", rule]);
        }
    }
    refused(&tar(&[hard_link("link", "")]), "image.layer_link", &["entry 'link'", "to nothing"]);
}

#[test]
fn a_file_written_over_a_hard_link_leaves_the_other_name_alone() {
    let t = Trial::new();
    t.unpack(&tar(&[file("a", "first"), hard_link("b", "a"), file("b", "second")])).unwrap();
    assert_eq!((t.text("a"), t.text("b")), ("first".into(), "second".into()));
}

#[test]
fn targets_of_symlinks_that_no_system_takes() {
    let long = "x".repeat(4096);
    let stream = tar(&[pax(&[("linkpath", &long)]), symlink("s", "x")]);
    refused(&stream, "image.layer_link", &["entry 's'", "4095 bytes"]);
    refused(&tar(&[symlink("s", "")]), "image.layer_link", &["entry 's'", "to nothing"]);
    let stream = tar(&[pax(&[("linkpath", &long[1..])]), symlink("s", "x")]);
    let t = Trial::new();
    t.unpack(&stream).unwrap();
    assert_eq!(std::fs::read_link(t.path("s")).unwrap().as_os_str().len(), 4095);
}

#[test]
fn a_file_as_a_directory() {
    let rule = "no directory";
    refused(&tar(&[file("f", ""), file("f/x", "")]), "image.layer_conflict", &["entry 'f/x'", rule]);
    let t = Trial::new();
    let error = t.unpack(&tar(&[dir("d/e"), file("d", "")])).unwrap_err();
    assert_eq!(error.code(), "image.layer_conflict");
    let error = Trial::new().unpack(&tar(&[file("d", ""), dir("d")])).unwrap_err();
    assert!(error.to_string().contains("entry 'd'"), "{error}");
}

#[test]
fn whiteouts_through_symlinks_and_files() {
    for parent in [symlink("d", "../outside"), symlink("d", "e")] {
        for (name, path) in [("d/.wh.secret", "'d/secret'"), ("d/.wh..wh..opq", "'d/.wh..wh..opq'")] {
            let whiteout = file(name, "");
            refused(&tar(&[&parent, &whiteout]), "image.layer_link", &[path, "symbolic link"]);
        }
        // In the other order too.
        let late = tar(&[&file("d/x/.wh.secret", ""), &parent]);
        refused(&late, "image.layer_link", &["'d/x/secret'", "symbolic link"]);
    }
    let beneath = tar(&[file("d", ""), file("d/.wh.x", "")]);
    refused(&beneath, "image.layer_conflict", &["'d/x'", "no directory"]);
}
