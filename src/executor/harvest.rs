//! Collecting what a run left in `/outputs`.
//!
//! Whoever wrote it is dead by now, but everything there is its work: names, kinds, modes, sizes, links. Two phases: `walk`
//! looks at everything, opens nothing but directories, and refuses the whole if a limit is passed; only then
//! `copy` creates anything at the destination. What can't be kept is left out with a reason.

mod copy;
mod dest;
mod names;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::report::{Produced, Skipped};

/// So many skipped entries are named in a report; the rest is a number.
pub const MAX_SKIPPED: usize = 100;

/// What may be harvested of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HarvestLimits {
    /// Sum of the files' sizes in bytes as a reader sees them: holes count, and each name of a file with several does, because
    /// that is what the copies take.
    pub bytes: u64,
    /// Regular files. Ten times as many entries of any kind, and 1,000 more, are looked at.
    pub files: u64,
    /// Directory levels beneath the top (at most [`MAX_DEPTH`]).
    pub depth: u32,
}

/// No more directory levels than this are harvested, whatever the limit: a descriptor is open for each.
pub const MAX_DEPTH: u32 = 128;

/// What came of it. Both lists are sorted by path, bytewise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Harvest {
    pub produced: Vec<Produced>,
    /// At most [`MAX_SKIPPED`] entries, and one that says how many more.
    pub skipped: Vec<Skipped>,
}

/// Why nothing was harvested. Nothing was kept: what was there before at the destination is untouched.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    /// Over a limit: `outputs.too_large`, `outputs.too_many_files`, `outputs.too_deep`.
    #[error("{message}")]
    Rejected { code: &'static str, message: String },
    /// The host's fault: no space left, no right to write, a broken disk.
    #[error("cannot {action} {object}: {source}")]
    Io { action: &'static str, object: String, source: io::Error },
}

impl HarvestError {
    fn io(action: &'static str, object: impl Into<String>, source: impl Into<io::Error>) -> Self {
        HarvestError::Io { action, object: object.into(), source: source.into() }
    }

    /// The error code in a report.
    pub fn code(&self) -> &'static str {
        match self {
            HarvestError::Rejected { code, .. } => code,
            HarvestError::Io { .. } => "outputs.io",
        }
    }
}

/// Copies the regular files beneath `outputs` to the directory `dest`, subdirectories kept.
///
/// `outputs` is a descriptor of the run's output directory, opened for reading or `O_PATH`. Nothing may be running any more that
/// could write there; if something is, files may be missing, but nothing from elsewhere gets in. Modes of entries that
/// can't be read are changed. With `owner`, entries of another user id are skipped.
///
/// `dest` and its parents are created when there is something to keep. Each file is complete and renamed into place or not
/// there at all; all are copied before the first is renamed. An existing regular file is replaced; a symbolic link, a directory
/// or anything else in a file's place, and a link in a subdirectory's place, stays and the file is skipped. Modes are 0644 and
/// 0755 less the umask.
pub fn harvest(
    outputs: BorrowedFd<'_>,
    dest: &Path,
    limits: &HarvestLimits,
    owner: Option<u32>,
) -> Result<Harvest, HarvestError> {
    let walk::Found { files, mut skips } = walk::walk(outputs, limits, owner)?;
    let produced = copy::keep(outputs, files, dest, &mut skips)?;
    Ok(Harvest { produced, skipped: skips.into_list() })
}

/// The entries left out: the first [`MAX_SKIPPED`] by name, whatever order a directory is read in, and the number of all.
#[derive(Default)]
struct Skips {
    first: BTreeSet<(String, String)>,
    total: usize,
}

impl Skips {
    fn add(&mut self, path: &[u8], reason: impl Into<String>) {
        self.total += 1;
        self.first.insert((names::shown(path), reason.into()));
        if self.first.len() > MAX_SKIPPED {
            self.first.pop_last();
        }
    }

    fn into_list(self) -> Vec<Skipped> {
        let more = self.total - self.first.len();
        let mut list: Vec<_> =
            self.first.into_iter().map(|(name, reason)| Skipped { name, reason }).collect();
        if more > 0 {
            list.push(Skipped { name: "…".into(), reason: format!("… and {more} more") });
        }
        list
    }
}
