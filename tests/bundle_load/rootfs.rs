//! Hostile root directories: nothing outside the bundle is read, nothing waits.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use creel::sandbox::root::EntryKind;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::fixture::{Fixture, check_plan, entry, refused, text};

#[test]
fn root_path_stays_in_the_bundle() {
    let f = Fixture::new();
    symlink("/", f.dir().join("slash")).unwrap();
    symlink("../outside", f.dir().join("up")).unwrap();
    symlink("rootfs", f.dir().join("inside")).unwrap();
    symlink("/proc/self/root", f.dir().join("magic")).unwrap();
    let absolute = f.rootfs("").to_str().unwrap().to_owned();
    for path in [
        "..",
        "../..",
        "../outside",
        "rootfs/../../outside",
        "/",
        "/etc",
        &absolute,
        "slash",
        "slash/etc",
        "up",
    ] {
        refused(f.load(json!({"root": {"path": path}})), "image.root_refused");
    }
    for path in ["inside", "magic", "magic/etc", "", "a\0b", &"x".repeat(300)] {
        refused(f.load(json!({"root": {"path": path}})), "image.root_refused");
    }
    for path in ["./rootfs", "rootfs/", "rootfs/../rootfs"] {
        f.load(json!({"root": {"path": path, "readonly": false}})).unwrap();
    }
    refused(f.load(json!({"root": {"path": "none"}})), "image.rootfs_missing");
}

/// CVE-2019-16884, CVE-2023-27561, CVE-2026-41579: our real directories hide links of the image.
#[test]
fn symlinked_directories_of_the_image_are_hidden() {
    for (i, target) in ["../../../../outside", "/etc", "/proc/self/fd/3", "loop", "/none"].iter().enumerate()
    {
        let f = Fixture::new();
        fs::remove_dir(f.rootfs("etc")).unwrap();
        for name in ["etc", "dev", "proc", "sys", "tmp", "run", "work", "inputs", "outputs", "skill"] {
            symlink(if *target == "loop" { name } else { target }, f.rootfs(name)).unwrap();
        }
        match f.load(json!({})) {
            Ok(image) => {
                check_plan(&image);
                for dir in [
                    "/etc", "/dev", "/proc", "/sys", "/tmp", "/run", "/work", "/inputs", "/outputs", "/skill",
                ] {
                    assert_eq!(entry(&image, dir), Some(&EntryKind::Dir), "{dir} -> {target}");
                }
                assert!(!text(&image, "/etc/passwd").contains("evil"));
            }
            // Inside the image these are loops: etc -> /etc, proc -> /proc/self/fd/3.
            Err(err) => {
                assert_eq!(err.code(), "image.accounts_refused", "{target}");
                assert!((1..=3).contains(&i), "{target}: {err}");
            }
        }
    }
}

#[test]
fn accounts_of_the_image_are_kept_and_ours_added() {
    let f = Fixture::new();
    fs::write(
        f.rootfs("etc/passwd"),
        "root:x:0:0::/root:/bin/ash\nsandbox:x:0:0::/:/bin/sh\nweb:x:10001:1::/:/x\n",
    )
    .unwrap();
    fs::write(f.rootfs("etc/group"), "wheel:x:10:web\nevil:x:10001:\n").unwrap();
    let image = f.load(json!({})).unwrap();
    let passwd = text(&image, "/etc/passwd");
    assert!(passwd.starts_with("root:x:0:0::/root:/bin/ash\n"), "{passwd}");
    assert_eq!(passwd.matches("sandbox:").count(), 2, "{passwd}"); // its name and its remark
    assert_eq!(passwd.matches("10001").count(), 2, "{passwd}"); // uid and gid of ours
    assert_eq!(text(&image, "/etc/group"), "wheel:x:10:web\nroot:x:0:\nnogroup:x:65534:\nsandbox:x:10001:\n");
}

#[test]
fn passwd_is_read_inside_the_image_only() {
    let f = Fixture::new();
    let passwd = f.rootfs("etc/passwd");
    let secret = f.base.path().join("outside/secret");
    for target in ["/etc/shadow", secret.to_str().unwrap(), "../../../outside/secret", "/proc/self/environ"] {
        symlink(target, &passwd).unwrap();
        let got = text(&f.load(json!({})).unwrap(), "/etc/passwd");
        assert_eq!(got.lines().count(), 3, "{target}: {got}");
        fs::remove_file(&passwd).unwrap();
    }
    // A link inside the image is fine.
    symlink("/usr/passwd", &passwd).unwrap();
    fs::write(f.rootfs("usr/passwd"), "app:x:5:5::/:/bin/sh\n").unwrap();
    assert!(text(&f.load(json!({})).unwrap(), "/etc/passwd").starts_with("app:x:5:5:"));
}

#[test]
fn a_passwd_that_is_no_small_file_is_refused_without_waiting() {
    for name in ["passwd", "group"] {
        let f = Fixture::new();
        let path = f.rootfs("etc").join(name);
        let start = Instant::now();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(refused(f.load(json!({})), "image.accounts_refused").contains(name));
        fs::remove_file(&path).unwrap();
        if rustix::process::geteuid().is_root() {
            // 10:1 was the mouse: a device that is opened is a device that acts.
            mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(10, 1)).unwrap();
            refused(f.load(json!({})), "image.accounts_refused");
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        refused(f.load(json!({})), "image.accounts_refused");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "x".repeat(2 << 20)).unwrap();
        refused(f.load(json!({})), "image.accounts_refused");
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        refused(f.load(json!({})), "image.accounts_refused");
        fs::remove_file(&path).unwrap();
        symlink(name, &path).unwrap();
        refused(f.load(json!({})), "image.accounts_refused");
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

/// CVE-2024-21626
#[test]
fn cwd_is_no_way_to_the_host() {
    let f = Fixture::new();
    let cwd = |cwd: &str| f.load(json!({"process": {"cwd": cwd}}));
    for n in 3..20 {
        refused(cwd(&format!("/proc/self/fd/{n}")), "image.cwd_refused");
    }
    for bad in [
        "",
        "usr",
        "./usr",
        "/usr/../usr",
        "/proc",
        "/proc/",
        "//proc/self/cwd",
        "/./proc/1/root",
        "/dev/fd/7",
    ] {
        refused(cwd(bad), "image.cwd_refused");
    }
    for bad in ["/sys", "/a\0b", "/tmp/x", "/work/x", "/etc/passwd", "/etc/passwd/x", "/etc/mtab/x"] {
        refused(cwd(bad), "image.cwd_refused");
    }
    // The image has a directory where the link leads, so that the text alone looks right.
    fs::create_dir_all(f.rootfs("proc/self/fd/7")).unwrap();
    symlink("/proc/self/fd/7", f.rootfs("app")).unwrap();
    symlink("/proc/self", f.rootfs("usr/p")).unwrap();
    fs::write(f.rootfs("usr/file"), "").unwrap();
    for bad in ["/app", "/usr/p/fd/7", "/usr/file", "/usr/file/x"] {
        refused(cwd(bad), "image.cwd_refused");
    }
    for good in ["/", "/work", "/tmp", "/outputs", "/usr/bin/"] {
        cwd(good).unwrap();
    }
    // Other runtimes make a directory that the image lacks; so does our layer.
    let image = cwd("/srv/新/app").unwrap();
    check_plan(&image);
    assert_eq!(image.cwd, "/srv/新/app");
    assert_eq!(entry(&image, "/srv/新/app"), Some(&EntryKind::Dir));
}
