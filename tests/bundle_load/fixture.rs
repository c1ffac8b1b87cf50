//! A bundle to break.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use creel::image::{Image, ImageError, bundle};
use creel::sandbox::root::EntryKind;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A bundle in a directory of its own, with a place `outside` beside it.
pub struct Fixture {
    pub base: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let base = TempDir::new().unwrap();
        for dir in ["bundle/rootfs/etc", "bundle/rootfs/usr/bin", "bundle/rootfs/var", "outside"] {
            fs::create_dir_all(base.path().join(dir)).unwrap();
        }
        fs::write(base.path().join("outside/secret"), "evil:x:77:77::/:/bin/sh\n").unwrap();
        Fixture { base }
    }

    pub fn dir(&self) -> PathBuf {
        self.base.path().join("bundle")
    }

    pub fn rootfs(&self, path: &str) -> PathBuf {
        self.dir().join("rootfs").join(path)
    }

    pub fn program(&self, path: &str) {
        let path = self.rootfs(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn load_text(&self, config: impl AsRef<[u8]>) -> Result<Image, ImageError> {
        fs::write(self.dir().join("config.json"), config).unwrap();
        bundle::load(&self.dir(), &[])
    }

    /// Loads with these keys over a plain configuration.
    pub fn load(&self, with: Value) -> Result<Image, ImageError> {
        let mut config = json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}});
        config.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        self.load_text(config.to_string())
    }

    pub fn load_mount(&self, mount: Value) -> Result<Image, ImageError> {
        self.load(json!({ "mounts": [mount] }))
    }
}

pub fn entry<'a>(image: &'a Image, path: &str) -> Option<&'a EntryKind> {
    image.root.entries.iter().find(|e| e.path == path).map(|e| &e.kind)
}

pub fn text(image: &Image, path: &str) -> String {
    match entry(image, path) {
        Some(EntryKind::File(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{path} is {other:?}"),
    }
}

#[track_caller]
pub fn refused(result: Result<Image, ImageError>, code: &str) -> String {
    let err = result.expect_err(code);
    assert_eq!(err.code(), code, "{err}");
    assert!(!err.is_host_fault(), "{err}");
    let text = err.to_string();
    assert!(!text.ends_with('.') && !text.chars().any(char::is_control), "{text:?}");
    text
}

/// What the launcher relies on.
pub fn check_plan(image: &Image) {
    let mut seen = vec![String::new()];
    for e in &image.root.entries {
        let (parent, _) = e.path.rsplit_once('/').unwrap();
        assert!(seen.iter().any(|s| s == parent), "{} comes before its parent", e.path);
        assert!(parent.is_empty() || *entry(image, parent).unwrap() == EntryKind::Dir, "{}", e.path);
        assert!(!seen.contains(&e.path) && !e.path.split('/').any(|p| p == ".."), "{}", e.path);
        seen.push(e.path.clone());
    }
    for mount in &image.mounts {
        assert!(entry(image, mount.target()).is_some(), "{} has no mount point", mount.target());
    }
}
