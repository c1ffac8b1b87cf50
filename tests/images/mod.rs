//! Images that the tests make themselves: tars entry by entry, and OCI layouts around them.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use creel::image::oci::{Digest, Target};
use serde_json::{Value, json};
use tar_core::{EntryBuilder, EntryType};

pub mod place;

pub const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
pub const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// A tar in the making.
#[derive(Default, Clone)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    pub fn new() -> Tar {
        Tar::default()
    }

    fn entry(mut self, path: &str, kind: EntryType, mode: u32, link: &str, content: &[u8]) -> Tar {
        let mut builder = EntryBuilder::new_ustar();
        builder.path(path).entry_type(kind);
        if !link.is_empty() {
            builder.link_name(link);
        }
        let size = content.len() as u64;
        builder.mode(mode).unwrap().size(size).unwrap().mtime(1_700_000_000).unwrap();
        self.0.extend(builder.finish_bytes());
        self.0.extend_from_slice(content);
        let padded = self.0.len().next_multiple_of(512);
        self.0.resize(padded, 0);
        self
    }

    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Tar {
        self.entry(path, EntryType::Regular, 0o644, "", content.as_ref())
    }

    pub fn program(self, path: &str, content: impl AsRef<[u8]>) -> Tar {
        self.entry(path, EntryType::Regular, 0o755, "", content.as_ref())
    }

    pub fn dir(self, path: &str, mode: u32) -> Tar {
        self.entry(path, EntryType::Directory, mode, "", b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Tar {
        self.entry(path, EntryType::Symlink, 0o777, target, b"")
    }

    pub fn hardlink(self, path: &str, target: &str) -> Tar {
        self.entry(path, EntryType::Link, 0o644, target, b"")
    }

    pub fn fifo(self, path: &str) -> Tar {
        self.entry(path, EntryType::Fifo, 0o644, "", b"")
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

/// A root file system of busybox, as a tar.
pub fn busybox() -> Tar {
    let program = fs::read("/bin/busybox").expect("busybox-static is in scripts/packages-test.txt");
    let mut tar = Tar::new().dir("bin/", 0o755).program("bin/busybox", program).dir("tmp/", 0o1777);
    for name in ["sh", "cat", "ls", "id", "sleep", "echo", "pwd"] {
        tar = tar.symlink(&format!("bin/{name}"), "busybox");
    }
    tar.file("文档/说明.txt", "你好\n")
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A layer as it lies in a layout.
#[derive(Clone)]
pub struct Layer {
    pub media: String,
    pub blob: Vec<u8>,
    pub diff_id: Digest,
}

impl Layer {
    pub fn of(media: &str, tar: &[u8]) -> Layer {
        let blob = if media.ends_with("gzip") {
            gzip(tar)
        } else if media.ends_with("zstd") {
            zstd(tar)
        } else {
            tar.to_vec()
        };
        Layer { media: media.to_owned(), blob, diff_id: Digest::of(tar) }
    }

    pub fn tar(tar: Tar) -> Layer {
        Layer::of(TAR, &tar.end())
    }
}

/// An OCI layout in a directory.
pub struct Layout {
    pub dir: PathBuf,
    pub entries: Vec<Value>,
}

impl Layout {
    pub fn new(dir: &Path) -> Layout {
        fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Layout { dir: dir.to_owned(), entries: Vec::new() }
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("blobs/sha256").join(digest.hex())
    }

    pub fn blob(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        fs::write(self.path(&digest), bytes).unwrap();
        digest
    }

    pub fn descriptor(&self, media: &str, bytes: &[u8]) -> Value {
        json!({"mediaType": media, "digest": self.blob(bytes), "size": bytes.len()})
    }

    /// Blobs of an image; the descriptor of its manifest.
    pub fn image(&self, layers: &[Layer], settings: Value) -> Value {
        let diff_ids: Vec<Digest> = layers.iter().map(|l| l.diff_id).collect();
        let here = Target::here();
        let config = json!({
            "architecture": here.architecture, "os": "linux", "created": "2026-11-30T18:22:47Z", "config": settings,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        self.manifest(layers, &config)
    }

    pub fn manifest(&self, layers: &[Layer], config: &Value) -> Value {
        let config = self.descriptor(CONFIG, config.to_string().as_bytes());
        let layers: Vec<Value> = layers.iter().map(|l| self.descriptor(&l.media, &l.blob)).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        self.descriptor(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Adds an entry to the index, with a name or a tag.
    pub fn add(&mut self, mut entry: Value, name: Option<&str>) {
        if let Some(name) = name {
            entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        }
        self.entries.push(entry);
        self.write();
    }

    pub fn write(&self) {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": self.entries});
        fs::write(self.dir.join("index.json"), index.to_string()).unwrap();
    }

    /// The layout as a tar, its entries in this or the reverse order.
    pub fn tar(&self, reverse: bool) -> Vec<u8> {
        let mut names = vec!["oci-layout".to_owned(), "index.json".to_owned()];
        for entry in fs::read_dir(self.dir.join("blobs/sha256")).unwrap() {
            names.push(format!("blobs/sha256/{}", entry.unwrap().file_name().to_str().unwrap()));
        }
        if reverse {
            names.reverse();
        }
        let mut tar = Tar::new();
        for name in names {
            tar = tar.file(&name, fs::read(self.dir.join(&name)).unwrap());
        }
        tar.end()
    }
}

/// A layout with one image, `name`, of these layers.
pub fn layout(dir: &Path, name: &str, layers: &[Layer]) -> Layout {
    let mut layout = Layout::new(dir);
    let image =
        layout.image(layers, json!({"Cmd": ["sh", "-c", "echo 来自镜像"], "Env": ["PATH=/bin", "A=甲"]}));
    layout.add(image, Some(name));
    layout
}

/// Everything below a directory: path, and what it is (content of files, target of links).
pub fn tree(dir: &Path) -> Vec<(String, String)> {
    fn walk(dir: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                found.push((format!("{name}/"), String::new()));
                walk(&entry.path(), &format!("{name}/"), found);
            } else if kind.is_symlink() {
                found.push((name, format!("-> {}", fs::read_link(entry.path()).unwrap().display())));
            } else {
                let content = fs::read(entry.path()).unwrap();
                found.push((name, format!("{} {}", content.len(), Digest::of(&content).short())));
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, "", &mut found);
    found.sort();
    found
}

/// Asserts that a store is what it should be at any moment: each name leads to a whole image, each blob is what its name says, and each
/// layer and bundle is complete.
#[track_caller]
pub fn assert_store_valid(images: &Path) {
    let read = |path: PathBuf| -> Value {
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let list = |dir: &str| {
        let entries = fs::read_dir(images.join(dir)).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    for hex in list("blobs/sha256") {
        assert_eq!(Digest::of(&fs::read(images.join("blobs/sha256").join(&hex)).unwrap()).hex(), hex);
    }
    for hex in list("layers") {
        read(images.join("layers").join(&hex).join("layer.json"));
        assert!(images.join("layers").join(&hex).join("fs").is_dir());
    }
    for hex in list("bundles") {
        let dir = images.join("bundles").join(&hex);
        read(dir.join("config.json"));
        assert_eq!(read(dir.join("image.json"))["manifest"], format!("sha256:{hex}"));
        assert!(dir.join("rootfs").is_dir() && dir.join("lock").is_file());
    }
    let hex = |digest: &Value| digest.as_str().unwrap().trim_start_matches("sha256:").to_owned();
    for entry in read(images.join("index.json"))["manifests"].as_array().unwrap() {
        let manifest = hex(&entry["digest"]);
        assert!(images.join("bundles").join(&manifest).is_dir(), "{entry}");
        let manifest = read(images.join("blobs/sha256").join(manifest));
        for part in manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]) {
            assert!(images.join("blobs/sha256").join(hex(&part["digest"])).is_file(), "{part}");
        }
        let config = read(images.join("blobs/sha256").join(hex(&manifest["config"]["digest"])));
        for diff_id in config["rootfs"]["diff_ids"].as_array().unwrap() {
            assert!(images.join("layers").join(hex(diff_id)).is_dir(), "{diff_id}");
        }
    }
}
