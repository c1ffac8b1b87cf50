//! Why an image could not be built.

use std::io;
use std::path::PathBuf;

use crate::image::store::StoreError;

/// Why an image could not be built. What was finished before stays in the cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    #[error(
        "no recipe {name:?} in {dir:?}: there are {}; a recipe of your own is given by its path, ./my.toml",
        list(there)
    )]
    NoRecipe { name: String, dir: PathBuf, there: Vec<String> },
    #[error("recipe {path:?}: {reason}")]
    Recipe { path: PathBuf, reason: String },
    #[error("cannot read {path:?}, which recipe {recipe:?} names: {source}")]
    File { path: PathBuf, recipe: PathBuf, source: io::Error },
    #[error(
        "images are built by root, since the files of a layer have several owners: use sudo, or pull or import an image"
    )]
    NotRoot,
    #[error("the base is made by {program}, which is not installed: apt-get install {program}")]
    NoProgram { program: &'static str },
    #[error("step {step:?} failed: {how}; with --verbose all that it prints is shown")]
    Step {
        step: String,
        how: String,
        /// The last lines of what it printed.
        tail: String,
    },
    #[error("the build was cancelled; finished steps stay in the cache")]
    Cancelled,
    #[error("cannot run step {step:?} in a sandbox: {what}; creel doctor tells what this host lacks")]
    Sandbox { step: String, what: String },
    #[error("{message}")]
    Host { code: &'static str, message: String },
    #[error("cannot {what} {path:?}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("step {step:?} made {path:?}, which can't go into a layer: {reason}")]
    Layer { step: String, path: PathBuf, reason: &'static str },
}

impl BuildError {
    /// The code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            BuildError::NoRecipe { .. } => "image.recipe_not_found",
            BuildError::Recipe { .. } | BuildError::File { .. } => "image.recipe_invalid",
            BuildError::NotRoot => "image.build_needs_root",
            BuildError::NoProgram { .. } => "host.program_missing",
            BuildError::Step { .. } | BuildError::Layer { .. } => "image.step_failed",
            BuildError::Cancelled => "image.build_cancelled",
            BuildError::Sandbox { .. } => "sandbox.setup",
            BuildError::Host { code, .. } => code,
            BuildError::Io { .. } => "host.io",
            BuildError::Store(e) => e.code(),
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
