//! `creel image import`.

use std::ffi::OsString;
use std::fmt::Write as _;

use super::super::paths::{path, text, usage};
use super::super::refusal::Refusal;
use super::{progress, size, store};
use crate::image::import::{Options, import};

pub(super) const AFTER: &str = "\
SOURCE is an OCI image layout (a directory or a tar), a docker save archive, or the tar of a root file system; tars may
be compressed with gzip or zstd; - reads one from standard input. Of a multi-platform image that of this machine is
taken. The first image that is installed becomes the default of creel run.

Exit code: 0; 125 creel or the host failed; 126 refused (usage, bad input, a damaged or hostile image).

Examples:
  docker save python:3.11-slim | creel image import -
  creel image import rootfs.tar.zst --name minimal:v1";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory, a tar, or - for a tar on standard input
    source: OsString,
    /// What to call it [default: its own name, else the file's]
    #[arg(long, value_name = "NAME[:TAG]")]
    name: Option<OsString>,
    /// Of several images only this one: its name, or at least six digits of its digest
    #[arg(long, value_name = "REF")]
    select: Option<OsString>,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn main(args: Args) -> Result<String, Refusal> {
    let source = path("SOURCE", &args.source)?;
    let name = args.name.as_deref().map(|n| text("--name", n)).transpose()?;
    let name =
        name.map(|n| n.parse().map_err(|e: crate::image::oci::ReferenceError| usage(format!("--name: {e}"))));
    let name: Option<crate::image::oci::Reference> = name.transpose()?;
    if name.as_ref().is_some_and(|n| n.digest.is_some()) {
        return Err(usage("--name: a digest can't be given, it is what the image is"));
    }
    let select = args.select.as_deref().map(|s| text("--select", s)).transpose()?.map(str::to_owned);
    let store = store()?;
    let bar = progress::bar(args.quiet);
    let options = Options { name, select, observer: bar };
    let imported = import(&store, source, &options)?;
    let mut lines = String::new();
    for image in imported {
        for name in image.names {
            // Writing to a String can't fail.
            let _ = writeln!(lines, "{name}  {}  {}", image.manifest.short(), size(image.size));
        }
    }
    Ok(lines)
}
