//! The tar of an image layout or of `docker save`, read in one pass.

use std::collections::HashMap;
use std::io::Read;

use super::ImportError;
use crate::image::oci::Digest;
use crate::image::store::{Blob, Expected, MAX_DOCUMENT, Work};
use crate::image::tar::{Entry, Kind, TarReader};
use crate::image::unpack;

/// The most files of an archive.
const MAX_FILES: usize = 20_000;
/// The longest name of one.
const MAX_NAME: usize = 512;
/// Links that lead to links (a layer of an old `docker save` that two images share).
const MAX_LINKS: usize = 8;

/// What was in an archive; its blobs are staged in the work.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// Files by their name in the archive.
    files: HashMap<String, Blob>,
    /// Symbolic and hard links: name → name.
    links: HashMap<String, String>,
    pub index: Option<Vec<u8>>,
    pub manifest: Option<Vec<u8>>,
}

impl Archive {
    /// An OCI layout, else something that `docker save` wrote. New versions write both in one.
    pub fn is_layout(&self) -> bool {
        self.index.is_some()
    }

    /// The file of a name, through the archive's own links.
    pub fn file(&self, name: &str) -> Option<Blob> {
        let mut name = name;
        for _ in 0..MAX_LINKS {
            if let Some(blob) = self.files.get(name) {
                return Some(*blob);
            }
            name = self.links.get(name)?;
        }
        None
    }
}

pub(super) fn read(work: &Work<'_>, stream: impl Read) -> Result<Archive, ImportError> {
    let stream = unpack::decompress(stream).map_err(ImportError::reading)?;
    let mut tar = TarReader::new(stream);
    let mut archive = Archive::default();
    while let Some(entry) = tar.next().map_err(ImportError::reading)? {
        let name = name_of(&entry)?;
        if archive.files.len() + archive.links.len() >= MAX_FILES {
            return Err(ImportError::Entry { entry: name, reason: "the archive has more than 20000 files" });
        }
        match entry.kind {
            Kind::Dir => {}
            Kind::File => read_file(work, &mut archive, name, &entry, &mut tar.content())?,
            Kind::Symlink | Kind::Hardlink => {
                if name.starts_with("blobs/") || is_document(&name) {
                    return Err(refused(name, "it is a link, and must be a file"));
                }
                let target = link_target(&name, &entry)?;
                archive.links.insert(name, target);
            }
            Kind::Other => return Err(refused(name, "it is neither a file, a directory nor a link")),
        }
    }
    Ok(archive)
}

fn is_document(name: &str) -> bool {
    matches!(name, "index.json" | "manifest.json" | "oci-layout")
}

fn refused(entry: String, reason: &'static str) -> ImportError {
    ImportError::Entry { entry, reason }
}

fn read_file(
    work: &Work<'_>,
    archive: &mut Archive,
    name: String,
    entry: &Entry,
    content: &mut dyn Read,
) -> Result<(), ImportError> {
    if is_document(&name) {
        if entry.size > MAX_DOCUMENT {
            return Err(ImportError::TooLarge { what: name });
        }
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).map_err(ImportError::reading)?;
        if bytes.len() as u64 != entry.size {
            return Err(ImportError::Document { what: name, reason: "it is cut off".to_owned() });
        }
        let slot = match name.as_str() {
            "index.json" => &mut archive.index,
            "manifest.json" => &mut archive.manifest,
            _ => return Ok(()),
        };
        // Which of two is read is a matter of taste: one program checks the first, the other runs the last.
        if slot.replace(bytes).is_some() {
            return Err(refused(name, "it comes twice"));
        }
        return Ok(());
    }
    let mut expected = Expected { size: Some(entry.size), what: format!("entry {name:?}"), digest: None };
    if let Some(rest) = name.strip_prefix("blobs/") {
        // Other algorithms, and whatever else lies there, nobody can ask for.
        let Some(Ok(digest)) = rest.strip_prefix("sha256/").map(|hex| format!("sha256:{hex}").parse()) else {
            return Ok(());
        };
        expected.digest = Some(digest);
    }
    let blob = work.put_blob(expected, content)?;
    if archive.files.insert(name.clone(), blob).is_some_and(|before| before != blob) {
        return Err(refused(name, "it comes twice"));
    }
    Ok(())
}

/// The name without `./`, if it is one that stays in the archive.
fn name_of(entry: &Entry) -> Result<String, ImportError> {
    let shown = || String::from_utf8_lossy(&entry.path).chars().take(200).collect::<String>();
    let text = std::str::from_utf8(&entry.path).map_err(|_| refused(shown(), "its name is not UTF-8"))?;
    if text.len() > MAX_NAME {
        return Err(refused(shown(), "its name is longer than 512 bytes"));
    }
    normal("", text).ok_or_else(|| refused(shown(), "its name leads out of the archive"))
}

/// Where a link leads: a symbolic one from its directory, a hard one from the top.
fn link_target(name: &str, entry: &Entry) -> Result<String, ImportError> {
    let outside = || refused(name.to_owned(), "it links to something outside of the archive");
    let target = std::str::from_utf8(&entry.link).map_err(|_| outside())?;
    let base = match entry.kind {
        Kind::Symlink => name.rsplit_once('/').map_or("", |(dir, _)| dir),
        _ => "",
    };
    normal(base, target).filter(|t| t.len() <= MAX_NAME).ok_or_else(outside)
}

/// `text`, seen from the directory `base`, without `.` and `..`; `None` when it is absolute, leads above the top, or has a NUL.
pub(super) fn normal(base: &str, text: &str) -> Option<String> {
    if text.starts_with('/') || text.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').filter(|p| !p.is_empty()).collect();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The digest in a name such as `<64 hex>.json`, which `docker save` gives to a configuration.
pub(super) fn digest_in(name: &str) -> Option<Digest> {
    let file = name.rsplit('/').next().unwrap_or(name);
    format!("sha256:{}", file.strip_suffix(".json").unwrap_or(file)).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        assert_eq!(normal("", "./blobs//sha256/x").unwrap(), "blobs/sha256/x");
        assert_eq!(normal("a/b", "../c/layer.tar").unwrap(), "a/c/layer.tar");
        for bad in ["/etc/passwd", "../x", "a/../../x", "a\0b"] {
            assert!(normal("", bad).is_none(), "{bad:?}");
        }
        assert!(normal("a", "../../x").is_none());
    }

    #[test]
    fn links_of_an_archive_that_go_round_end() {
        let mut archive = Archive::default();
        archive.links.insert("a".into(), "b".into());
        archive.links.insert("b".into(), "a".into());
        assert!(archive.file("a").is_none());
    }
}
