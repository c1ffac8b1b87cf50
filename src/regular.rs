//! Opening a file that somebody named: a regular file or nothing, and never a wait.

#![forbid(unsafe_code)]

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::text::io_reason;

/// Why a path can't be used as a regular file. Reads on after the path: `'x.csv' is a directory, …`.
#[derive(Debug, thiserror::Error)]
pub enum NotUsable {
    #[error("does not exist")]
    Missing,
    #[error("can't be read: permission denied")]
    Denied,
    #[error("is {0}, not a regular file")]
    Kind(&'static str),
    #[error("can't be read: {}", io_reason(.0))]
    Other(#[source] io::Error),
}

/// What `path` is, without opening it (opening a device node can have effects).
///
/// # Errors
/// [`NotUsable`] if it is missing, can't be reached, or isn't a regular file. Symlinks are followed: the path is the
/// caller's own.
pub fn check(path: &Path) -> Result<Metadata, NotUsable> {
    regular(std::fs::metadata(path)?)
}

/// Opens `path` for reading, close-on-exec. The metadata is that of the opened file, not of the path.
///
/// # Errors
/// As [`check`]; `O_NONBLOCK` makes sure that a FIFO put there in between can't hold us.
pub fn open(path: &Path) -> Result<(File, Metadata), NotUsable> {
    check(path)?;
    // The standard library adds O_CLOEXEC.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = regular(file.metadata()?)?;
    Ok((file, metadata))
}

/// What a file that isn't regular is, with its article: `a directory`.
pub fn kind_name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO (named pipe)"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "something else"
    }
}

fn regular(metadata: Metadata) -> Result<Metadata, NotUsable> {
    if metadata.is_file() { Ok(metadata) } else { Err(NotUsable::Kind(kind_name(metadata.file_type()))) }
}

impl From<io::Error> for NotUsable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => NotUsable::Missing,
            io::ErrorKind::PermissionDenied => NotUsable::Denied,
            _ => NotUsable::Other(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_open() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("数据.csv"), "a").unwrap();
        std::os::unix::fs::symlink("数据.csv", at("link")).unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();

        assert_eq!(open(&at("数据.csv")).unwrap().1.len(), 1);
        assert_eq!(open(&at("link")).unwrap().1.len(), 1);
        let reason = |path: &Path| open(path).unwrap_err().to_string();
        assert_eq!(reason(dir.path()), "is a directory, not a regular file");
        assert_eq!(reason(&at("fifo")), "is a FIFO (named pipe), not a regular file");
        assert_eq!(reason(&at("socket")), "is a socket, not a regular file");
        assert_eq!(reason(Path::new("/dev/zero")), "is a character device, not a regular file");
        assert_eq!(reason(&at("nothing")), "does not exist");
        assert!(reason(&at("loop")).starts_with("can't be read: too many levels"));
        assert!(reason(&at("link/x")).starts_with("can't be read: not a directory"));
    }
}
