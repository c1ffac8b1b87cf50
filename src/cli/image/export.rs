//! `creel image export`.

use std::ffi::OsString;

use super::super::paths::{path, text, usage};
use super::super::refusal::Refusal;
use super::{progress, store_with};
use crate::image::export::{Compress, Options, export};
use crate::text::quoted;

pub(super) const AFTER: &str = "\
DEST is written as an OCI image layout: a tar if it ends in .tar, a tar on standard output if it is -, else a
directory, which is made, or has to be empty, or a layout to which the image is added (one of the same tag there is
replaced). Layers go out as they came in unless --compress says otherwise; umoci 0.4.7 of Debian 12 does not know zstd.

Exit code: 0; 125 creel or the host failed; 126 refused (usage, no such image).

Examples:
  creel image export minimal:v1 minimal.tar
  creel image export data ./layout --tag v1 && skopeo inspect oci:layout:v1";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name, or at least six digits of a digest
    name: OsString,
    /// A directory, a file that ends in .tar, or - for standard output
    dest: OsString,
    /// The tag in the layout [default: that of the name]
    #[arg(long)]
    tag: Option<OsString>,
    /// How the layers are compressed: gzip, zstd, none or as-is [default: as-is]
    #[arg(long, value_name = "HOW")]
    compress: Option<OsString>,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn main(args: Args) -> Result<String, Refusal> {
    let name = text("NAME", &args.name)?;
    let dest = path("DEST", &args.dest)?;
    let tag = args.tag.as_deref().map(|t| text("--tag", t)).transpose()?.map(str::to_owned);
    let compress = match args.compress.as_deref().map(|c| c.to_str().unwrap_or_default()) {
        None | Some("as-is") => Compress::AsIs,
        Some("none") => Compress::None,
        Some("gzip") => Compress::Gzip,
        Some("zstd") => Compress::Zstd,
        Some(_) => {
            let value = quoted(args.compress.unwrap_or_default());
            return Err(usage(format!("--compress: {value} is none; accepted: gzip, zstd, none, as-is")));
        }
    };
    let store = store_with(name)?;
    let options = Options { tag, compress, observer: progress::bar(args.quiet) };
    let exported = export(&store, name, dest, &options)?;
    if dest.as_os_str() == "-" {
        return Ok(String::new());
    }
    Ok(format!("{}  {}  {}\n", exported.tag, exported.manifest.short(), dest.display()))
}
