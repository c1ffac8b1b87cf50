//! An OCI image layout: from `index.json` to the manifests of this machine.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use oci_spec::image::{Descriptor, ImageIndex};
use serde::Deserialize;

use super::archive::Archive;
use super::source::Watched;
use super::{Found, ImportError, Options, docker, names};
use crate::image::files::{self, ReadError, STRICT};
use crate::image::oci::{Digest, Kind, MAX_INDEX_DEPTH, Target, choose_platform, kind, platforms};
use crate::image::store::{Expected, MAX_DOCUMENT, Work};
use crate::sandbox::tree::read_handle;

/// The most entries of an index.
const MAX_ENTRIES: usize = 100;
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The full name, where the other annotation is only a tag.
const FULL_NAME: &str = "io.containerd.image.name";

/// Where the blobs of a layout are.
enum Place {
    /// Below this directory.
    Directory(OwnedFd),
    /// In the work already.
    Staged,
}

struct Layout<'a, 'w> {
    work: &'a Work<'w>,
    options: &'a Options,
    place: Place,
}

/// One image of the top index: all entries that have the same name.
struct Group {
    full: Option<String>,
    tag: Option<String>,
    entries: Vec<Descriptor>,
}

/// The images of a layout in a directory.
pub(super) fn of_directory(
    work: &Work<'_>,
    dir: OwnedFd,
    options: &Options,
    stem: Option<&str>,
) -> Result<Vec<Found>, ImportError> {
    let refused = |reason| ImportError::Blob { what: "index.json".to_owned(), reason };
    let index = files::read_regular(&dir, "index.json", STRICT, MAX_DOCUMENT).map_err(|e| match e {
        ReadError::TooLarge => ImportError::TooLarge { what: "index.json".to_owned() },
        ReadError::NotRegular => refused("it is not a regular file"),
        ReadError::Os(rustix::io::Errno::LOOP) => refused("it is a symlink"),
        ReadError::Os(errno) => ImportError::Read { source: errno.into() },
    })?;
    let layout = Layout { work, options, place: Place::Directory(dir) };
    layout.images(&index, stem, |_| Vec::new())
}

/// The images of a layout in an archive. `docker save` puts the full names into a file of its own.
pub(super) fn of_archive(
    work: &Work<'_>,
    archive: &Archive,
    options: &Options,
    stem: Option<&str>,
) -> Result<Vec<Found>, ImportError> {
    let index = archive.index.as_deref().unwrap_or_default();
    let listed = match &archive.manifest {
        Some(manifest) => docker::listed(manifest)?,
        None => Vec::new(),
    };
    let layout = Layout { work, options, place: Place::Staged };
    layout.images(index, stem, |config| {
        let of_config =
            |image: &&docker::Listed| archive.file(&image.config).is_some_and(|b| b.digest == *config);
        listed.iter().find(of_config).map(|image| image.tags().to_vec()).unwrap_or_default()
    })
}

impl Layout<'_, '_> {
    fn images(
        &self,
        index: &[u8],
        stem: Option<&str>,
        docker_names: impl Fn(&Digest) -> Vec<String>,
    ) -> Result<Vec<Found>, ImportError> {
        let top = parse_index("index.json", index)?;
        if top.manifests().len() > MAX_ENTRIES {
            return Err(ImportError::Entries { max: MAX_ENTRIES });
        }
        let groups = names::wanted(grouped(top.manifests()), self.options, |group| {
            let names = group.full.iter().chain(&group.tag).cloned().collect();
            // Each group has an entry; a digest that is none is refused when it is looked at.
            (names, digest_of(&group.entries[0]).unwrap_or(Digest::of(b"")))
        })?;
        let mut found = Vec::new();
        for group in groups {
            let manifest = self.pick(&group.entries, 1, &mut Vec::new())?;
            let digest = digest_of(&manifest)?;
            let config = self.fetch_image(&digest)?;
            let mut own = docker_names(&config);
            if own.is_empty() {
                own.extend(group.full);
            }
            let names = names::choose(self.options, &own, group.tag.as_deref(), stem)?;
            found.push(Found { manifest: digest, names });
        }
        Ok(found)
    }

    /// The manifest for this machine among the entries of an index, fetched.
    fn pick(
        &self,
        entries: &[Descriptor],
        depth: usize,
        way: &mut Vec<Digest>,
    ) -> Result<Descriptor, ImportError> {
        if depth > MAX_INDEX_DEPTH {
            return Err(ImportError::Depth);
        }
        if entries.len() > MAX_ENTRIES {
            return Err(ImportError::Entries { max: MAX_ENTRIES });
        }
        let here = Target::here();
        let mut other = None;
        for entry in choose_platform(entries, &here)? {
            let digest = digest_of(entry)?;
            match kind(entry.media_type().as_ref()) {
                Kind::Manifest => {
                    self.fetch(entry, &format!("manifest {digest}"), true)?;
                    return Ok(entry.clone());
                }
                Kind::Index => {
                    // With digests that hold this can't be; but then the entries would be read for ever.
                    if way.contains(&digest) {
                        return Err(ImportError::Loop { digest });
                    }
                    self.fetch(entry, &format!("index {digest}"), true)?;
                    let bytes = self.work.document("index", &digest)?;
                    let inner = parse_index(&format!("index {digest}"), &bytes)?;
                    way.push(digest);
                    match self.pick(inner.manifests(), depth + 1, way) {
                        Err(e @ ImportError::Platform(_)) => other = Some(e),
                        result => return result,
                    }
                    way.pop();
                }
                Kind::Other => {
                    let media_type = entry.media_type().to_string();
                    other.get_or_insert(ImportError::MediaType { digest, media_type });
                }
            }
        }
        Err(other.unwrap_or_else(|| {
            let there = platforms(entries);
            crate::image::oci::NoPlatform { wanted: here.to_string(), there }.into()
        }))
    }

    /// Gets configuration and layers of a manifest; gives the digest of the configuration.
    fn fetch_image(&self, manifest: &Digest) -> Result<Digest, ImportError> {
        #[derive(Deserialize)]
        struct Parts {
            config: Descriptor,
            layers: Vec<Descriptor>,
        }
        let bytes = self.work.document("manifest", manifest)?;
        let parts: Parts = serde_json::from_slice(&bytes).map_err(|e| ImportError::Document {
            what: format!("manifest {manifest}"),
            reason: e.to_string().escape_debug().take(400).collect(),
        })?;
        if let Place::Directory(_) = self.place {
            let all = parts.layers.iter().chain([&parts.config]);
            self.options.observer.total(all.map(Descriptor::size).fold(0, u64::saturating_add));
        }
        let config = digest_of(&parts.config)?;
        self.fetch(&parts.config, &format!("configuration {config}"), true)?;
        for (at, layer) in parts.layers.iter().enumerate() {
            let what = format!("layer {} of {} ({})", at + 1, parts.layers.len(), digest_of(layer)?);
            // One that is refused anyway is not copied first; the commit says why.
            if crate::image::oci::layer_media(layer.media_type().as_ref()).is_ok() {
                self.fetch(layer, &what, false)?;
            }
        }
        Ok(config)
    }

    /// Makes sure that the work has a blob.
    fn fetch(&self, entry: &Descriptor, what: &str, document: bool) -> Result<(), ImportError> {
        if document && entry.size() > MAX_DOCUMENT {
            return Err(ImportError::TooLarge { what: what.to_owned() });
        }
        let digest = digest_of(entry)?;
        let expected = Expected { digest: Some(digest), size: Some(entry.size()), what: what.to_owned() };
        // One of another size is damaged, and replaced.
        let there = self.work.blob(&digest)?.and_then(|f| f.metadata().ok());
        let mut file = match &self.place {
            Place::Directory(dir) if there.is_none_or(|m| m.len() != entry.size()) => {
                self.open(dir, &digest, what)?
            }
            _ => match self.work.blob(&digest)? {
                Some(file) => Watched { file, observer: std::rc::Rc::new(crate::image::store::Quiet) },
                None => {
                    let reason = "it is not there: the image layout is not complete";
                    return Err(ImportError::Blob { what: what.to_owned(), reason });
                }
            },
        };
        self.work.put_blob(expected, &mut (&mut file as &mut dyn Read))?;
        Ok(())
    }

    /// Opens a blob of a layout directory: a regular file, through no link (a link could lead to a file that only we can read).
    fn open(&self, dir: &OwnedFd, digest: &Digest, what: &str) -> Result<Watched, ImportError> {
        let refused = |reason| ImportError::Blob { what: what.to_owned(), reason };
        let path = format!("blobs/sha256/{}", digest.hex());
        let flags = rustix::fs::OFlags::empty();
        let handle = files::open_path(dir, &path, flags, STRICT).map_err(|errno| match errno {
            rustix::io::Errno::LOOP => refused("it is a symlink, and must be a file"),
            rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => {
                refused("it is not there: the image layout is not complete")
            }
            errno => ImportError::Read { source: errno.into() },
        })?;
        let os = |e: rustix::io::Errno| ImportError::Read { source: e.into() };
        // Looked at before it is opened: a FIFO would make us wait, a device may do something.
        if files::file_type(&handle).map_err(os)? != rustix::fs::FileType::RegularFile {
            return Err(refused("it is not a regular file"));
        }
        let file = read_handle(handle.as_fd()).map_err(os)?;
        Ok(Watched { file: file.into(), observer: self.options.observer.clone() })
    }
}

/// CVE-2021-41190: a document that is an index to us and an image to another program is refused.
fn parse_index(what: &str, bytes: &[u8]) -> Result<ImageIndex, ImportError> {
    #[derive(Deserialize)]
    struct Shape {
        layers: Option<serde::de::IgnoredAny>,
        config: Option<serde::de::IgnoredAny>,
    }
    let invalid = |reason: String| ImportError::Document {
        what: what.to_owned(),
        reason: reason.escape_debug().take(400).collect(),
    };
    let shape: Shape = serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
    if shape.layers.is_some() || shape.config.is_some() {
        return Err(invalid("it is an index and a manifest at once".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))
}

fn digest_of(entry: &Descriptor) -> Result<Digest, ImportError> {
    entry.digest().to_string().parse().map_err(|e: crate::image::oci::DigestError| ImportError::Document {
        what: "the image layout".to_owned(),
        reason: e.to_string(),
    })
}

/// Entries of the same name are one image for several platforms; so are those without a name, if they name platforms.
fn grouped(entries: &[Descriptor]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for entry in entries {
        let annotation = |key: &str| entry.annotations().as_ref().and_then(|a| a.get(key)).cloned();
        let (full, tag) = (annotation(FULL_NAME), annotation(REF_NAME));
        let nameless = full.is_none() && tag.is_none() && entry.platform().is_none();
        match groups.iter_mut().find(|g| !nameless && g.full == full && g.tag == tag) {
            Some(group) => group.entries.push(entry.clone()),
            None => groups.push(Group { full, tag, entries: vec![entry.clone()] }),
        }
    }
    groups
}
