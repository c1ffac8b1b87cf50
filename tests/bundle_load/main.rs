//! A bundle directory is hostile until checked: what is honoured, what is refused, and nothing outside is ever looked at.

mod config;
mod fixture;
mod links;
mod mounts;
mod rootfs;

use std::fs;

use creel::image::{ImageLimits, bundle, open};
use creel::sandbox::root::EntryKind;
use serde_json::json;
use tempfile::TempDir;

use crate::fixture::{Fixture, check_plan, entry, refused, text};

#[test]
fn a_plain_bundle_loads() {
    let f = Fixture::new();
    let image = f
        .load(json!({
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["sh", "-c", "echo 你好"], "cwd": "/usr/bin",
                        "env": ["PATH=/usr/bin", "LANG=zh_CN.UTF-8"],
                        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 64, "hard": 64}]},
            "linux": {"resources": {"memory": {"limit": 67108864}, "pids": {"limit": 5}, "cpu": {"quota": 20000, "period": 100000}}},
        }))
        .unwrap();
    check_plan(&image);
    assert_eq!(image.name, f.dir().to_str().unwrap());
    assert_eq!(image.args, ["sh", "-c", "echo 你好"]);
    assert_eq!(image.env, [("LANG".to_owned(), "zh_CN.UTF-8".to_owned())]);
    assert_eq!(image.path_env, "/usr/bin");
    assert_eq!(image.cwd, "/usr/bin");
    let limits =
        ImageLimits { memory: Some(64 << 20), pids: Some(5), cpu_millis: Some(200), nofile: Some(64) };
    assert_eq!(image.limits, limits);
    assert_eq!(image.root.layers.len(), 1);
    assert!(image.root.binds.is_empty() && image.mounts.is_empty());
    assert!(image.notes.iter().any(|n| n.contains("10001:10001") && n.contains("0:0")), "{:?}", image.notes);
    assert!(text(&image, "/etc/passwd").contains("\nsandbox:x:10001:10001:"));
}

#[test]
fn what_runc_spec_writes_loads() {
    let f = Fixture::new();
    let image = f.load_text(include_str!("../data/runc-spec.json")).unwrap();
    check_plan(&image);
    assert!(image.mounts.is_empty(), "{:?}", image.mounts);
    assert_eq!(image.args, ["sh"]);
    assert_eq!(image.cwd, "/");
    assert_eq!(image.limits.nofile, Some(1024));
    assert_eq!(image.notes.len(), 3, "{:?}", image.notes);
}

#[test]
fn paths_and_skills_may_be_chinese() {
    let base = TempDir::new().unwrap();
    let dir = base.path().join("数据 包");
    fs::create_dir_all(dir.join("根/应用")).unwrap();
    fs::create_dir_all(dir.join("材料")).unwrap();
    let config = json!({"ociVersion": "1.0.2", "root": {"path": "根"}, "process": {"cwd": "/应用"},
        "mounts": [{"destination": "/数据", "type": "bind", "source": "材料", "options": ["bind", "ro"]}]});
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let image = open(dir.to_str().unwrap(), &["pdf"]).unwrap();
    check_plan(&image);
    assert_eq!(image.cwd, "/应用");
    assert_eq!(image.mounts[0].target(), "/数据");
    assert_eq!(entry(&image, "/skill/pdf"), Some(&EntryKind::Dir));
}

#[test]
fn the_bundle_must_be_whole() {
    let f = Fixture::new();
    let said = refused(bundle::load(&f.dir(), &[]), "image.config_missing");
    assert!(said.contains("config.json"), "{said}");
    fs::remove_dir_all(f.rootfs("")).unwrap();
    let said = refused(f.load(json!({})), "image.rootfs_missing");
    assert!(said.contains("\"rootfs\""), "{said}");
    fs::write(f.dir().join("rootfs"), "").unwrap();
    refused(f.load(json!({})), "image.root_refused");
    refused(open(&format!("{}/none", f.dir().display()), &[]), "image.not_found");
    refused(open(&format!("{}/config.json", f.dir().display()), &[]), "image.not_a_directory");
    refused(open(&format!("{}/config.json/x", f.dir().display()), &[]), "image.not_a_directory");
}
