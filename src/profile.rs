//! Profiles: named sets of limits and policies that people choose from with `--profile`.
//!
//! A profile is a TOML file. Three are compiled in (`profiles/*.toml`); an administrator puts others, or others of the
//! same name, into `/etc/creel/profiles`. A key that a file leaves out is that of the compiled-in `default`.

#![forbid(unsafe_code)]

mod file;
pub mod fit;

pub(crate) use file::{ENV_NAME, is_env_name};

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::executor::request::SeccompChoice;
use crate::limits::Limits;
use crate::regular::{self, NotUsable};
use crate::text::quoted;

/// The profile of a run that names none.
pub const DEFAULT: &str = "default";
/// Where an administrator's profiles are.
pub const SYSTEM_DIR: &str = "/etc/creel/profiles";
/// A profile or a seccomp file larger than this is a mistake.
const FILE_MAX: u64 = 1 << 20;

/// Name and text of the profiles that are compiled in.
const BUILT_IN: [(&str, &str); 3] = [
    (DEFAULT, include_str!("../profiles/default.toml")),
    ("strict", include_str!("../profiles/strict.toml")),
    ("office", include_str!("../profiles/office.toml")),
];
const SECCOMP: [(&str, &str); 2] = [
    ("default", include_str!("../profiles/seccomp/default.json")),
    ("strict", include_str!("../profiles/seccomp/strict.json")),
];

/// A profile, complete and checked.
#[derive(Debug, Clone)]
pub struct Profile {
    /// `default`, or the path as the caller gave it.
    pub name: String,
    /// `limits.timeout` is the default time-out. The tmpfs sizes are as written: see [`fit`].
    pub limits: Limits,
    /// The longest time-out that a caller may ask for.
    pub timeout_max: Duration,
    pub seccomp: SeccompChoice,
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("no profile {}; there are: {}", quoted(name), known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("profile {} {source}", quoted(path))]
    File { path: PathBuf, source: NotUsable },
    #[error("profile {} is larger than 1 MiB", quoted(path))]
    TooLarge { path: PathBuf },
    /// `office.toml:12: unknown key 'memroy'; known: …`
    #[error("{place}: {message}")]
    Text { place: String, message: String },
    #[error("{place}: seccomp file {} {source}", quoted(path))]
    Seccomp { place: String, path: PathBuf, source: NotUsable },
}

/// The profile called `name`: a file if it contains `/` or ends in `.toml`, else one of [`SYSTEM_DIR`], else a compiled-in one.
///
/// # Errors
/// [`ProfileError`]: no such profile, a file that can't be read, or text that isn't a profile (with its line).
pub fn load(name: &str) -> Result<Profile, ProfileError> {
    load_from(name, Path::new(SYSTEM_DIR))
}

fn load_from(name: &str, system: &Path) -> Result<Profile, ProfileError> {
    if name.contains('/') || name.ends_with(".toml") {
        let text = read(Path::new(name))?;
        return overlay(name, &text, name, Path::new(name).parent());
    }
    if !name.is_empty() {
        let path = system.join(format!("{name}.toml"));
        match read(&path) {
            Ok(text) => return overlay(name, &text, &path.to_string_lossy(), Some(system)),
            Err(ProfileError::File { source: NotUsable::Missing, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => overlay(name, text, &format!("profiles/{name}.toml"), None),
        None => Err(ProfileError::Unknown { name: name.to_owned(), known: names(system) }),
    }
}

/// Parses `text` and fills what it leaves out from the compiled-in default. `place` is what errors call the file,
/// `dir` is what paths in it are relative to (none for the compiled-in ones).
fn overlay(name: &str, text: &str, place: &str, dir: Option<&Path>) -> Result<Profile, ProfileError> {
    let base = file::parse(BUILT_IN[0].1, "profiles/default.toml")?;
    let file = if dir.is_none() && name == DEFAULT { base.clone() } else { file::parse(text, place)? };
    let seccomp = match (&file.seccomp, &base.seccomp) {
        (Some(choice), _) | (None, Some(choice)) => seccomp(choice, place, dir)?,
        (None, None) => return Err(file::incomplete("seccomp")),
    };
    let (limits, timeout_max) = file.limits.over(&base.limits, place)?;
    let env = file.env.into_iter().map(|(k, v)| (k.0, v.0)).collect();
    Ok(Profile { name: name.to_owned(), limits, timeout_max, seccomp, env })
}

/// The filter called `choice`: a compiled-in one, or a file relative to the profile's directory.
fn seccomp(choice: &str, place: &str, dir: Option<&Path>) -> Result<SeccompChoice, ProfileError> {
    if let Some((name, json)) = SECCOMP.iter().find(|(name, _)| *name == choice) {
        return Ok(SeccompChoice { name: (*name).to_owned(), json: (*json).to_owned() });
    }
    let Some(dir) = dir.filter(|_| choice.contains('/') || choice.ends_with(".json")) else {
        let message = format!(
            "seccomp is {}; accepted: default, strict, or the path of an OCI seccomp file (….json)",
            quoted(choice)
        );
        return Err(ProfileError::Text { place: place.to_owned(), message });
    };
    let path = dir.join(choice);
    match read(&path) {
        Ok(json) => Ok(SeccompChoice { name: path.to_string_lossy().into_owned(), json }),
        Err(ProfileError::File { path, source }) => {
            Err(ProfileError::Seccomp { place: place.to_owned(), path, source })
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<String, ProfileError> {
    let fail = |source| ProfileError::File { path: path.to_owned(), source };
    let (file, _) = regular::open(path).map_err(fail)?;
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|e| fail(NotUsable::Other(e)))?;
    if text.len() as u64 > FILE_MAX {
        return Err(ProfileError::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

/// Every name that `--profile` takes on this host.
fn names(system: &Path) -> Vec<String> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    for entry in std::fs::read_dir(system).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let name = file_name.to_str().and_then(|n| n.strip_suffix(".toml"));
        if let Some(name) = name.filter(|n| !names.iter().any(|known| known == n)) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests;
