//! Mounts of a bundle.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use creel::image::BundleMount;
use creel::sandbox::root::EntryKind;
use rustix::fs::{CWD, FileType, Mode, fstat, mknodat};
use serde_json::json;

use crate::fixture::{Fixture, check_plan, entry, refused};

#[test]
fn mounts_that_are_honoured() {
    let f = Fixture::new();
    fs::create_dir(f.dir().join("data")).unwrap();
    fs::write(f.dir().join("model.bin"), "m").unwrap();
    symlink("data", f.dir().join("inner")).unwrap();
    fs::create_dir(f.rootfs("opt")).unwrap();
    let absolute = f.dir().join("data").to_str().unwrap().to_owned();
    let image = f
        .load(json!({"mounts": [
            {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "size=32m"]},
            {"destination": "/opt/data/", "type": "bind", "source": "data", "options": ["rbind", "rw"]},
            {"destination": "/opt/abs", "type": "none", "source": absolute, "options": ["bind", "ro"]},
            {"destination": "/opt/model", "source": "./model.bin", "options": ["bind", "ro"]},
            {"destination": "/opt/inner", "type": "bind", "source": "inner", "options": ["ro"]},
            {"destination": "/var/tmp", "type": "tmpfs"},
        ]}))
        .unwrap();
    check_plan(&image);
    let targets: Vec<_> = image.mounts.iter().map(BundleMount::target).collect();
    assert_eq!(targets, ["/scratch", "/opt/data", "/opt/abs", "/opt/model", "/opt/inner", "/var/tmp"]);
    assert!(matches!(image.mounts[0], BundleMount::Tmpfs { size: 33_554_432, .. }));
    assert!(matches!(image.mounts[5], BundleMount::Tmpfs { size: 16_777_216, .. }));
    assert_eq!(entry(&image, "/opt/model"), Some(&EntryKind::File(Vec::new())));
    assert_eq!(entry(&image, "/var/tmp"), Some(&EntryKind::Dir));
    for (at, want) in [(1, "data"), (2, "data"), (3, "model.bin"), (4, "data")] {
        let BundleMount::Bind { source, .. } = &image.mounts[at] else { panic!("{at}") };
        assert_eq!(fstat(source).unwrap().st_ino, inode(&f.dir().join(want)), "{at}");
    }
    assert!(
        image.notes.iter().any(|n| n.contains("read-only") && n.contains("/opt/data") && !n.contains("abs"))
    );
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

#[test]
fn mount_sources_outside_the_bundle_are_refused() {
    let f = Fixture::new();
    let outside = f.base.path().join("outside").to_str().unwrap().to_owned();
    symlink("../outside", f.dir().join("up")).unwrap();
    symlink("/etc", f.dir().join("etc")).unwrap();
    symlink("/proc/self/root", f.dir().join("magic")).unwrap();
    symlink("loop", f.dir().join("loop")).unwrap();
    mknodat(CWD, f.dir().join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(f.dir().join("socket")).unwrap();
    let sneaky = format!("{}/../outside", f.dir().display());
    for source in
        ["/etc/shadow", "/", "/var/run/docker.sock", &outside, &sneaky, "../outside", "..", "up", "up/secret"]
    {
        let said = refused(
            f.load_mount(json!({"destination": "/x", "type": "bind", "source": source, "options": ["ro"]})),
            "image.mount_refused",
        );
        assert!(said.contains("--input") && said.contains("/x"), "{said}");
    }
    for source in ["etc", "etc/shadow", "magic", "magic/etc", "loop", "fifo", "socket", "none", "", "a\0b"] {
        refused(
            f.load_mount(json!({"destination": "/x", "type": "bind", "source": source})),
            "image.mount_refused",
        );
    }
    refused(f.load_mount(json!({"destination": "/x", "type": "bind"})), "image.mount_refused");
    drop(socket);
}

/// CVE-2021-30465, CVE-2024-45310, CVE-2025-52881
#[test]
fn mount_targets_are_never_on_what_the_sandbox_relies_on() {
    let f = Fixture::new();
    symlink("usr/lib", f.rootfs("lib")).unwrap();
    fs::create_dir(f.rootfs("usr/lib")).unwrap();
    fs::write(f.rootfs("usr/file"), "").unwrap();
    for target in [
        "/",
        "//",
        "",
        "x",
        "../x",
        "/a/../proc",
        "/a\0",
        "/proc",
        "/proc/self/attr",
        "/proc/sys/kernel",
        "//proc//",
    ] {
        refused(f.load_mount(json!({"destination": target, "type": "tmpfs"})), "image.mount_refused");
    }
    for target in [
        "/dev",
        "/dev/null",
        "/sys/kernel",
        "/work",
        "/work/x",
        "/inputs/x",
        "/outputs",
        "/skill/pdf",
        "/tmp/x",
        "/run/x",
    ] {
        refused(
            f.load_mount(json!({"destination": target, "type": "bind", "source": "rootfs"})),
            "image.mount_refused",
        );
    }
    for target in [
        "/etc",
        "/etc/passwd",
        "/etc/passwd/x",
        "/etc/mtab",
        "/etc/mtab/x",
        "/lib/x",
        "/usr/file/x",
        "/usr/file/x/y",
    ] {
        refused(f.load_mount(json!({"destination": target, "type": "tmpfs"})), "image.mount_refused");
    }
    check_plan(&f.load_mount(json!({"destination": "/etc/app/conf.d", "type": "tmpfs"})).unwrap());
    check_plan(&f.load_mount(json!({"destination": "/process", "type": "tmpfs"})).unwrap());
}

#[test]
fn mount_kinds_overlaps_and_counts() {
    let f = Fixture::new();
    for kind in ["overlay", "cgroup", "sysfs", "proc", "ext4", "nfs", "fuse", "devtmpfs", "mqueue", ""] {
        let said = refused(f.load_mount(json!({"destination": "/x", "type": kind})), "image.mount_refused");
        assert!(said.contains("tmpfs"), "{said}");
    }
    refused(f.load_mount(json!({"destination": "/x"})), "image.mount_refused");
    for (a, b) in [("/x", "/x"), ("/x", "/x/y"), ("/x/y", "/x"), ("/x/", "//x")] {
        let mounts = json!([{"destination": a, "type": "tmpfs"}, {"destination": b, "type": "tmpfs"}]);
        let said = refused(f.load(json!({ "mounts": mounts })), "image.mount_refused");
        assert!(said.contains("overlaps"), "{a} {b}: {said}");
    }
    refused(
        f.load_mount(json!({"destination": "/x", "type": "tmpfs", "options": ["size=lots"]})),
        "image.mount_refused",
    );
    let many = |n: u32| -> Vec<_> {
        (0..n).map(|i| json!({"destination": format!("/m{i}"), "type": "tmpfs"})).collect()
    };
    assert_eq!(f.load(json!({"mounts": many(64)})).unwrap().mounts.len(), 64);
    refused(f.load(json!({"mounts": many(65)})), "image.mount_refused");
}
