//! The first step of a run: its directories, the input files and the program.
//!
//! Into a fresh run directory go `inputs/` (numbered copies and `manifest.json`, all read-only), `work/` (with the program as
//! `entry.py` or `entry.sh`) and `outputs/` (empty). Owners are the launcher's business.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::mime;
use super::request::Input;
use super::safe_name::safe_name;
use crate::regular::{self, NotUsable};
use crate::text::{io_reason, lossless, quoted};

/// Bytes of all inputs of one run.
pub const INPUTS_MAX: u64 = 2 << 30;
/// Number of inputs of one run.
pub const INPUT_COUNT_MAX: usize = 1000;
/// What is read of a file that says it is empty: those under `/proc` do and are not.
const UNSIZED_MAX: u64 = 16 << 20;

/// Why a run could not be staged. Nothing was started; the run directory holds what was done so far.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("input {} {source}", quoted(path))]
    Input { path: PathBuf, source: NotUsable },
    #[error("input {} has an empty name", quoted(path))]
    EmptyName { path: PathBuf },
    #[error("{count} inputs are too many; at most {INPUT_COUNT_MAX}")]
    TooMany { count: usize },
    #[error("the inputs are larger than 2 GiB together, at {}", quoted(path))]
    TooLarge { path: PathBuf },
    #[error("input {} does not say its size and is larger than 16 MiB", quoted(path))]
    Unsized { path: PathBuf },
    /// Reading failed, or writing for want of room.
    #[error("input {} can't be copied: {}", quoted(path), io_reason(source))]
    Copy { path: PathBuf, source: io::Error },
    /// The run directory could not be written.
    #[error("can't write {}: {}", quoted(path), io_reason(source))]
    Write { path: PathBuf, source: io::Error },
}

impl StageError {
    /// The error code of the report.
    pub fn code(&self) -> &'static str {
        match self {
            StageError::Input { .. } => "input.unreadable",
            StageError::EmptyName { .. } => "input.invalid_name",
            StageError::TooMany { .. } => "input.too_many",
            StageError::TooLarge { .. } | StageError::Unsized { .. } => "input.too_large",
            StageError::Copy { .. } => "input.copy_failed",
            StageError::Write { .. } => "host.write_failed",
        }
    }

    /// True if the host is at fault (exit code 125), false if what was asked for is (126).
    pub fn is_host_fault(&self) -> bool {
        match self {
            StageError::Write { .. } => true,
            StageError::Copy { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::ReadOnlyFilesystem
                )
            }
            _ => false,
        }
    }
}

/// One line of `/inputs/manifest.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// The name that the caller knows the file by.
    display_name: String,
    /// Where it is in the sandbox: `/inputs/00-name.ext`.
    path: String,
    /// What a caller's own reference to it would be: for files of the command line `file:` and the number.
    #[serde(rename = "ref")]
    reference: String,
    mime_type: String,
    size: u64,
}

/// Copies the inputs into `dir` (which exists and is empty) and writes `manifest.json` beside them.
///
/// Every input is looked at before the first one is copied.
///
/// # Errors
/// [`StageError`]; the caller removes the directory.
pub fn stage(dir: &Path, inputs: &[Input]) -> Result<(), StageError> {
    check_inputs(inputs)?;
    let mut manifest = Vec::with_capacity(inputs.len());
    let mut left = INPUTS_MAX;
    for (index, input) in inputs.iter().enumerate() {
        let entry = copy_input(dir, index, input, left)?;
        left = left.saturating_sub(entry.size);
        manifest.push(entry);
    }
    let path = dir.join("manifest.json");
    let failed = |source| StageError::Write { path: path.clone(), source };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|e| failed(e.into()))?;
    write_file(&path, 0o444, &text)?;
    Ok(())
}

/// Refuses what can be refused without copying anything.
fn check_inputs(inputs: &[Input]) -> Result<(), StageError> {
    if inputs.len() > INPUT_COUNT_MAX {
        return Err(StageError::TooMany { count: inputs.len() });
    }
    let mut total: u64 = 0;
    for Input { path, name } in inputs {
        if name.as_ref().is_some_and(String::is_empty) {
            return Err(StageError::EmptyName { path: path.clone() });
        }
        let metadata =
            regular::check(path).map_err(|source| StageError::Input { path: path.clone(), source })?;
        total = total.saturating_add(metadata.len());
        if total > INPUTS_MAX {
            return Err(StageError::TooLarge { path: path.clone() });
        }
    }
    Ok(())
}

/// Copies one input, at most `left` bytes of it.
fn copy_input(inputs: &Path, index: usize, input: &Input, left: u64) -> Result<Entry, StageError> {
    let Input { path, name } = input;
    let copy = |source| StageError::Copy { path: path.clone(), source };
    let (from, metadata) =
        regular::open(path).map_err(|source| StageError::Input { path: path.clone(), source })?;
    let display_name = match (name, path.file_name()) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => lossless(name),
        (None, None) => lossless(path.as_os_str()),
    };
    let safe = format!("{index:02}-{}", safe_name(&display_name));
    let target = inputs.join(&safe);
    let mut to = create(&target)?;
    // What is added to the file from now on is not taken: a log that grows can't keep us here.
    let known = metadata.len();
    let bound = if known == 0 { UNSIZED_MAX + 1 } else { known };
    if known > left {
        return Err(StageError::TooLarge { path: path.clone() });
    }
    // The standard library copies between files with copy_file_range: nothing passes through our memory.
    let size = io::copy(&mut (&from).take(bound), &mut to).map_err(copy)?;
    if known == 0 && size > UNSIZED_MAX {
        return Err(StageError::Unsized { path: path.clone() });
    }
    set_mode(&to, &target, 0o444)?;
    Ok(Entry {
        path: format!("/inputs/{safe}"),
        reference: format!("file:{index}"),
        mime_type: mime::by_name(&display_name),
        display_name,
        size,
    })
}

fn write_file(path: &Path, mode: u32, content: &[u8]) -> Result<(), StageError> {
    let mut file = create(path)?;
    file.write_all(content).map_err(|source| StageError::Write { path: path.to_owned(), source })?;
    set_mode(&file, path, mode)
}

fn create(path: &Path) -> Result<File, StageError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| StageError::Write { path: path.to_owned(), source })
}

fn set_mode(file: &File, path: &Path, mode: u32) -> Result<(), StageError> {
    file.set_permissions(Permissions::from_mode(mode))
        .map_err(|source| StageError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
