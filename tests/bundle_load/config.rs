//! `config.json`: what it may say, and what is made of the rest.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use creel::image::bundle;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::fixture::{Fixture, refused};

#[test]
fn a_minimal_configuration_has_defaults() {
    let f = Fixture::new();
    let image = f.load_text(r#"{"ociVersion":"1.2.1"}"#).unwrap();
    assert_eq!((image.args.len(), image.env.len(), image.notes.len()), (0, 0, 0));
    assert_eq!(image.cwd, "/work");
    assert!(image.path_env.starts_with("/usr/local/sbin:"));
}

#[test]
fn a_configuration_that_is_none_is_refused_with_its_place() {
    let f = Fixture::new();
    for (config, place) in [
        ("", "line 1"),
        ("{", "line 1"),
        ("[]", "line 1"),
        ("{\"ociVersion\":\"1.0.0\",\n \"process\": {\"args\": \"sh\"}}", "line 2"),
        ("{\"ociVersion\":\"1.0.0\",\n\n \"mounts\": {}}", "line 3"),
        ("{\"ociVersion\":\"1.0.0\",\"linux\":{\"resources\":{\"memory\":{\"limit\":\"1g\"}}}}", "line 1"),
        ("{\"ociVersion\":\"1.0.0\",\"linux\":{\"resources\":{\"memory\":{\"limit\":1e300}}}}", "line 1"),
        ("{\"ociVersion\":\"1.0.0\",\"process\":{\"user\":{\"uid\":4294967296}}}", "line 1"),
        ("{}", "ociVersion"),
        ("{\"ociVersion\":\"1.0.0\",\"ociVersion\":\"1.0.0\"}", "duplicate"),
        ("{\"ociVersion\":\"1.0.0\"} trailing", "line 1"),
    ] {
        let said = refused(f.load_text(config), "image.config_invalid");
        assert!(said.contains(place), "{config}: {said}");
    }
    refused(f.load_text(b"{\"ociVersion\":\"1.0.0\",\"hostname\":\"\xff\"}"), "image.config_invalid");
    for version in ["", "2.0.0", "0.9", "10.0.0", "v1.0"] {
        refused(f.load_text(json!({"ociVersion": version}).to_string()), "image.version_unsupported");
    }
}

#[test]
fn a_huge_or_deep_configuration_is_refused_quickly() {
    let f = Fixture::new();
    let start = Instant::now();
    for deep in ["[", "{\"a\":"] {
        let value = deep.repeat(100_000);
        for key in ["annotations", "linux", "process", "x"] {
            let config = format!("{{\"ociVersion\":\"1.0.0\",\"{key}\":{value}");
            refused(f.load_text(config), "image.config_invalid");
        }
    }
    let wide = format!("{{\"ociVersion\":\"1.0.0\",\"hostname\":\"{}\"}}", "x".repeat(1 << 20));
    refused(f.load_text(wide), "image.config_too_large");
    // 100 MB, without 100 MB of disk.
    let file = fs::File::create(f.dir().join("config.json")).unwrap();
    file.set_len(100 << 20).unwrap();
    refused(bundle::load(&f.dir(), &[]), "image.config_too_large");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn config_json_must_be_a_file_of_the_bundle() {
    let f = Fixture::new();
    let config = f.dir().join("config.json");
    fs::write(f.base.path().join("outside/config.json"), r#"{"ociVersion":"1.0.0"}"#).unwrap();
    symlink("../outside/config.json", &config).unwrap();
    refused(bundle::load(&f.dir(), &[]), "image.config_invalid");
    fs::remove_file(&config).unwrap();
    mknodat(CWD, &config, FileType::Fifo, Mode::RUSR, 0).unwrap();
    refused(bundle::load(&f.dir(), &[]), "image.config_invalid"); // and does not wait for a writer
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    refused(bundle::load(&f.dir(), &[]), "image.config_invalid");
}

#[test]
fn hooks_are_refused() {
    let f = Fixture::new();
    for name in
        ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop", "new"]
    {
        let said = refused(f.load(json!({"hooks": {name: [{"path": "/bin/true"}]}})), "image.hooks_refused");
        assert!(said.contains(name), "{said}");
    }
    f.load(json!({"hooks": {}})).unwrap();
}

#[test]
fn what_weakens_the_policy_is_noted_not_taken() {
    let f = Fixture::new();
    let image = f
        .load(json!({
            "process": {"terminal": true, "cwd": "/", "noNewPrivileges": false, "apparmorProfile": "unconfined",
                        "capabilities": {"bounding": ["CAP_SYS_ADMIN"]}, "user": {"uid": 10001, "gid": 10001}},
            "linux": {"namespaces": [{"type": "network", "path": "/proc/1/ns/net"}], "maskedPaths": [],
                      "seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}, "rootfsPropagation": "shared",
                      // CVE-2022-0811
                      "sysctl": {"kernel.shm_rmid_forced": "1+kernel.core_pattern=|/x"},
                      "devices": [{"path": "/dev/mem", "type": "c", "major": 1, "minor": 1}],
                      "resources": {"memory": {"swap": -1}}},
        }))
        .unwrap();
    for key in [
        "noNewPrivileges",
        "apparmorProfile",
        "capabilities",
        "namespaces",
        "maskedPaths",
        "seccomp",
        "sysctl",
        "devices",
        "swap",
    ] {
        assert!(image.notes[0].contains(key), "{key}: {:?}", image.notes);
    }
    assert_eq!(image.notes.len(), 2, "{:?}", image.notes);
    assert!(image.notes[1].contains("terminal"));
}
