//! `creel image build`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::super::paths::{path, text, usage};
use super::super::refusal::Refusal;
use super::{size, store};
use crate::build::{self, BuildError, Options, recipe};
use crate::image::oci::{Reference, ReferenceError};
use crate::text::one_line;

pub(super) const AFTER: &str = "\
A recipe is a TOML file; those of creel are minimal, data and office, and rootfs/README.md says how they are written. Each step becomes a layer, and
one whose inputs did not change is not made again. Steps run in a sandbox, with the host's network where they fetch packages.

Examples:
  sudo creel image build data
  sudo creel image build ./mine.toml --name mine:v2

Exit code: 0; 125 creel or the host failed; 126 refused (usage, a recipe with a mistake, a step that failed); 130 cancelled.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name of a recipe, or the path of one (./mine.toml)
    recipe: OsString,

    /// The image's name [default: the recipe's]
    #[arg(long, value_name = "NAME[:TAG]")]
    name: Option<OsString>,

    /// The folder of recipes [default: ./rootfs, else share/creel/rootfs beside the program's bin/]
    #[arg(long, value_name = "DIR")]
    recipes: Option<OsString>,

    /// Carry every step out again
    #[arg(long)]
    no_cache: bool,

    /// Pass on what the steps print
    #[arg(long, short)]
    verbose: bool,

    /// Only the result
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
}

pub(super) fn main(args: &Args) -> Result<String, Refusal> {
    let recipe = text("RECIPE", &args.recipe)?;
    let name = args.name.as_deref().map(|n| text("--name", n)).transpose()?;
    let name = name.map(|n| n.parse().map_err(|e: ReferenceError| usage(format!("--name: {e}"))));
    let name: Option<Reference> = name.transpose()?;
    if name.as_ref().is_some_and(|n| n.digest.is_some()) {
        return Err(usage("--name: a digest can't be given, it is what the image is"));
    }
    let folder = match &args.recipes {
        Some(folder) => path("--recipes", folder)?.to_owned(),
        None => folder(),
    };
    let recipe = recipe::load(recipe, &folder)?;
    let store = store()?;
    let options = Options {
        folder: &folder,
        name: name.clone(),
        use_cache: !args.no_cache,
        verbose: args.verbose,
        tell: &|line| {
            if !args.quiet {
                eprintln!("creel: {line}");
            }
        },
    };
    let name = name.map_or_else(|| format!("{}:latest", recipe.name), |n| n.to_string());
    let installed = build::build(&store, recipe, &options).inspect_err(|e| {
        if let BuildError::Step { tail, .. } = e {
            // What a program printed: nothing of it may act on the terminal.
            tail.lines().for_each(|line| eprintln!("  | {}", one_line(line)));
        }
    })?;
    let facts = store.facts(&installed.manifest)?;
    Ok(format!("{name}  {}  {}\n", installed.manifest.short(), size(facts.size)))
}

/// Where recipes are when nobody says.
fn folder() -> PathBuf {
    let here = PathBuf::from("rootfs");
    if here.is_dir() {
        return here;
    }
    let exe = std::env::current_exe().ok();
    let beside = exe.and_then(|exe| Some(exe.parent()?.parent()?.join("share/creel/rootfs")));
    beside.filter(|dir| dir.is_dir()).unwrap_or(here)
}

impl From<BuildError> for Refusal {
    fn from(e: BuildError) -> Refusal {
        match e {
            BuildError::Store(e) => e.into(),
            e => Refusal::new(e.code(), e.to_string()),
        }
    }
}
