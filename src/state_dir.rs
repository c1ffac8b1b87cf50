//! Where creel keeps its state.

#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};

use crate::text::quoted;

/// `/var/lib/creel` as root, `$XDG_STATE_HOME/creel` (or `~/.local/state/creel`) else; `CREEL_STATE_DIR` overrides both. `None`
/// for an ordinary user without any of these variables.
pub fn location() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("CREEL_STATE_DIR") {
        return Some(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/creel"));
    }
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|h| h.join(".local/state")));
    base.map(|dir| dir.join("creel"))
}

/// What is wrong with a directory that has to be this user's alone, and the command that mends it. `mode` as stat(2) gives it.
pub(crate) fn not_ours(path: &Path, owner: u32, mode: u32) -> String {
    let (us, shown) = (rustix::process::geteuid().as_raw(), quoted(path));
    let (mode, kind) = (mode & 0o7777, mode & libc::S_IFMT);
    if kind != libc::S_IFDIR {
        return format!("{shown} is not a directory: move it away");
    }
    if owner != us {
        return format!(
            "{shown} belongs to uid {owner}, and this is uid {us}: as root, chown -R {us} {shown}"
        );
    }
    format!("others may write to {shown} (mode {mode:04o}): chmod 0700 {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_or_mode() {
        let (us, path) = (rustix::process::geteuid().as_raw(), Path::new("/数"));
        let text = not_ours(path, us + 1, libc::S_IFDIR | 0o777);
        assert!(text.contains(&format!("belongs to uid {}", us + 1)) && text.contains("chown -R"), "{text}");
        let text = not_ours(path, us, libc::S_IFDIR | 0o1775);
        assert!(text.contains("mode 1775") && text.contains("chmod 0700") && !text.contains("uid"), "{text}");
        assert!(not_ours(path, us, libc::S_IFLNK | 0o777).contains("not a directory"));
    }
}
