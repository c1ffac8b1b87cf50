//! Where creel keeps its state.

#![forbid(unsafe_code)]

use std::env;
use std::path::PathBuf;

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
