//! The tar of a root file system: it becomes the one layer of an image.

use std::collections::HashSet;
use std::io::{self, Read};

use serde_json::json;

use super::docker::{descriptor, media};
use super::source::Form;
use super::{Found, ImportError, Options, names};
use crate::image::oci::{self, Digest, HashingReader, Target};
use crate::image::store::{Blob, Expected, StoreError, Work};
use crate::image::tar::{Kind, TarReader};
use crate::image::unpack;

/// What a root file system has at its top, and the archive of an image has not.
const ROOT_DIRS: [&[u8]; 9] = [b"bin", b"etc", b"home", b"lib", b"opt", b"root", b"sbin", b"usr", b"var"];

fn expected(what: &str) -> Expected {
    Expected { what: what.to_owned(), ..Expected::default() }
}

/// Takes the archive in as it is.
pub(super) fn stage(work: &Work<'_>, mut stream: impl Read) -> Result<Blob, ImportError> {
    Ok(work.put_blob(expected("the archive"), &mut stream)?)
}

/// Looks through the whole archive: its digest, decompressed, and whether it is an image's after all, whose first entry only did not
/// tell.
pub(super) fn look_through(work: &Work<'_>, layer: &Blob) -> Result<(Form, Digest), ImportError> {
    let missing = StoreError::BlobMissing { what: "layer", digest: layer.digest };
    let file = work.blob(&layer.digest)?.ok_or(missing)?;
    let mut hashing = HashingReader::new(unpack::decompress(file).map_err(ImportError::reading)?);
    let mut top: HashSet<Vec<u8>> = HashSet::new();
    let mut tar = TarReader::new(&mut hashing);
    let whole = loop {
        let entry = match tar.next() {
            Ok(Some(entry)) => entry,
            // Nobody says what the digest of a plain archive has to be: one without an end may have lost the rest.
            Ok(None) => break tar.has_end_mark(),
            // What is wrong with the form of the archive the unpacker says, with the entry.
            Err(_) => break true,
        };
        let path = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        let first = path.split(|b| *b == b'/').next().unwrap_or_default();
        let telling = [&b"oci-layout"[..], b"index.json", b"manifest.json"].contains(&path)
            && entry.kind == Kind::File
            || ROOT_DIRS.contains(&first);
        if telling {
            top.insert(first.to_vec());
        }
    };
    io::copy(&mut hashing, &mut io::sink()).map_err(ImportError::reading)?;
    let has = |name: &[u8]| top.contains(name);
    let of_image = has(b"manifest.json") || has(b"oci-layout") && has(b"index.json");
    let form = if of_image && !ROOT_DIRS.iter().any(|d| has(d)) { Form::Archive } else { Form::Rootfs };
    if form == Form::Rootfs && !whole {
        let why = "the archive has no end mark (a block of zeros): it may be cut off, copy it once more";
        return Err(ImportError::reading(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
    }
    Ok((form, hashing.finish().0))
}

/// The image of a staged archive whose content has the digest `diff_id`.
pub(super) fn image(
    work: &Work<'_>,
    layer: &Blob,
    diff_id: &Digest,
    options: &Options,
    stem: Option<&str>,
) -> Result<Found, ImportError> {
    let names = names::choose(options, &[], None, stem)?;
    let media = media(work, layer)?;
    let here = Target::here();
    // No time in it: the same archive gives the same image.
    let config = json!({
        "architecture": here.architecture, "os": here.os, "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    let config = work.put_blob(expected("configuration"), &mut config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": oci::MANIFEST,
        "config": descriptor(oci::CONFIG, &config), "layers": [descriptor(media.oci(), layer)],
    });
    let manifest = work.put_blob(expected("manifest"), &mut manifest.to_string().as_bytes())?.digest;
    Ok(Found { manifest, names })
}
