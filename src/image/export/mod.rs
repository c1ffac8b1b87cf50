//! An installed image as an OCI image layout, in a directory or a tar, for other tools.
//!
//! The blobs go out as they came in, so the image keeps its digest; only where the manifest is one of Docker's, or another
//! compression was asked for, a manifest of the OCI specification is written instead. The configuration, and with it the layers'
//! diff_ids, stays what it is.

mod checked;
mod directory;
mod error;
mod rewrite;
mod tarball;

use std::path::Path;
use std::rc::Rc;

use serde_json::json;

pub use error::ExportError;

use super::oci::{self, Digest};
use super::store::{Blob, Installed, Observer, Quiet, Store, Work};

/// How layers go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compress {
    /// As they came.
    #[default]
    AsIs,
    None,
    Gzip,
    Zstd,
}

/// Under which tag, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tag in the layout; else that of the image's name.
    pub tag: Option<String>,
    pub compress: Compress,
    pub observer: Rc<dyn Observer>,
}

impl Default for Options {
    fn default() -> Options {
        Options { tag: None, compress: Compress::AsIs, observer: Rc::new(Quiet) }
    }
}

/// What was written.
#[derive(Debug)]
pub struct Exported {
    pub tag: String,
    /// That of the manifest in the layout.
    pub manifest: Digest,
    /// Whether it is another than that of the installed image.
    pub rewritten: bool,
}

/// What a layout shall hold.
struct Contents {
    /// Configuration and layers first, the manifest last; each once.
    blobs: Vec<Blob>,
    /// The image's entry for `index.json`.
    entry: serde_json::Value,
    tag: String,
    /// The image's name, for messages.
    image: String,
}

/// Writes the image `name` to `dest`: `-` is a tar on standard output, a path that ends in `.tar` a tar, and any other a directory.
///
/// A directory has to be new, empty, or an OCI layout, to which the image is then added (an image of the same tag there is
/// replaced). A tar is written beside its place and renamed when it is complete.
///
/// # Errors
/// [`ExportError`].
pub fn export(store: &Store, name: &str, dest: &Path, options: &Options) -> Result<Exported, ExportError> {
    check_dest(dest)?;
    let installed = store.lookup(name)?.ok_or_else(|| store.no_such(name))?;
    let tag = tag(store, name, &installed, options)?;
    let mut work = store.begin_staged()?;
    work.observe(options.observer.clone());
    let manifest = rewrite::manifest(&work, &installed.manifest, &installed.name, options.compress)?;
    let contents = contents(&work, &manifest, tag, store, &installed)?;
    options.observer.phase("writing");
    options.observer.total(contents.blobs.iter().map(|b| b.size).sum());
    let to_tar = dest.extension().is_some_and(|e| e == "tar");
    if dest.as_os_str() == "-" {
        tarball::to_stdout(&work, &contents)?;
    } else if to_tar {
        tarball::to_file(&work, &contents, dest)?;
    } else {
        directory::write(&work, &contents, dest)?;
    }
    let rewritten = manifest.digest != installed.manifest;
    Ok(Exported { tag: contents.tag, manifest: manifest.digest, rewritten })
}

/// A destination that would surely not become what its name says.
fn check_dest(dest: &Path) -> Result<(), ExportError> {
    let text = dest.to_string_lossy().to_lowercase();
    let refused = |instead| Err(ExportError::Ending { path: dest.to_owned(), instead });
    if ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].contains(&&*text) {
        return Err(ExportError::StdoutPath { path: dest.to_owned() });
    }
    if [".tar.gz", ".tgz"].iter().any(|end| text.ends_with(end)) {
        return refused("end it in .tar, and compress the layers with --compress gzip");
    }
    if [".tar.zst", ".tzst", ".tar.zstd"].iter().any(|end| text.ends_with(end)) {
        return refused("end it in .tar, and compress the layers with --compress zstd");
    }
    if [".tar.xz", ".txz", ".tar.bz2", ".tbz2"].iter().any(|end| text.ends_with(end)) {
        return refused("end it in .tar; layers can be compressed with --compress gzip or zstd");
    }
    if text.ends_with(".tar") && dest.extension().is_none_or(|e| e != "tar") {
        return refused("write .tar in small letters");
    }
    match dest.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.try_exists().unwrap_or(true) => {
            Err(ExportError::NoParent { parent: parent.to_owned() })
        }
        _ => Ok(()),
    }
}

fn tag(store: &Store, name: &str, installed: &Installed, options: &Options) -> Result<String, ExportError> {
    if let Some(tag) = &options.tag {
        let sound = format!("x:{tag}").parse::<oci::Reference>().is_ok_and(|r| r.digest.is_none());
        return if sound { Ok(tag.clone()) } else { Err(ExportError::Tag { tag: tag.clone() }) };
    }
    let (_, names) = store.meaning(name)?;
    let reference = names.first().and_then(|n| n.parse::<oci::Reference>().ok());
    Ok(reference.and_then(|r| r.tag).unwrap_or_else(|| installed.manifest.short()))
}

fn contents(
    work: &Work<'_>,
    manifest: &Blob,
    tag: String,
    store: &Store,
    installed: &Installed,
) -> Result<Contents, ExportError> {
    let text = work.document("manifest", &manifest.digest)?;
    let parsed: serde_json::Value = rewrite::parse(&manifest.digest, &text)?;
    let mut blobs = Vec::new();
    let layers = parsed["layers"].as_array().into_iter().flatten();
    for part in layers.chain([&parsed["config"]]) {
        let blob: Blob = rewrite::blob_of(&manifest.digest, part)?;
        if !blobs.contains(&blob) {
            blobs.push(blob);
        }
    }
    blobs.push(*manifest);
    let mut annotations = json!({"org.opencontainers.image.ref.name": tag});
    // A tag alone would lose the name: containerd, and creel's own import, read it here.
    let names = store.names()?;
    if let Some(named) = names.iter().find(|n| n.digest == installed.manifest) {
        annotations["io.containerd.image.name"] = json!(full_name(named.name(), &tag));
    }
    let entry = json!({
        "mediaType": oci::MANIFEST, "digest": manifest.digest, "size": manifest.size, "annotations": annotations,
        "platform": {"os": "linux", "architecture": oci::Target::here().architecture},
    });
    Ok(Contents { blobs, entry, tag, image: installed.name.clone() })
}

/// The name with the tag that it has in the layout.
fn full_name(name: &str, tag: &str) -> String {
    match name.parse::<oci::Reference>() {
        Ok(reference) => format!("{}:{tag}", reference.name()),
        Err(_) => name.to_owned(),
    }
}

fn index_of(entries: Vec<serde_json::Value>) -> Vec<u8> {
    json!({"schemaVersion": 2, "mediaType": oci::INDEX, "manifests": entries}).to_string().into_bytes()
}

/// The file that says what the directory is.
const OCI_LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
