//! What the root of a sandbox is made of: `host` (this host's `/usr`), an installed image, or a bundle directory with an OCI `config.json`.
//!
//! For a run the module only plans: it opens descriptors, reads small files and checks what it read; nothing is mounted, written or
//! run here. Installing images is the business of [`store`] and its neighbours. Everything in a bundle is hostile until checked: each path of the image is resolved beneath the image's
//! root by the kernel (`openat2`), never by joining strings.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::sandbox::root::RootPlan;
use crate::state_dir;
use store::{Installed, Store, StoreError};

pub mod accounts;
pub mod bundle;
mod config;
mod error;
pub mod export;
mod files;
pub mod host;
pub mod import;
mod layer;
mod mounts;
pub mod oci;
mod process;
pub mod pull;
mod python;
pub mod registry;
pub mod runtime_config;
mod skeleton;
pub mod store;
mod tar;
pub mod unpack;

pub use error::ImageError;
pub use process::NOFILE_FLOOR;
pub use python::LINK_DIR as PYTHON_LINK_DIR;
pub use skeleton::{HOSTNAME, OWN_MOUNTS};

/// The PATH of an image that names none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The working directory of an image that names none.
pub const DEFAULT_CWD: &str = "/work";

/// An image, ready for one run.
#[derive(Debug)]
pub struct Image {
    /// `host`, the name of an installed image, or the path of a bundle.
    pub name: String,
    /// The parts of the read-only root.
    pub root: RootPlan,
    /// The PATH of the payload: the image's own or [`DEFAULT_PATH`], with [`PYTHON_LINK_DIR`] added where it is needed.
    pub path_env: String,
    /// The image's default command; empty when it has none.
    pub args: Vec<String>,
    /// The image's environment in its order, each name once, without PATH. No name or value has a NUL.
    pub env: Vec<(String, String)>,
    /// The image's working directory: absolute, no `..`, no symlink of the image on the way.
    pub cwd: String,
    /// Mounts of the image, in its order. None is on, above or below a mount point of creel's own.
    pub mounts: Vec<BundleMount>,
    /// Limits of the image: they can lower those of the profile, never raise them.
    pub limits: ImageLimits,
    /// What the report must say: parts of the image that were not taken.
    pub notes: Vec<String>,
    /// Of an installed image: it can't be removed as long as a copy of this descriptor is open anywhere.
    pub held: Option<OwnedFd>,
}

/// A mount that a bundle asked for and that is honoured. The mount point is among the entries of the root plan.
#[derive(Debug)]
pub enum BundleMount {
    /// A fresh tmpfs, mode 1777, nosuid, nodev.
    Tmpfs {
        /// Absolute path inside the root.
        target: String,
        /// Bytes, at least 1; who carries it out lowers it to the profile's `tmp`.
        size: u64,
    },
    /// A file or directory of the bundle, always read-only, nosuid, nodev, and not recursive.
    Bind {
        /// Opened with `O_PATH`, beneath the bundle directory; a directory or a regular file.
        source: OwnedFd,
        /// Absolute path inside the root.
        target: String,
    },
}

impl BundleMount {
    /// Where it is mounted: an absolute path inside the root.
    pub fn target(&self) -> &str {
        match self {
            BundleMount::Tmpfs { target, .. } | BundleMount::Bind { target, .. } => target,
        }
    }
}

/// Limits that an image names; `None` where it names none or says "unlimited".
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes, from `linux.resources.memory.limit`.
    pub memory: Option<u64>,
    /// Tasks, from `linux.resources.pids.limit`.
    pub pids: Option<u32>,
    /// Thousandths of a CPU, at least 1, from `linux.resources.cpu.quota` and `period`.
    pub cpu_millis: Option<u32>,
    /// Open files of a process, at least [`NOFILE_FLOOR`], from the `RLIMIT_NOFILE` entry of `process.rlimits`.
    pub nofile: Option<u64>,
}

/// Opens the image that `--image` names: `host` is this host's `/usr`; what begins with `/`, `./` or `../` is a bundle directory; all
/// else is the name (or the beginning of the digest) of an installed image, and if there is none and the text has a `/`, a bundle
/// directory. `skill_ids` become the mount points `/skill/<id>`.
///
/// # Errors
/// [`ImageError`], see its `code`; [`ImageError::is_host_fault`] tells the host's faults from the caller's.
pub fn open(image: &str, skill_ids: &[&str]) -> Result<Image, ImageError> {
    match find(image)? {
        Place::Host => host::plan(skill_ids),
        Place::Directory => bundle::load(Path::new(image), skill_ids),
        Place::Installed(installed) => bundle::load_installed(installed, skill_ids),
    }
}

/// Where an image is.
#[derive(Debug)]
pub enum Place {
    Host,
    /// A bundle directory, the text is its path. It need not exist.
    Directory,
    Installed(Installed),
}

/// Finds the image that `--image` names, see [`open`].
///
/// # Errors
/// [`ImageError::NoSuchImage`], or what is wrong with the store.
pub fn find(image: &str) -> Result<Place, ImageError> {
    if image == "host" {
        return Ok(Place::Host);
    }
    if ["/", "./", "../"].iter().any(|start| image.starts_with(start)) {
        return Ok(Place::Directory);
    }
    let store = match state_dir::location() {
        Some(state) => Store::existing(&state)?,
        None => None,
    };
    if let Some(installed) = store.as_ref().map(|s| s.lookup(image)).transpose()?.flatten() {
        return Ok(Place::Installed(installed));
    }
    if image.contains('/') && Path::new(image).is_dir() {
        return Ok(Place::Directory);
    }
    let installed = match store.map(|s| s.no_such(image)) {
        Some(StoreError::NotFound { installed, .. }) => installed,
        _ => Vec::new(),
    };
    Err(ImageError::NoSuchImage { name: image.to_owned(), installed })
}

/// The image that `creel run` takes without `--image`: the one that `<state>/images/default` names, else `host`. One open(2)
/// where no image is installed.
///
/// # Errors
/// A state directory that can't be read.
pub fn default_name() -> Result<String, ImageError> {
    let Some(path) = state_dir::location().map(|state| state.join("images/default")) else {
        return Ok("host".to_owned());
    };
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match std::fs::read_to_string(&path) {
        Ok(name) if !name.trim().is_empty() => Ok(name.trim().to_owned()),
        Ok(_) => Ok("host".to_owned()),
        // A state directory that can't be reached is refused, with what to do, where the run needs it.
        Err(e) if matches!(e.kind(), NotFound | NotADirectory | PermissionDenied) => Ok("host".to_owned()),
        Err(e) => Err(StoreError::io("read", &path, e).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_no_image_yet() {
        let err = open("python-3.12", &[]).unwrap_err();
        assert_eq!(err.code(), "image.not_found");
        assert!(err.to_string().contains("'python-3.12'"), "{err}");
        assert!(err.to_string().contains("./"), "{err}");
        for name in ["", ".", "..", "HOST", "host\n"] {
            assert_eq!(open(name, &[]).unwrap_err().code(), "image.not_found", "{name:?}");
        }
    }

    #[test]
    fn a_path_must_exist_and_be_a_directory() {
        assert_eq!(open("/nonexistent/x", &[]).unwrap_err().code(), "image.not_found");
        let err = open("/etc/passwd", &[]).unwrap_err();
        assert_eq!(err.code(), "image.not_a_directory");
        assert!(!err.is_host_fault());
    }
}
