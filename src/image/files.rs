//! Looking into directories that somebody else filled: every path is resolved by the kernel, beneath a descriptor.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

/// Only beneath the directory, and through no symlink at all.
pub(super) const STRICT: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Only beneath the directory; symlinks that stay there are followed, one that leaves is `EXDEV`.
pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// The directory is the root: absolute symlinks and `..` stay inside, as they would in a sandbox.
pub(super) const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Opens `path` with `O_PATH`: has no side effect on a device and does not wait for a FIFO.
pub(super) fn open_path(
    dir: impl AsFd,
    path: &str,
    more: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    // EAGAIN: somebody renamed a directory while the kernel walked through a `..`.
    for _ in 0..16 {
        match openat2(&dir, path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

pub(super) fn file_type(fd: impl AsFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// Why [`read_regular`] has no content for the caller.
#[derive(Debug, PartialEq)]
pub(super) enum ReadError {
    NotRegular,
    TooLarge,
    Os(Errno),
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        ReadError::Os(errno)
    }
}

/// Reads a regular file of at most `max` bytes.
///
/// The type is looked at before the file is opened for reading, so that neither a FIFO (waits for a writer) nor a device
/// (opening alone can have an effect) is ever opened.
pub(super) fn read_regular(
    dir: impl AsFd,
    path: &str,
    how: ResolveFlags,
    max: u64,
) -> Result<Vec<u8>, ReadError> {
    let fd = open_path(dir, path, OFlags::empty(), how)?;
    let stat = fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ReadError::NotRegular);
    }
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > max {
        return Err(ReadError::TooLarge);
    }
    let os = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    // The same file that was looked at: the descriptor is reopened, not the path.
    let file = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(os)?;
    let mut content = Vec::new();
    file.take(max + 1).read_to_end(&mut content).map_err(os)?;
    if content.len() as u64 > max {
        return Err(ReadError::TooLarge); // it grew
    }
    Ok(content)
}

/// The root directory of an image.
pub(super) struct Rootfs(pub OwnedFd);

/// What stands at a path of an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, and no symlink on the way to there.
    Absent,
    /// A directory, reached without a symlink.
    Dir,
    /// The path or a parent is a symlink.
    Symlink,
    /// Something else, or a parent that is no directory.
    Other,
}

impl Rootfs {
    /// What stands at `path`, an absolute and normal path.
    pub fn look(&self, path: &str) -> Result<Found, Errno> {
        match open_path(&self.0, relative(path), OFlags::empty(), STRICT) {
            Ok(fd) if file_type(&fd)? == FileType::Directory => Ok(Found::Dir),
            Ok(_) | Err(Errno::NOTDIR) => Ok(Found::Other),
            Err(Errno::NOENT) => Ok(Found::Absent),
            Err(Errno::LOOP) => Ok(Found::Symlink),
            Err(errno) => Err(errno),
        }
    }

    /// True when `path` leads, through symlinks of the image, to an executable file of the image.
    pub fn has_program(&self, path: &str) -> bool {
        open_path(&self.0, relative(path), OFlags::empty(), IN_ROOT).is_ok_and(|fd| is_program(&fd))
    }
}

/// True for a regular file that somebody may execute.
pub(super) fn is_program(fd: impl AsFd) -> bool {
    fstat(fd)
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile && s.st_mode & 0o111 != 0)
}

fn relative(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        rest => rest,
    }
}
