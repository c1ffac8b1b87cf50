//! Promise: layers on top of each other come to what containerd and umoci make of them, also where they meet symlinks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use images::place::Place;
use images::{Layer, Tar};

#[path = "images/mod.rs"]
mod images;

/// `/lib` is a link to `usr/lib`, as in all of today's distributions; `/opt/链` leads there through another link.
fn base() -> Layer {
    let tar = Tar::new()
        .dir("usr/", 0o755)
        .dir("usr/lib/", 0o751)
        .file("usr/lib/libc.so", "c")
        .file("usr/lib/gone", "x");
    let tar = tar
        .symlink("lib", "usr/lib")
        .dir("opt/", 0o755)
        .symlink("opt/链", "/lib")
        .symlink("out", "../../../etc");
    Layer::tar(tar)
}

#[test]
fn what_lies_behind_a_symlink_of_a_lower_layer_goes_there() {
    let place = Place::new();
    let upper =
        Layer::tar(Tar::new().file("lib/mytool.conf", "1").file("lib/sub/x", "2").file("opt/链/y", "3"));
    let image = place.install("usrmerge:1", &[base(), upper]);
    let root = place.root(&image);
    assert_eq!(fs::read_link(root.join("lib")).unwrap().to_str(), Some("usr/lib"));
    for (path, content) in [("mytool.conf", "1"), ("sub/x", "2"), ("y", "3"), ("libc.so", "c")] {
        assert_eq!(fs::read_to_string(root.join("usr/lib").join(path)).unwrap(), content, "{path}");
    }
    // The directory itself is as its own layer says.
    assert_eq!(fs::metadata(root.join("usr/lib")).unwrap().permissions().mode() & 0o777, 0o751);
    assert_eq!(fs::read_link(root.join("opt/链")).unwrap().to_str(), Some("/lib"));
}

#[test]
fn a_whiteout_behind_a_symlink_hides_what_is_there() {
    let place = Place::new();
    let image = place.install("white:1", &[base(), Layer::tar(Tar::new().file("lib/.wh.gone", ""))]);
    let root = place.root(&image);
    assert!(!root.join("usr/lib/gone").exists() && root.join("usr/lib/libc.so").exists());
    assert!(root.join("lib").is_symlink());
}

#[test]
fn a_directory_of_the_layer_itself_takes_the_links_place() {
    let place = Place::new();
    let upper = Layer::tar(Tar::new().dir("lib/", 0o700).file("lib/own", "1").file("lib/.wh.gone", ""));
    let image = place.install("own:1", &[base(), upper]);
    let root = place.root(&image);
    assert!(fs::symlink_metadata(root.join("lib")).unwrap().is_dir());
    assert_eq!(fs::read_dir(root.join("lib")).unwrap().count(), 1);
    assert!(root.join("usr/lib/gone").exists());
}

/// CVE-2018-15664 and its kin: a link that would lead out leads to a place in the tree, or is replaced.
#[test]
fn no_link_leads_out() {
    let place = Place::new();
    let outside = place.at("etc");
    fs::create_dir(&outside).unwrap();
    let base = Tar::new()
        .dir("etc/", 0o755)
        .symlink("out", "../../../../etc")
        .symlink("far", outside.to_str().unwrap());
    let base = base.symlink("loop", "loop").symlink("self", "/").symlink("proc", "/proc/self/root");
    let upper =
        Tar::new().file("out/a", "1").file("far/b", "2").file("loop/c", "3").file("self/self/self/d", "4");
    let image = place.install("out:1", &[Layer::tar(base), Layer::tar(upper.file("proc/e", "5"))]);
    let root = place.root(&image);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    for (path, content) in [("etc/a", "1"), ("far/b", "2"), ("loop/c", "3"), ("d", "4"), ("proc/e", "5")] {
        assert_eq!(fs::read_to_string(root.join(path)).unwrap(), content, "{path}");
    }
}
