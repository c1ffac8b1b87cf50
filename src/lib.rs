//! creel runs code that a language model wrote in a fresh sandbox on a plain Linux host.
//!
//! Modules depend downwards only: `cli` → `doctor`, `bench`, `build` → `executor` → `image` → `sandbox` → `sys`. See ARCHITECTURE.md.

pub mod bench;
pub mod build;
pub mod cli;
pub mod doctor;
pub mod executor;
pub mod image;
pub mod limits;
pub mod profile;
pub mod regular;
pub mod sandbox;
pub mod state_dir;
pub mod sys;
pub mod text;
pub mod units;
