//! Why a layer can't be unpacked.

use std::borrow::Cow;
use std::io;

use rustix::io::Errno;

use super::decompress::StreamError;

/// Which of the rules for layers an entry broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Its name.
    Path,
    /// What it links to.
    Link,
    /// What kind of entry it is.
    Kind,
    /// Its being a whiteout.
    Whiteout,
    /// Something else that stands at its place, or on the way.
    Conflict,
    /// Its time, owner or extended attributes.
    Attribute,
    /// The form of the archive.
    Malformed,
    /// A limit.
    Limit,
}

/// Why a layer can't be unpacked. Entries are named with their control characters escaped.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the layer is refused: {entry}: {reason}")]
    Refused { rule: Rule, entry: String, reason: Cow<'static, str> },

    /// A bad compressed stream. `entry` says how far the archive was read.
    #[error("the layer is refused: {entry}: {source}")]
    Stream { entry: String, source: StreamError },

    #[error("the layer ends in the middle of {entry}: fetch or copy it once more")]
    Truncated { entry: String },

    #[error("can't read the layer: {source}")]
    Read { source: io::Error },

    #[error("can't {action} {entry}: {}{}", io::Error::from(*source), hint(*source))]
    Write { action: &'static str, entry: String, source: Errno },

    #[error("the directory to unpack into is not empty")]
    NotEmpty,

    #[error("can't start a thread to unpack with: {source}")]
    Thread { source: io::Error },
}

impl UnpackError {
    /// The code of the report, `image.reason`.
    pub fn code(&self) -> &'static str {
        match self {
            UnpackError::Refused { rule, .. } => match rule {
                Rule::Path => "image.layer_path",
                Rule::Link => "image.layer_link",
                Rule::Kind => "image.layer_kind",
                Rule::Whiteout => "image.layer_whiteout",
                Rule::Conflict => "image.layer_conflict",
                Rule::Attribute => "image.layer_attribute",
                Rule::Malformed => "image.layer_malformed",
                Rule::Limit => "image.layer_limit",
            },
            UnpackError::Stream { source: StreamError::Ratio { .. } | StreamError::Bytes { .. }, .. } => {
                "image.layer_limit"
            }
            UnpackError::Stream { .. } => "image.layer_compression",
            UnpackError::Truncated { .. } => "image.layer_truncated",
            UnpackError::Read { .. } => "image.layer_unreadable",
            UnpackError::Write { .. } => "image.layer_unwritable",
            UnpackError::NotEmpty => "image.layer_target",
            UnpackError::Thread { .. } => "image.layer_thread",
        }
    }

    /// As an error of reading the archive.
    pub(in crate::image) fn into_io(self) -> io::Error {
        match self {
            UnpackError::Read { source } => source,
            UnpackError::Truncated { .. } => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the archive is cut off")
            }
            UnpackError::Stream { source, .. } => source.into(),
            UnpackError::Refused { entry, reason, .. } => {
                io::Error::new(io::ErrorKind::InvalidData, format!("{entry}: {reason}"))
            }
            other => io::Error::other(other.to_string()),
        }
    }

    /// True when the host is at fault (exit code 125), false when the layer is (126).
    pub fn is_host_fault(&self) -> bool {
        matches!(
            self,
            UnpackError::Read { .. }
                | UnpackError::Write { .. }
                | UnpackError::NotEmpty
                | UnpackError::Thread { .. }
        )
    }
}

/// What to do, where the system's own words don't tell.
fn hint(source: Errno) -> &'static str {
    match source {
        Errno::NOSPC => {
            ": free space or inodes on the disk of creel's images (`creel image gc`), or put its state on another one"
        }
        Errno::DQUOT => {
            ": the disk quota of this user is used up; free space (`creel image gc`) or have it raised"
        }
        Errno::IO => ": the disk has a fault; look into the kernel log (`dmesg`)",
        Errno::MFILE | Errno::NFILE => ": raise the limit of open files (`ulimit -n`)",
        Errno::ROFS => ": the disk of creel's images is mounted read-only",
        _ => "",
    }
}

/// An error that doesn't know yet which entry it is about.
#[derive(Debug)]
pub(in crate::image) enum Fault {
    Refused(Rule, Cow<'static, str>),
    Truncated,
    Stream(io::Error),
    Os(&'static str, Errno),
}

impl Fault {
    pub fn refused<T>(rule: Rule, reason: impl Into<Cow<'static, str>>) -> Result<T, Fault> {
        Err(Fault::Refused(rule, reason.into()))
    }

    /// For `map_err`: what was being done to the entry.
    pub fn os(action: &'static str) -> impl Fn(Errno) -> Fault {
        move |errno| Fault::Os(action, errno)
    }

    /// `entry` as [`Archive::label`](super::archive::Archive::label) writes it.
    pub fn at(self, entry: String) -> UnpackError {
        match self {
            Fault::Refused(rule, reason) => UnpackError::Refused { rule, entry, reason },
            Fault::Truncated => UnpackError::Truncated { entry },
            Fault::Os(action, source) => UnpackError::Write { action, entry, source },
            Fault::Stream(error) => match StreamError::of(&error) {
                Some(source) => UnpackError::Stream { entry, source },
                None => UnpackError::Read { source: error },
            },
        }
    }
}

impl From<io::Error> for Fault {
    /// Only reading the stream gives this type; files are written by rustix.
    fn from(error: io::Error) -> Fault {
        Fault::Stream(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_what_to_do() {
        for (errno, words) in [
            (Errno::NOSPC, "creel image gc"),
            (Errno::DQUOT, "quota"),
            (Errno::IO, "dmesg"),
            (Errno::MFILE, "ulimit -n"),
        ] {
            let err = Fault::Os("write", errno).at("entry 'usr/bin/x'".into());
            let text = err.to_string();
            assert!(text.starts_with("can't write entry 'usr/bin/x': ") && text.contains(words), "{text}");
            assert!(err.is_host_fault());
            assert_eq!(err.code(), "image.layer_unwritable");
        }
    }
}
