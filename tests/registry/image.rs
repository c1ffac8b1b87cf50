//! Tiny images, made here byte by byte.

use std::fs;
use std::io::Write;
use std::path::Path;

use creel::image::oci::Digest;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image's blobs.
#[derive(Debug, Clone)]
pub struct TestImage {
    pub manifest: Vec<u8>,
    pub config: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
}

pub fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
}

/// This machine's architecture as images call it.
pub fn here() -> &'static str {
    creel::image::oci::Target::here().architecture
}

impl TestImage {
    /// An image for this machine whose layers hold one file each, `数据/<n>`, of so many bytes that don't compress.
    pub fn new(sizes: &[usize]) -> TestImage {
        TestImage::of(here(), sizes)
    }

    pub fn of(architecture: &str, sizes: &[usize]) -> TestImage {
        let mut layers = Vec::new();
        let mut diff_ids = Vec::new();
        for (n, size) in sizes.iter().enumerate() {
            let tar = tar(&[("数据/", None), (&format!("数据/{n}"), Some(noise(*size, n as u64)))]);
            diff_ids.push(digest(&tar));
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&tar).unwrap();
            layers.push(gzip.finish().unwrap());
        }
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": { "Env": ["PATH=/bin"], "Cmd": ["/bin/sh"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = config.to_string().into_bytes();
        let descriptors: Vec<_> = layers.iter().map(|l| descriptor(LAYER, l)).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config), "layers": descriptors,
        });
        TestImage { manifest: manifest.to_string().into_bytes(), config, layers }
    }

    /// The same blobs under a manifest that was tampered with.
    pub fn tampered(&self, change: impl FnOnce(&mut Value)) -> TestImage {
        let mut manifest: Value = serde_json::from_slice(&self.manifest).unwrap();
        change(&mut manifest);
        TestImage { manifest: manifest.to_string().into_bytes(), ..self.clone() }
    }

    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }

    pub fn layer(&self, n: usize) -> String {
        digest(&self.layers[n])
    }

    pub fn blobs(&self) -> impl Iterator<Item = &Vec<u8>> {
        [&self.config].into_iter().chain(&self.layers)
    }

    /// The entry of an index.
    pub fn entry(&self, architecture: &str) -> Value {
        let mut entry = descriptor(MANIFEST, &self.manifest);
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entry
    }
}

/// An index of these entries.
pub fn index(entries: &[Value]) -> Vec<u8> {
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }).to_string().into_bytes()
}

/// Writes an OCI layout whose one tag `latest` is `top`, of that media type; the blobs of `images` are in it.
pub fn write_layout(dir: &Path, media_type: &str, top: &[u8], images: &[&TestImage]) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| fs::write(blobs.join(&digest(bytes)[7..]), bytes).unwrap();
    put(top);
    for image in images {
        put(&image.manifest);
        image.blobs().for_each(|b| put(b));
    }
    let mut entry = descriptor(media_type, top);
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
    fs::write(dir.join("index.json"), json!({ "schemaVersion": 2, "manifests": [entry] }).to_string())
        .unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

/// Bytes that don't compress and are always the same.
pub fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// A ustar archive of directories (`None`) and files.
fn tar(entries: &[(&str, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in entries {
        let mut header = [0u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, if content.is_some() { b"0000644\0" } else { b"0000755\0" });
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.as_ref().map_or(0, Vec::len)).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, if content.is_some() { b"0" } else { b"5" });
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&header);
        if let Some(content) = content {
            out.extend_from_slice(content);
            out.resize(out.len().next_multiple_of(512), 0);
        }
    }
    out.resize(out.len() + 1024, 0);
    out
}
