//! What every image gets from creel: mount points, a small `/etc`, and nothing that a program could write to.

use super::ImageError;
use super::layer::Layer;
use crate::sandbox::root::EMPTY_DIR;

/// The host name inside a sandbox.
pub const HOSTNAME: &str = "creel";

/// Mount points of creel's own. Nothing of an image is ever mounted on, above or below one of them; what the image has
/// there is hidden. `/sys` stays an empty directory.
pub const OWN_MOUNTS: [&str; 9] =
    ["/proc", "/dev", "/sys", "/inputs", "/work", "/outputs", "/skill", "/tmp", "/run"];

/// `localhost` in both families, and our own name: `gethostbyname(gethostname())` is a habit of many programs.
const HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n127.0.1.1\tcreel\n";

/// Files only: glibc would else look for D-Bus, NIS or systemd libraries that an image may or may not have.
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
                        protocols: files\nservices: files\nethers: files\nrpc: files\n";

/// Puts the mount points and `/etc` files into `layer`. `passwd` and `group` are the whole texts of those files.
///
/// As real directories of the topmost layer these hide a symlink of the same name in a hostile image (CVE-2019-16884,
/// CVE-2019-19921, CVE-2023-27561, CVE-2023-28642, CVE-2026-41579, CVE-2026-47766).
pub(super) fn add(
    layer: &mut Layer,
    skill_ids: &[&str],
    passwd: Vec<u8>,
    group: Vec<u8>,
) -> Result<(), ImageError> {
    for dir in OWN_MOUNTS {
        layer.dir(dir);
    }
    for id in skill_ids {
        if !valid_skill_id(id) {
            return Err(ImageError::SkillId { id: (*id).to_owned() });
        }
        layer.dir(&format!("/skill/{id}"));
    }
    layer.file("/etc/passwd", passwd);
    layer.file("/etc/group", group);
    layer.file("/etc/hosts", HOSTS);
    layer.file("/etc/hostname", format!("{HOSTNAME}\n"));
    // Present and empty: without the file the resolver library asks 127.0.0.1 all the same, but some programs complain.
    layer.file("/etc/resolv.conf", "");
    layer.file("/etc/nsswitch.conf", NSSWITCH);
    layer.symlink("/etc/mtab", "/proc/self/mounts");
    Ok(())
}

/// The rest of a root that has no image below it. `/var/tmp` leads to the one bounded `/tmp`.
pub(super) fn add_var(layer: &mut Layer) {
    for dir in [EMPTY_DIR, "/var/cache", "/var/lib", "/var/log", "/home", "/root", "/mnt", "/opt", "/srv"] {
        layer.dir(dir);
    }
    layer.symlink("/var/tmp", "/tmp");
    layer.symlink("/var/run", "/run");
    layer.symlink("/var/lock", "/run");
}

/// The rule that callers follow too; checked here because the id becomes a path.
fn valid_skill_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() <= 64
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::root::EntryKind;

    #[test]
    fn every_own_mount_is_a_directory() {
        let mut layer = Layer::default();
        add(&mut layer, &["pdf", "a.b-c_d"], b"p".to_vec(), b"g".to_vec()).unwrap();
        add_var(&mut layer);
        for dir in OWN_MOUNTS.iter().chain(&["/etc", "/skill/pdf", "/skill/a.b-c_d", EMPTY_DIR]) {
            assert_eq!(layer.get(dir), Some(&EntryKind::Dir), "{dir}");
        }
        assert_eq!(layer.get("/etc/passwd"), Some(&EntryKind::File(b"p".to_vec())));
        assert!(HOSTS.contains(HOSTNAME));
    }

    #[test]
    fn a_skill_id_is_one_plain_name() {
        for bad in ["", ".", "..", "a/b", "../x", "-a", ".a", "a b", "a\n", "技能", &"x".repeat(65)] {
            let err = add(&mut Layer::default(), &[bad], vec![], vec![]).unwrap_err();
            assert_eq!(err.code(), "image.skill_id", "{bad:?}");
        }
    }
}
