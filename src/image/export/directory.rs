//! A layout as a directory.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::checked::Checked;
use super::{Contents, ExportError, OCI_LAYOUT, index_of};
use crate::image::store::Work;
use crate::image::store::unfinished::Unfinished;
use crate::sandbox::tree::remove_tree;

/// The largest `index.json` of a layout to which an image is added.
const MAX_INDEX: u64 = 4 << 20;

pub(super) fn write(work: &Work<'_>, contents: &Contents, dest: &Path) -> Result<(), ExportError> {
    let entries = match fs::read_dir(dest) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(ExportError::io("write to", dest)(e)),
    };
    if entries { add(work, contents, dest) } else { make(work, contents, dest) }
}

/// A new layout: made beside its place, then renamed.
fn make(work: &Work<'_>, contents: &Contents, dest: &Path) -> Result<(), ExportError> {
    let failed = ExportError::io("make", dest);
    // `.` has no name of its own.
    let full = std::path::absolute(dest).map_err(&failed)?;
    let full = if full.is_dir() { full.canonicalize().map_err(&failed)? } else { full };
    let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else {
        return Err(ExportError::NotEmpty { path: dest.to_owned() });
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let tmp = parent.join(&hidden);
    let _unfinished = Unfinished::new(&tmp);
    let result = fill(work, contents, &tmp, &[]).and_then(|()| fs::rename(&tmp, &full).map_err(&failed));
    if result.is_err()
        && let Ok(parent) = File::open(parent)
    {
        let _ = remove_tree(parent.as_fd(), &hidden);
    }
    result
}

/// Adds to a layout that is there: blobs first, the index last.
fn add(work: &Work<'_>, contents: &Contents, dest: &Path) -> Result<(), ExportError> {
    if !dest.join("oci-layout").is_file() || !dest.join("index.json").is_file() {
        return Err(ExportError::NotEmpty { path: dest.to_owned() });
    }
    let path = dest.join("index.json");
    let failed = ExportError::io("read", &path);
    let mut text = Vec::new();
    File::open(&path).and_then(|f| f.take(MAX_INDEX).read_to_end(&mut text)).map_err(failed)?;
    let bad = |reason: String| ExportError::Index { path: dest.to_owned(), reason };
    let index: Value = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    let others =
        index["manifests"].as_array().ok_or_else(|| bad("it has no list of manifests".to_owned()))?;
    let tag =
        |entry: &Value| entry["annotations"]["org.opencontainers.image.ref.name"].as_str().map(str::to_owned);
    let others: Vec<Value> =
        others.iter().filter(|e| tag(e).as_deref() != Some(&contents.tag)).cloned().collect();
    fill(work, contents, dest, &others)
}

fn fill(work: &Work<'_>, contents: &Contents, dir: &Path, others: &[Value]) -> Result<(), ExportError> {
    let blobs = dir.join("blobs/sha256");
    DirBuilder::new().recursive(true).mode(0o755).create(&blobs).map_err(ExportError::io("make", &blobs))?;
    // Until the index names them they are nobody's.
    let mut unfinished = Vec::new();
    for blob in &contents.blobs {
        let path = blobs.join(blob.digest.hex());
        if fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() == blob.size) {
            continue;
        }
        unfinished.push(Unfinished::new(&path));
        let mut checked = Checked::open(work, &contents.image, blob)?;
        replace(&path, &mut checked).map_err(|e| checked.blame(e))?;
    }
    if !dir.join("oci-layout").is_file() {
        replace(&dir.join("oci-layout"), &mut &*OCI_LAYOUT)?;
    }
    drop(unfinished);
    let entries = others.iter().chain([&contents.entry]).cloned().collect();
    replace(&dir.join("index.json"), &mut &*index_of(entries))?;
    let sync =
        |path: &Path| File::open(path).and_then(|d| d.sync_all()).map_err(ExportError::io("sync", path));
    sync(&blobs)?;
    sync(dir)
}

/// Writes a file beside its place and renames it: nobody ever sees half of it.
fn replace(path: &Path, content: &mut dyn Read) -> Result<(), ExportError> {
    let failed = ExportError::io("write", path);
    let tmp: PathBuf = path.with_extension(format!("{}.tmp", std::process::id()));
    let _unfinished = Unfinished::new(&tmp);
    let write = || -> io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o644).open(&tmp)?;
        io::copy(content, &mut file)?;
        file.flush()?;
        file.sync_all()?;
        fs::rename(&tmp, path)
    };
    let result = { write }();
    if result.is_err() {
        let _ = fs::remove_file(&tmp);
    }
    result.map_err(failed)
}
