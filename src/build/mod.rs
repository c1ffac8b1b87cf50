//! From a recipe to an image: Debian packages, Python and Node packages, files and scripts, each step a layer.
//!
//! Nothing of a step runs as root of the host. The base is made by mmdebstrap in a user namespace; every other step runs in a sandbox of creel's own
//! ([`Role::Builder`](crate::sandbox::role::Role)) whose root is an overlay over what was built so far; what the step wrote becomes the layer.

#![forbid(unsafe_code)]

mod base;
mod cache;
mod document;
mod error;
mod layer;
mod pack;
pub mod recipe;
mod run;
mod sandbox;
mod steps;

pub use error::BuildError;
pub use run::{Options, build};
