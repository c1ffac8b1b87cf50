//! Images from files: an OCI layout (a directory or a tar), a `docker save` archive, or the tar of a root file system.
//!
//! A tar is read once, as a stream, whatever the order of its entries is: blobs go into the work's directory as they come, hashed on
//! the way. What an archive calls its files is never a path of this host: a blob's file is named by its digest.

mod archive;
mod docker;
mod error;
mod layout;
mod names;
mod rootfs;
mod source;

use std::io::Read;
use std::path::Path;
use std::rc::Rc;

pub use error::ImportError;

use super::oci::{Digest, Reference};
use super::store::{Observer, Quiet, Store, Work};
use source::{Form, Input};

/// What to import, and as what.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the image; else its own, else that of the file.
    pub name: Option<Reference>,
    /// Of several images only this one: its name, as the archive has it, or the beginning of its digest.
    pub select: Option<String>,
    pub observer: Rc<dyn Observer>,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: None, select: None, observer: Rc::new(Quiet) }
    }
}

/// An image that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub names: Vec<String>,
    pub manifest: Digest,
    /// Bytes of the unpacked files.
    pub size: u64,
}

/// An image that was found, its blobs at hand.
struct Found {
    manifest: Digest,
    names: Vec<Reference>,
}

/// Imports the images of `source` (`-`: standard input, a tar). Each is installed wholly or not at all; with the first that can't be
/// nothing more is done.
///
/// # Errors
/// [`ImportError`]: what is wrong with the source or an image in it, or with the store.
pub fn import(store: &Store, source: &Path, options: &Options) -> Result<Vec<Imported>, ImportError> {
    let mut work = store.begin_staged()?;
    work.observe(options.observer.clone());
    options.observer.phase("reading");
    let stem = source::stem(source);
    let found = match source::open(source, &options.observer)? {
        Input::Layout(dir) => layout::of_directory(&work, dir, options, stem.as_deref())?,
        Input::Stream(stream) => match source::decide(stream)? {
            (Form::Archive, stream) => images_of(&work, stream, options, stem.as_deref())?,
            (Form::Rootfs, stream) => {
                let layer = rootfs::stage(&work, stream)?;
                options.observer.phase("looking through it");
                match (rootfs::look_through(&work, &layer)?, work.blob(&layer.digest)?) {
                    ((Form::Archive, _), Some(file)) => images_of(&work, file, options, stem.as_deref())?,
                    ((_, diff_id), _) => {
                        vec![rootfs::image(&work, &layer, &diff_id, options, stem.as_deref())?]
                    }
                }
            }
        },
    };
    found.iter().map(|image| commit(store, &work, image)).collect()
}

/// The images of an archive.
fn images_of(
    work: &Work<'_>,
    stream: impl Read,
    options: &Options,
    stem: Option<&str>,
) -> Result<Vec<Found>, ImportError> {
    let archive = archive::read(work, stream)?;
    match archive.is_layout() {
        true => layout::of_archive(work, &archive, options, stem),
        false => docker::images(work, &archive, options, stem),
    }
}

fn commit(store: &Store, work: &Work<'_>, image: &Found) -> Result<Imported, ImportError> {
    let installed = work.commit(&image.manifest, &image.names)?;
    let size = store.facts(&installed.manifest)?.size;
    let names = image.names.iter().map(ToString::to_string).collect();
    Ok(Imported { names, manifest: image.manifest, size })
}
