//! The links that creel adds to an image.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use creel::sandbox::root::EntryKind;
use serde_json::json;

use crate::fixture::{Fixture, check_plan, entry};

#[test]
fn the_python_link_goes_beside_python3() {
    let f = Fixture::new();
    f.program("usr/bin/python3.12");
    symlink("python3.12", f.rootfs("usr/bin/python3")).unwrap();
    let image = f.load(json!({})).unwrap();
    check_plan(&image);
    assert_eq!(entry(&image, "/usr/bin/python"), Some(&EntryKind::Symlink("python3".to_owned())));
    assert_eq!(image.path_env, creel::image::DEFAULT_PATH);
    symlink("python3", f.rootfs("usr/bin/python")).unwrap();
    assert_eq!(entry(&f.load(json!({})).unwrap(), "/usr/bin/python"), None);
}

#[test]
fn an_entry_of_ours_never_replaces_a_symlinked_directory() {
    let f = Fixture::new();
    f.program("usr/bin/python3");
    symlink("usr/bin", f.rootfs("bin")).unwrap();
    let image = f.load(json!({"process": {"cwd": "/", "env": ["PATH=/bin"]}})).unwrap();
    check_plan(&image);
    assert_eq!(entry(&image, "/bin"), None);
    assert_eq!(entry(&image, "/opt/creel/bin/python"), Some(&EntryKind::Symlink("/bin/python3".to_owned())));
    assert_eq!(image.path_env, "/bin:/opt/creel/bin");

    symlink("usr/opt", f.rootfs("opt")).unwrap();
    let image = f.load(json!({"process": {"cwd": "/", "env": ["PATH=/bin"]}})).unwrap();
    assert_eq!(entry(&image, "/opt"), None);
    assert!(image.notes.iter().any(|n| n.contains("python")), "{:?}", image.notes);
}

#[test]
fn odd_paths_make_no_odd_entries() {
    let f = Fixture::new();
    for dir in ["etc/mtab", "tmp", "proc/self", "var/tmp", "a/b"] {
        f.program(&format!("{dir}/python3"));
    }
    for path in
        ["/etc/mtab", "/tmp", "/proc/self", "/var/tmp", "", ":", ".", "a/b", "/a/../a/b", "/", "/etc/passwd"]
    {
        let image = f.load(json!({"process": {"cwd": "/", "env": [format!("PATH={path}")]}})).unwrap();
        check_plan(&image);
        assert!(!image.root.entries.iter().any(|e| e.path.ends_with("/python")), "{path}");
        assert_eq!(image.path_env, path);
    }
    let start = Instant::now();
    f.load(json!({"process": {"cwd": "/", "env": [format!("PATH={}", "/a/b/c:".repeat(100_000))]}})).unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn var_links_follow_the_image() {
    let f = Fixture::new();
    let tmp = Some(&EntryKind::Symlink("/tmp".to_owned()));
    let run = Some(&EntryKind::Symlink("/run".to_owned()));
    let image = f.load(json!({})).unwrap();
    assert_eq!((entry(&image, "/var/tmp"), entry(&image, "/var/run")), (tmp, run));
    // A directory would be read-only; a link of the image stays.
    fs::create_dir(f.rootfs("var/tmp")).unwrap();
    symlink("/run", f.rootfs("var/run")).unwrap();
    let image = f.load(json!({})).unwrap();
    assert_eq!((entry(&image, "/var/tmp"), entry(&image, "/var/run")), (tmp, None));
    // A linked /var must not become a directory of ours.
    fs::rename(f.rootfs("var"), f.rootfs("data")).unwrap();
    symlink("data", f.rootfs("var")).unwrap();
    let image = f.load(json!({})).unwrap();
    assert_eq!(entry(&image, "/var"), None);
}
