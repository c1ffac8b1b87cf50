//! What an imported image is called.

use super::{ImportError, Options};
use crate::image::oci::{Digest, Reference};

/// The names of one image: `--name`, else those it brings along, else that of the file.
///
/// `own` are full names; `tag` is an annotation that may be a tag only.
pub(super) fn choose(
    options: &Options,
    own: &[String],
    tag: Option<&str>,
    stem: Option<&str>,
) -> Result<Vec<Reference>, ImportError> {
    if let Some(name) = &options.name {
        return Ok(vec![name.clone()]);
    }
    if !own.is_empty() {
        return Ok(own.iter().map(|name| name.parse()).collect::<Result<_, _>>()?);
    }
    let text = match tag {
        // `3.11` of `python.tar` is a tag, `python:3.11` is a name.
        Some(full) if full.contains([':', '/']) => full.to_owned(),
        Some(tag) => format!("{}:{tag}", stem.ok_or_else(|| no_name(format!(", only the tag {tag:?}")))?),
        None => stem.ok_or_else(|| no_name(String::new()))?.to_owned(),
    };
    let bad = |e: crate::image::oci::ReferenceError| no_name(format!(", and {e}"));
    Ok(vec![text.parse().map_err(bad)?])
}

fn no_name(because: String) -> ImportError {
    ImportError::NoName { because }
}

/// Whether `--select` means an image with these names and this digest.
pub(super) fn selected(select: &str, names: &[String], digest: &Digest) -> bool {
    let full = |text: &str| text.parse::<Reference>().map(|r| r.to_string()).ok();
    let hex = select.strip_prefix("sha256:").unwrap_or(select);
    let by_digest = hex.len() >= 6 && digest.hex().starts_with(hex);
    by_digest || names.iter().any(|n| n == select || full(n).is_some() && full(n) == full(select))
}

/// Of all images those that were asked for. With `--name` that must be one.
///
/// `of` says what an image is called and its digest.
pub(super) fn wanted<T>(
    images: Vec<T>,
    options: &Options,
    of: impl Fn(&T) -> (Vec<String>, Digest),
) -> Result<Vec<T>, ImportError> {
    if images.is_empty() {
        return Err(ImportError::NoImage);
    }
    let shown = |images: &[T]| {
        let name = |image: &T| {
            let (names, digest) = of(image);
            names.first().map_or(digest.short(), |n| n.escape_debug().take(100).collect())
        };
        images.iter().take(10).map(name).collect::<Vec<String>>()
    };
    let all = shown(&images);
    let mut images = images;
    if let Some(select) = &options.select {
        images.retain(|image| {
            let (names, digest) = of(image);
            selected(select, &names, &digest)
        });
        if images.is_empty() {
            return Err(ImportError::NotSelected { select: select.clone(), found: all });
        }
    }
    if options.name.is_some() && images.len() > 1 {
        return Err(ImportError::Several { found: shown(&images) });
    }
    Ok(images)
}
