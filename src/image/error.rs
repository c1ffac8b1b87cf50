//! Why an image can't be used.

use std::path::PathBuf;

use rustix::io::Errno;

use super::store::StoreError;
use crate::text::quoted;

/// How many installed images a message names.
const NAMED: usize = 10;

/// Why an image can't be used. Messages quote strings of the image with their control characters escaped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    #[error(
        "no image {} (there are: host{}, or a bundle directory such as ./bundle{})",
        quoted(.name), listed(.installed), if .installed.len() > NAMED { "; creel image ls names all" } else { "" }
    )]
    NoSuchImage { name: String, installed: Vec<String> },

    #[error(transparent)]
    Store(#[from] StoreError),

    #[error(
        "no such bundle directory {path:?}: --image takes `host` or a directory with config.json and rootfs/"
    )]
    NoSuchBundle { path: PathBuf },

    #[error("{path:?} is not a directory: --image takes `host` or a directory with config.json and rootfs/")]
    NotADirectory { path: PathBuf },

    #[error("bundle {bundle:?} has no config.json: `runc spec` in that directory writes one")]
    ConfigMissing { bundle: PathBuf },

    #[error(
        "config.json of bundle {bundle:?} is larger than {max} bytes: remove what a runtime configuration does not need"
    )]
    ConfigTooLarge { bundle: PathBuf, max: u64 },

    #[error("config.json of bundle {bundle:?} is not a valid OCI runtime configuration: {reason}")]
    ConfigInvalid { bundle: PathBuf, reason: String },

    #[error("config.json: ociVersion {found:?} is not known: write a version that starts with \"1.\"")]
    Version { found: String },

    #[error("config.json: root.path {path:?} is refused: {reason}")]
    Root { path: String, reason: &'static str },

    #[error(
        "bundle {bundle:?} has no root directory {root:?}: unpack the image there, or name the right one in root.path"
    )]
    RootfsMissing { bundle: PathBuf, root: String },

    #[error("config.json: process.args is refused: {reason}")]
    Args { reason: &'static str },

    #[error("config.json: process.env entry {entry:?} is refused: {reason}")]
    Env { entry: String, reason: &'static str },

    #[error("config.json: process.cwd {cwd:?} is refused: {reason}")]
    Cwd { cwd: String, reason: &'static str },

    #[error("config.json: the mount at {target:?} is refused: {reason}")]
    Mount { target: String, reason: String },

    #[error("config.json: hooks ({names}) are refused, they would run on the host: remove them")]
    Hooks { names: String },

    #[error("config.json: {key} {value} is refused: {reason}")]
    Limit { key: &'static str, value: i64, reason: &'static str },

    #[error("{path} of the image is refused: {reason}")]
    Accounts { path: &'static str, reason: String },

    #[error(
        "skill id {id:?} is refused: it is 1 to 64 of the characters A-Z a-z 0-9 . _ - and starts with a letter or digit"
    )]
    SkillId { id: String },

    #[error("the host's /usr can't be opened ({source}): use a bundle directory as the image")]
    HostUsr { source: Errno },

    #[error("can't look at {what}: {source}")]
    Os { what: String, source: Errno },
}

impl ImageError {
    /// The code of the run report, `image.reason`.
    pub fn code(&self) -> &'static str {
        match self {
            ImageError::NoSuchImage { .. } | ImageError::NoSuchBundle { .. } => "image.not_found",
            ImageError::Store(e) => e.code(),
            ImageError::NotADirectory { .. } => "image.not_a_directory",
            ImageError::ConfigMissing { .. } => "image.config_missing",
            ImageError::ConfigTooLarge { .. } => "image.config_too_large",
            ImageError::ConfigInvalid { .. } => "image.config_invalid",
            ImageError::Version { .. } => "image.version_unsupported",
            ImageError::Root { .. } => "image.root_refused",
            ImageError::RootfsMissing { .. } => "image.rootfs_missing",
            ImageError::Args { .. } => "image.args_refused",
            ImageError::Env { .. } => "image.env_refused",
            ImageError::Cwd { .. } => "image.cwd_refused",
            ImageError::Mount { .. } => "image.mount_refused",
            ImageError::Hooks { .. } => "image.hooks_refused",
            ImageError::Limit { .. } => "image.limit_refused",
            ImageError::Accounts { .. } => "image.accounts_refused",
            ImageError::SkillId { .. } => "image.skill_id",
            ImageError::HostUsr { .. } => "image.host_usr",
            ImageError::Os { .. } => "image.unreadable",
        }
    }

    /// True when the host is at fault (exit code 125), false when the caller or the image is (126).
    ///
    /// A file of a bundle that the caller may not read counts as the caller's.
    pub fn is_host_fault(&self) -> bool {
        match self {
            ImageError::HostUsr { .. } => true,
            ImageError::Store(e) => e.is_host_fault(),
            ImageError::Os { source, .. } => !matches!(*source, Errno::ACCESS | Errno::PERM),
            _ => false,
        }
    }
}

/// `, a:latest, b:v1 and 3 more`
fn listed(installed: &[String]) -> String {
    let mut text: String = installed.iter().take(NAMED).map(|n| format!(", {n}")).collect();
    if installed.len() > NAMED {
        text += &format!(" and {} more", installed.len() - NAMED);
    }
    text
}
