//! A bundle directory: `rootfs/` and an OCI `config.json`.
//!
//! Of the configuration, `process.args`, `env` and `cwd`, the mounts and the limits are honoured where they don't weaken the
//! policy. The user is always 10001; capabilities, namespaces, seccomp, masked paths, sysctls and devices are creel's own, and
//! a note in the report names what was not taken. Hooks are refused: they are programs for the host.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::config::{Config, Process};
use super::files::{self, Found, ReadError, Rootfs};
use super::layer::{Layer, at_or_below, normal};
use super::mounts::{self, Bundle};
use super::store::{Installed, StoreError};
use super::{BundleMount, DEFAULT_PATH, Image, ImageError, OWN_MOUNTS, accounts, process, python, skeleton};
use crate::sandbox::root::RootPlan;

/// The largest `config.json` that is read.
const MAX_CONFIG: u64 = 1 << 20;
/// The largest passwd or group file that is read.
const MAX_ACCOUNTS: u64 = 1 << 20;
/// How many directories of PATH are searched for python.
const MAX_PATH_DIRS: usize = 32;

/// Loads the bundle in `dir`.
///
/// # Errors
/// [`ImageError`]: what is wrong with the bundle, and how to mend it.
pub fn load(dir: &Path, skill_ids: &[&str]) -> Result<Image, ImageError> {
    let fd = open_dir(dir)?;
    let config = read_config(&fd, dir)?;
    let notes = config.notes();
    load_parts(dir, &fd, &config, notes, skill_ids)
}

/// Loads the bundle that the store made of an installed image.
///
/// What the store itself put into the configuration for other runtimes (masked paths, capabilities …) is nothing to tell the user of;
/// what comes from the image is. Where the image names no working directory it is creel's own.
///
/// # Errors
/// As [`load`].
pub fn load_installed(installed: Installed, skill_ids: &[&str]) -> Result<Image, ImageError> {
    let dir = &installed.bundle;
    let fd = open_dir(dir)?;
    let mut config = read_config(&fd, dir).map_err(|e| match e {
        // Nobody writes one into the store by hand.
        ImageError::ConfigMissing { bundle } => {
            StoreError::Damaged { path: bundle, reason: "it has no config.json".to_owned() }.into()
        }
        other => other,
    })?;
    let notes = config.user_note().into_iter().collect();
    config.drop_defaults();
    let image = load_parts(dir, &fd, &config, notes, skill_ids)?;
    Ok(Image { name: installed.name, held: Some(installed.lock), ..image })
}

fn load_parts(
    dir: &Path,
    fd: &OwnedFd,
    config: &Config,
    mut notes: Vec<String>,
    skill_ids: &[&str],
) -> Result<Image, ImageError> {
    let hooks = config.hooks();
    if !hooks.is_empty() {
        // CVE-2025-23266: a hook is a program that runs on the host, with an environment that the image has a say in.
        let names = hooks.iter().take(8).map(|n| n.escape_debug().take(40).collect::<String>());
        return Err(ImageError::Hooks { names: names.collect::<Vec<_>>().join(", ") });
    }
    let rootfs = open_rootfs(fd, dir, config)?;

    let mut layer = Layer::default();
    let passwd = accounts::passwd(&read_accounts(&rootfs, "/etc/passwd")?);
    let group = accounts::group(&read_accounts(&rootfs, "/etc/group")?);
    skeleton::add(&mut layer, skill_ids, passwd, group)?;

    let bundle = Bundle { dir, fd };
    let listed = config.mounts.as_deref().unwrap_or_default();
    let (mounts, made_read_only) = mounts::honour(listed, &bundle, &rootfs, &mut layer)?;
    if !made_read_only.is_empty() {
        let targets: Vec<_> = made_read_only.iter().map(|t| format!("{t:?}")).collect();
        notes.push(format!("config.json: bind mounts are read-only: {}", targets.join(", ")));
    }
    let no_process = Process::default();
    let process = config.process.as_ref().unwrap_or(&no_process);
    let cwd = process::cwd(process, &rootfs, &mounts, &mut layer)?;
    let (path, env) = process::env(process)?;
    let mut path_env = path.unwrap_or_else(|| DEFAULT_PATH.to_owned());
    add_var_links(&mut layer, &rootfs, &mounts)?;
    match add_python(&mut layer, &rootfs, &mounts, &path_env)? {
        Python::InPath => {}
        Python::Linked => path_env = python::extended(&path_env),
        Python::NoPlace => {
            notes.push("the image has no `python`, and no place for a link to its python3".to_owned())
        }
    }
    Ok(Image {
        name: dir.to_string_lossy().into_owned(),
        root: RootPlan { entries: layer.into_entries(), layers: vec![rootfs.0], ..RootPlan::default() },
        path_env,
        args: process::args(process)?,
        env,
        cwd,
        mounts,
        limits: process::limits(config)?,
        notes,
        held: None,
    })
}

fn open_dir(dir: &Path) -> Result<OwnedFd, ImageError> {
    let path = dir.to_owned();
    openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        match errno {
            Errno::NOENT => ImageError::NoSuchBundle { path },
            Errno::NOTDIR => ImageError::NotADirectory { path },
            source => ImageError::Os { what: format!("{dir:?}"), source },
        }
    })
}

fn read_config(bundle: &OwnedFd, dir: &Path) -> Result<Config, ImageError> {
    let invalid = |reason: String| ImageError::ConfigInvalid { bundle: dir.to_owned(), reason };
    let bytes =
        files::read_regular(bundle, "config.json", files::STRICT, MAX_CONFIG).map_err(|e| match e {
            ReadError::Os(Errno::NOENT) => ImageError::ConfigMissing { bundle: dir.to_owned() },
            ReadError::Os(Errno::LOOP) => invalid("it is a symlink, copy the file here".to_owned()),
            ReadError::NotRegular => invalid("it is not a regular file".to_owned()),
            ReadError::TooLarge => ImageError::ConfigTooLarge { bundle: dir.to_owned(), max: MAX_CONFIG },
            ReadError::Os(source) => ImageError::Os { what: format!("config.json of {dir:?}"), source },
        })?;
    // The parser stops at 128 levels of nesting by itself.
    let config: Config = serde_json::from_slice(&bytes)
        .map_err(|e| invalid(e.to_string().escape_debug().take(400).collect()))?;
    if !config.oci_version.starts_with("1.") {
        return Err(ImageError::Version { found: config.oci_version.chars().take(40).collect() });
    }
    Ok(config)
}

/// `root.path`, beneath the bundle and through no symlink: a bundle from a stranger must not make the host's `/` its root.
fn open_rootfs(bundle: &OwnedFd, dir: &Path, config: &Config) -> Result<Rootfs, ImageError> {
    let path = config.root.as_ref().and_then(|r| r.path.as_deref()).unwrap_or("rootfs");
    let refused = |reason| ImageError::Root { path: path.chars().take(200).collect(), reason };
    if path.is_empty() || path.contains('\0') {
        return Err(refused("it is empty or has a NUL character"));
    }
    if path.starts_with('/') {
        return Err(refused("write it relative to the bundle, `rootfs`"));
    }
    match files::open_path(bundle, path, OFlags::DIRECTORY, files::STRICT) {
        Ok(fd) => Ok(Rootfs(fd)),
        Err(Errno::NOENT) => Err(ImageError::RootfsMissing { bundle: dir.to_owned(), root: path.to_owned() }),
        Err(Errno::XDEV) => Err(refused("it leads out of the bundle")),
        Err(Errno::LOOP) => Err(refused("it leads through a symlink, move the directory into the bundle")),
        Err(Errno::NOTDIR) => Err(refused("it is not a directory")),
        Err(Errno::NAMETOOLONG) => Err(refused("it is too long")),
        Err(source) => Err(ImageError::Os { what: format!("root.path {path:?}"), source }),
    }
}

/// The image's passwd or group file; empty when it has none. A link in the image is followed inside the image only, so
/// that one to `/etc/shadow` is the image's shadow file, not the host's.
fn read_accounts(rootfs: &Rootfs, path: &'static str) -> Result<Vec<u8>, ImageError> {
    let refused = |reason: &str| ImageError::Accounts { path, reason: reason.to_owned() };
    match files::read_regular(&rootfs.0, path, files::IN_ROOT, MAX_ACCOUNTS) {
        Ok(content) => Ok(content),
        Err(ReadError::Os(Errno::NOENT | Errno::NOTDIR)) => Ok(Vec::new()),
        Err(ReadError::NotRegular) => Err(refused("it is not a regular file")),
        Err(ReadError::TooLarge) => Err(refused("it is larger than 1 MiB")),
        Err(ReadError::Os(Errno::LOOP)) => Err(refused("it is a loop of symlinks")),
        Err(ReadError::Os(source)) => Err(ImageError::Os { what: format!("{path} of the image"), source }),
    }
}

/// `/var/tmp` → `/tmp` and `/var/run` → `/run`, where the image has nothing better.
///
/// An entry of ours turns each of its parents into a real directory. Where the image has a symlink as a parent, all behind it
/// would be hidden: there nothing is added.
fn add_var_links(layer: &mut Layer, rootfs: &Rootfs, mounts: &[BundleMount]) -> Result<(), ImageError> {
    for (path, target, over_dir) in [("/var/tmp", "/tmp", true), ("/var/run", "/run", false)] {
        if layer.get(path).is_some() || mounts.iter().any(|m| at_or_below(path, m.target())) {
            continue;
        }
        let look = |path: &str| {
            rootfs
                .look(path)
                .map_err(|source| ImageError::Os { what: format!("{path} of the image"), source })
        };
        let parent_is_real = matches!(look("/var")?, Found::Dir | Found::Absent);
        let found = look(path)?;
        // A real /var/tmp would be read-only like the rest of the root.
        if parent_is_real && (found == Found::Absent || over_dir && found == Found::Dir) {
            layer.symlink(path, target);
        }
    }
    Ok(())
}

enum Python {
    /// Nothing to add to PATH.
    InPath,
    /// The link is in [`python::LINK_DIR`].
    Linked,
    NoPlace,
}

/// Adds `python` where the image has only `python3`: beside it, or in a directory of ours when that one is reached through a
/// symlink (`/bin` → `usr/bin` must not become a real directory with one file in it).
fn add_python(
    layer: &mut Layer,
    rootfs: &Rootfs,
    mounts: &[BundleMount],
    path_env: &str,
) -> Result<Python, ImageError> {
    let hidden = |dir: &str| {
        OWN_MOUNTS.iter().any(|own| at_or_below(dir, own))
            || mounts.iter().any(|m| at_or_below(dir, m.target()))
    };
    let dirs: Vec<String> = path_env
        .split(':')
        .take(MAX_PATH_DIRS)
        .filter_map(|dir| normal(dir).ok())
        .filter(|dir| dir != "/" && !hidden(dir) && layer.takes_dir(dir))
        .collect();
    let Some(found) = python::missing(dirs.iter().map(String::as_str), |path| rootfs.has_program(path))
    else {
        return Ok(Python::InPath);
    };
    let look = |path: &str| {
        rootfs.look(path).map_err(|source| ImageError::Os { what: format!("{path:?} of the image"), source })
    };
    if look(&found.dir)? == Found::Dir {
        layer.symlink(&format!("{}/python", found.dir), "python3");
        return Ok(Python::InPath);
    }
    if hidden(python::LINK_DIR) || !matches!(look(python::LINK_DIR)?, Found::Dir | Found::Absent) {
        return Ok(Python::NoPlace);
    }
    layer.symlink(&format!("{}/python", python::LINK_DIR), &format!("{}/python3", found.dir));
    Ok(Python::Linked)
}
