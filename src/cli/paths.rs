//! Options that name files and directories.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags};

use super::refusal::Refusal;
use crate::executor::request::{Input, Skill, Stdin};
use crate::regular::{NotUsable, kind_name};
use crate::text::{io_reason, quoted};

const SKILLS_MAX: usize = 64;

/// A refusal of what was typed.
pub(super) fn usage(message: impl Into<String>) -> Refusal {
    Refusal::new("usage.invalid", message)
}

/// The value of an option that has to be text.
pub(super) fn text<'a>(option: &str, value: &'a OsStr) -> Result<&'a str, Refusal> {
    match value.to_str() {
        Some(text) if !text.contains('\0') => Ok(text),
        Some(_) => Err(usage(format!("{option}: {} contains a NUL", quoted(value)))),
        None => Err(usage(format!("{option}: {} is not UTF-8", quoted(value)))),
    }
}

/// The value of an option that is a path.
pub(super) fn path<'a>(option: &str, value: &'a OsStr) -> Result<&'a Path, Refusal> {
    if value.is_empty() {
        Err(usage(format!("{option}: the path is an empty string")))
    } else if value.as_bytes().contains(&0) {
        Err(usage(format!("{option}: {} contains a NUL", quoted(value))))
    } else {
        Ok(Path::new(value))
    }
}

/// `PATH[=NAME]`: if the whole exists it is the path, else the last `=` divides.
fn divide(value: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = value.as_bytes();
    match bytes.iter().rposition(|b| *b == b'=') {
        Some(at) if Path::new(value).symlink_metadata().is_err() => {
            (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..])))
        }
        _ => (value, None),
    }
}

/// Whether the file can be used is seen when it is staged.
pub(super) fn input(value: &OsStr) -> Result<Input, Refusal> {
    let (file, name) = divide(value);
    let file = path("--input", file)?.to_owned();
    let name = name.map(|name| text("--input", name)).transpose()?;
    if name == Some("") {
        let message = format!("--input: {} has an empty name after the '='", quoted(value));
        return Err(
            Refusal::new("input.invalid_name", message).hint("write --input PATH=NAME, or PATH alone")
        );
    }
    Ok(Input { path: file, name: name.map(str::to_owned) })
}

pub(super) fn skills(values: &[OsString]) -> Result<Vec<Skill>, Refusal> {
    let refuse = |message| Refusal::new("skill.invalid", message);
    if values.len() > SKILLS_MAX {
        return Err(refuse(format!("--skill: {} skills are too many; at most {SKILLS_MAX}", values.len())));
    }
    let mut skills: Vec<Skill> = Vec::with_capacity(values.len());
    for value in values {
        let (given, id) = divide(value);
        let dir = directory("--skill", path("--skill", given)?).map_err(refuse)?;
        let id = id.or(Path::new(given).file_name()).or(dir.file_name()).unwrap_or_default();
        let Some(id) = id.to_str().filter(|id| is_skill_id(id)) else {
            let message = format!(
                "--skill: {} is no id; accepted: letters, digits and ._- (at most 64, a letter or digit first)",
                quoted(id)
            );
            return Err(refuse(message).hint("write --skill DIR=ID"));
        };
        if skills.iter().any(|known| known.id == id) {
            return Err(refuse(format!("--skill: two skills have the id {}", quoted(id)))
                .hint("write --skill DIR=ID"));
        }
        skills.push(Skill { id: id.to_owned(), dir });
    }
    Ok(skills)
}

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`
fn is_skill_id(id: &str) -> bool {
    id.len() <= 64
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// `dir` as an absolute path without symlinks, if it is a directory; else the error line.
pub(super) fn directory(option: &str, dir: &Path) -> Result<PathBuf, String> {
    let fail = |reason: String| format!("{option}: {} {reason}", quoted(dir));
    let real = dir.canonicalize().map_err(|error| fail(NotUsable::from(error).to_string()))?;
    if real.is_dir() { Ok(real) } else { Err(fail("is not a directory".to_owned())) }
}

/// The output directory; it need not exist, but it must be possible to make it, or the run would be for nothing.
pub(super) fn output_dir(value: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    let refuse = |message| Refusal::new("output.unusable", message);
    let dir = path("--output", value.unwrap_or(OsStr::new("outputs")))?;
    let dir = std::path::absolute(dir)
        .map_err(|e| refuse(format!("--output: no current directory: {}", io_reason(&e))))?;
    // The directory, or the nearest one above it that exists.
    for place in dir.ancestors() {
        match place.symlink_metadata().and_then(|_| place.metadata()) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(refuse(format!("--output: {} is not a directory", quoted(place))));
            }
            Ok(_) => {
                return match rustix::fs::access(place, Access::WRITE_OK | Access::EXEC_OK) {
                    Ok(()) => Ok(dir),
                    Err(error) => {
                        let reason = io_reason(&error.into());
                        Err(refuse(format!("--output: {} can't be written: {reason}", quoted(place))))
                    }
                };
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && place.is_symlink() => {
                return Err(refuse(format!("--output: {} is a symlink to nothing", quoted(place))));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(refuse(format!(
                    "--output: {} can't be used: {}",
                    quoted(place),
                    io_reason(&error)
                )));
            }
        }
    }
    Ok(dir)
}

/// The file for the program's standard input: regular, a FIFO (with no writer it is at its end), or a character device.
pub(super) fn stdin(value: Option<&OsStr>) -> Result<Stdin, Refusal> {
    let Some(value) = value else {
        return Ok(Stdin::Null);
    };
    let refuse = |reason: String| Refusal::new("input.unreadable", format!("--stdin: {reason}"));
    if value == "-" {
        // A duplicate: closing it does not close ours.
        let copy = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)
            .map_err(|e| refuse(format!("standard input can't be used: {}", io_reason(&e.into()))))?;
        return Ok(Stdin::File(File::from(copy)));
    }
    let path = path("--stdin", value)?;
    let fail = |error: std::io::Error| refuse(format!("{} {}", quoted(path), NotUsable::from(error)));
    let kind = path.metadata().map_err(fail)?.file_type();
    if !(kind.is_file() || kind.is_fifo() || kind.is_char_device()) {
        return Err(refuse(format!("{} is {}, not a file to read", quoted(path), kind_name(kind))));
    }
    // Opening a FIFO must not wait for its writer, and reading it afterwards must.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|e| fail(e.into()))?;
    Ok(Stdin::File(file))
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
