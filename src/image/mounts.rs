//! The mounts of a bundle: which are honoured, which are creel's own anyway, which are refused.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::config::Mount;
use super::files::{self, Found, Rootfs};
use super::layer::{Layer, at_or_below, normal};
use super::{BundleMount, ImageError, OWN_MOUNTS};

/// More are an error: each costs time at every start.
const MAX_MOUNTS: usize = 64;

/// The size of a tmpfs that names none.
const TMPFS_SIZE: u64 = 16 << 20;

/// What `runc spec` and its kin put into every configuration, and creel makes itself: skipped without a word.
const STANDARD: [(&str, &[&str]); 9] = [
    ("/proc", &["proc"]),
    ("/dev", &["tmpfs", "devtmpfs"]),
    ("/dev/pts", &["devpts"]),
    ("/dev/shm", &["tmpfs"]),
    ("/dev/mqueue", &["mqueue"]),
    ("/sys", &["sysfs"]),
    ("/sys/fs/cgroup", &["cgroup", "cgroup2", "tmpfs"]),
    ("/tmp", &["tmpfs"]),
    ("/run", &["tmpfs"]),
];

/// The bundle directory.
pub(super) struct Bundle<'a> {
    pub dir: &'a Path,
    pub fd: &'a OwnedFd,
}

/// Checks the mounts in their order and adds their mount points to `layer`.
///
/// Returns the mounts that are honoured, and the targets of those that asked to be writable.
pub(super) fn honour(
    mounts: &[Mount],
    bundle: &Bundle,
    rootfs: &Rootfs,
    layer: &mut Layer,
) -> Result<(Vec<BundleMount>, Vec<String>), ImageError> {
    let mut taken: Vec<BundleMount> = Vec::new();
    let mut made_read_only = Vec::new();
    for mount in mounts {
        let refused =
            |reason: &str| ImageError::Mount { target: mount.destination.clone(), reason: reason.to_owned() };
        let target = normal(&mount.destination).map_err(refused)?;
        if is_standard(mount, &target) {
            continue;
        }
        if taken.len() == MAX_MOUNTS {
            return Err(refused("a bundle has at most 64 mounts"));
        }
        check_target(&target, &taken, layer).map_err(refused)?;
        check_way(&target, rootfs)?.map_err(refused)?;
        if is_bind(mount) {
            let (source, is_dir) = open_source(mount, bundle)?;
            if is_dir {
                layer.dir(&target);
            } else {
                layer.file(&target, "");
            }
            if !has_option(mount, &["ro", "rro"]) {
                made_read_only.push(target.clone());
            }
            taken.push(BundleMount::Bind { source, target });
        } else if mount.kind.as_deref() == Some("tmpfs") {
            layer.dir(&target);
            taken.push(BundleMount::Tmpfs { target, size: tmpfs_size(mount).map_err(refused)? });
        } else {
            let kind = mount.kind.as_deref().unwrap_or_default();
            return Err(refused(&format!("type {kind:?} is not allowed, only tmpfs and bind are")));
        }
    }
    Ok((taken, made_read_only))
}

fn is_bind(mount: &Mount) -> bool {
    mount.kind.as_deref() == Some("bind") || has_option(mount, &["bind", "rbind"])
}

fn has_option(mount: &Mount, names: &[&str]) -> bool {
    mount.options.iter().flatten().any(|o| names.contains(&o.as_str()))
}

fn is_standard(mount: &Mount, target: &str) -> bool {
    if is_bind(mount) {
        // `runc spec --rootless` binds the host's /sys; here it is an empty directory.
        return matches!(target, "/sys" | "/sys/fs/cgroup") && mount.source.as_deref() == Some(target);
    }
    let kind = mount.kind.as_deref().unwrap_or_default();
    STANDARD.iter().any(|(path, kinds)| *path == target && kinds.contains(&kind))
}

/// CVE-2019-16884, CVE-2019-19921, CVE-2025-52881: nothing is mounted over, above or below what the sandbox relies on.
fn check_target(target: &str, taken: &[BundleMount], layer: &Layer) -> Result<(), &'static str> {
    if target == "/" {
        return Err("the root is the image's own");
    }
    if OWN_MOUNTS.iter().any(|own| at_or_below(target, own)) {
        return Err("creel's own mounts hold there, choose another place");
    }
    // Exactly what the skeleton made: `/etc`, its files, and what stands above them.
    if layer.get(target).is_some() && taken.iter().all(|m| !at_or_below(m.target(), target)) {
        return Err("creel's own files hold there, choose another place");
    }
    if taken.iter().any(|m| at_or_below(target, m.target()) || at_or_below(m.target(), target)) {
        return Err("it overlaps an earlier mount of the bundle");
    }
    if !layer.takes_dir(target) {
        return Err("a parent of it is a file of creel's own");
    }
    Ok(())
}

/// CVE-2021-30465, CVE-2024-45310: the way to the mount point has no symlink. (One could not lead out of the sandbox here,
/// for our own real directories would hide it; but then all that the image has behind it would be hidden too.)
fn check_way(target: &str, rootfs: &Rootfs) -> Result<Result<(), &'static str>, ImageError> {
    let parent = target.rsplit_once('/').map_or("", |(parent, _)| parent);
    let found = rootfs
        .look(parent)
        .map_err(|source| ImageError::Os { what: format!("{parent:?} of the image"), source })?;
    Ok(match found {
        Found::Dir | Found::Absent => Ok(()),
        Found::Symlink => Err("it leads through a symlink of the image, write the real path"),
        Found::Other => Err("a parent of it is not a directory of the image"),
    })
}

/// Opens the source of a bind mount, which must be in the bundle directory. True: it is a directory.
fn open_source(mount: &Mount, bundle: &Bundle) -> Result<(OwnedFd, bool), ImageError> {
    let refused =
        |reason: &str| ImageError::Mount { target: mount.destination.clone(), reason: reason.to_owned() };
    let outside = || {
        let source = mount.source.as_deref().unwrap_or_default();
        refused(&format!(
            "its source {source:?} is not in the bundle; show host files with --input or --skill"
        ))
    };
    let source = mount.source.as_deref().filter(|s| !s.is_empty());
    let source = source.ok_or_else(|| refused("a bind mount needs a source"))?;
    if source.contains('\0') {
        return Err(refused("its source has a NUL character"));
    }
    let inside = beneath(Path::new(source), bundle.dir).ok_or_else(outside)?;
    let inside = match inside.to_str() {
        Some("") | None => ".",
        Some(text) => text,
    };
    // Beneath by the kernel's word, not by the text's: a symlink of the bundle may lead elsewhere.
    let fd = match files::open_path(bundle.fd, inside, OFlags::empty(), files::BENEATH) {
        Ok(fd) => fd,
        Err(Errno::XDEV) => return Err(outside()),
        Err(Errno::NOENT) => return Err(refused(&format!("its source {source:?} does not exist"))),
        Err(Errno::LOOP) => return Err(refused(&format!("its source {source:?} is a loop of symlinks"))),
        Err(errno) => {
            return Err(ImageError::Os { what: format!("mount source {source:?}"), source: errno });
        }
    };
    match files::file_type(&fd) {
        Ok(FileType::Directory) => Ok((fd, true)),
        Ok(FileType::RegularFile) => Ok((fd, false)),
        Ok(_) => Err(refused("its source is neither a directory nor a regular file")),
        Err(errno) => Err(ImageError::Os { what: format!("mount source {source:?}"), source: errno }),
    }
}

/// `source` relative to the bundle: as it is when relative, else without the bundle's path, as given or resolved.
fn beneath(source: &Path, bundle: &Path) -> Option<PathBuf> {
    if source.is_relative() {
        return Some(source.to_owned());
    }
    if let Ok(rest) = source.strip_prefix(bundle) {
        return Some(rest.to_owned());
    }
    let real = std::fs::canonicalize(bundle).ok()?;
    source.strip_prefix(real).ok().map(Path::to_owned)
}

/// Bytes from `size=64m`; a tmpfs always has a bound, so `size=0` (no bound) and `size=50%` (of the host's memory) become
/// the default.
fn tmpfs_size(mount: &Mount) -> Result<u64, &'static str> {
    let Some(text) = mount.options.iter().flatten().rev().find_map(|o| o.strip_prefix("size=")) else {
        return Ok(TMPFS_SIZE);
    };
    if text.ends_with('%') {
        return Ok(TMPFS_SIZE);
    }
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = match digits.parse() {
        Ok(number) if digits.bytes().all(|b| b.is_ascii_digit()) => number,
        _ => return Err("its size is not a number with k, m or g"),
    };
    match number.checked_mul(1 << shift) {
        Some(0) => Ok(TMPFS_SIZE),
        Some(size) => Ok(size),
        None => Err("its size is too large"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tmpfs(options: &[&str]) -> Mount {
        Mount {
            destination: "/x".to_owned(),
            kind: Some("tmpfs".to_owned()),
            source: None,
            options: Some(options.iter().map(|o| (*o).to_owned()).collect()),
        }
    }

    #[test]
    fn a_tmpfs_always_has_a_bound() {
        for (options, want) in [
            (&["nosuid"][..], TMPFS_SIZE),
            (&["size=0"], TMPFS_SIZE),
            (&["size=0g"], TMPFS_SIZE),
            (&["size=50%"], TMPFS_SIZE),
            (&["size=65536k"], 64 << 20),
            (&["size=1g", "size=2M"], 2 << 20),
            (&["size=4096"], 4096),
        ] {
            assert_eq!(tmpfs_size(&tmpfs(options)), Ok(want), "{options:?}");
        }
        for bad in ["size=", "size=m", "size=-1", "size=+1", "size=1t", "size=1é", "size=99999999999g"] {
            assert!(tmpfs_size(&tmpfs(&[bad])).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_absolute_source_is_taken_below_the_bundle_only() {
        let bundle = Path::new("/srv/bundle");
        assert_eq!(beneath(Path::new("data"), bundle).unwrap(), Path::new("data"));
        assert_eq!(beneath(Path::new("/srv/bundle/data"), bundle).unwrap(), Path::new("data"));
        assert_eq!(beneath(Path::new("/srv/bundle"), bundle).unwrap(), Path::new(""));
        assert_eq!(beneath(Path::new("/srv/bundle2/data"), bundle), None);
        assert_eq!(beneath(Path::new("/etc"), bundle), None);
    }
}
