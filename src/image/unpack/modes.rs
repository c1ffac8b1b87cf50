//! The mode that an entry gets in the store.

use crate::image::accounts::{GID, UID};

/// Permission bits for the store, and what was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub bits: u32,
    pub setuid: bool,
    pub setgid: bool,
}

/// `mode` with the owner, as the archive has them.
///
/// Nothing of the store is ever set-user-id: all users of the host could run it from there (CVE-2021-41103). The sticky bit means
/// something on directories only. The payload is always 10001:10001, and owners are not kept: what it could read
/// or run as the owner, or else by its group, it may as anybody. (Only added: a mode that keeps the owner out and lets
/// others in would be the only one that ends up wider.) The store's owner can always read, and go into directories, to merge layers.
pub(super) fn stored(mode: u32, uid: u32, gid: u32, directory: bool) -> Mode {
    let mut bits = mode & 0o777;
    if uid == UID {
        bits |= (mode >> 6) & 0o5;
    } else if gid == GID {
        bits |= (mode >> 3) & 0o5;
    }
    if directory {
        bits |= 0o700 | (mode & 0o1000);
    } else {
        bits |= 0o400;
    }
    Mode { bits, setuid: mode & 0o4000 != 0, setgid: mode & 0o2000 != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        // mode, uid, gid, directory → bits
        for (mode, uid, gid, directory, bits) in [
            (0o644, 0, 0, false, 0o644),
            (0o000, 0, 0, false, 0o400),
            (0o000, 0, 0, true, 0o700),
            (0o555, 0, 0, true, 0o755),
            (0o1777, 0, 0, true, 0o1777),
            (0o1777, 0, 0, false, 0o777),
            (0o7755, 0, 0, false, 0o755),
            (0o7755, 0, 0, true, 0o1755),
            (0o600, 10001, 0, false, 0o604),
            (0o700, 10001, 10001, true, 0o705),
            (0o300, 10001, 0, true, 0o701),
            (0o640, 0, 10001, false, 0o644),
            (0o710, 0, 10001, true, 0o711),
            (0o070, 10001, 10001, false, 0o470),
            (0o600, 10000, 10002, false, 0o600),
        ] {
            let got = stored(mode, uid, gid, directory);
            assert_eq!(got.bits, bits, "{mode:o} {uid} {gid} {directory}: {:o}", got.bits);
            assert_eq!((got.setuid, got.setgid), (mode & 0o4000 != 0, mode & 0o2000 != 0));
        }
    }
}
