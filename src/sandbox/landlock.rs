//! The second wall around files: whatever a mount allows, writes end here.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use thiserror::Error;

/// The oldest landlock that creel runs on (Linux 5.13).
pub const LEAST_ABI: i32 = 1;

/// Device nodes of the sandbox's `/dev`; a program may write to them.
pub const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

#[derive(Debug, Error)]
pub enum LandlockError {
    #[error("cannot open {0} for a landlock rule: {1}")]
    Path(String, landlock::PathFdError),
    #[error("{0}")]
    Ruleset(#[from] RulesetError),
    #[error("the kernel enforces landlock only in part")]
    Partial,
}

/// Restricts the calling thread, and what it will execute, to writes below `writable` and to the device nodes. Reading is left to mounts
/// and file modes. From ABI 6 on, abstract sockets and signals to processes outside are refused as well.
///
/// Paths are resolved now: call it when every mount is in place, since a rule on a directory does not cover what is mounted over it
/// later, and after it mount calls fail.
pub fn restrict(abi: i32, writable: &[&str]) -> Result<(), LandlockError> {
    let abi = ABI::from(abi);
    let write: BitFlags<AccessFs> = AccessFs::from_write(abi);
    // Beneath a file rule only these make sense; the kernel refuses others (landlock_add_rule(2)).
    let write_file = write & AccessFs::from_file(abi);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(write)?;
    let scopes = Scope::from_all(abi);
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    let mut ruleset = ruleset.create()?;
    let open =
        |path: &Path| PathFd::new(path).map_err(|e| LandlockError::Path(path.display().to_string(), e));
    for dir in writable {
        ruleset = ruleset.add_rule(PathBeneath::new(open(Path::new(dir))?, write))?;
    }
    for device in DEVICES {
        ruleset = ruleset.add_rule(PathBeneath::new(open(&Path::new("/dev").join(device))?, write_file))?;
    }
    if ruleset.restrict_self()?.ruleset != RulesetStatus::FullyEnforced {
        return Err(LandlockError::Partial);
    }
    Ok(())
}
