//! The first phase: looks at everything beneath `/outputs` and adds up, opens only directories, creates nothing.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, StatxFlags, statx};
use rustix::io::Errno;

use super::{HarvestError, HarvestLimits, MAX_DEPTH, Skips, names};
use crate::sandbox::tree;

/// Longer paths are left out: no program could open them at the destination (`PATH_MAX` is 4096).
const MAX_PATH: usize = 3500;

/// What was found.
pub(super) struct Found {
    /// Sorted by path, bytewise.
    pub files: Vec<File>,
    pub skips: Skips,
}

/// A regular file that is to be kept.
pub(super) struct File {
    /// Relative to the top.
    pub path: String,
    pub id: Identity,
}

/// What must be the same when the file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    dev: (u32, u32),
    ino: u64,
    pub size: u64,
}

/// An entry, as far as it matters here.
pub(super) struct Look {
    pub kind: FileType,
    pub mode: Mode,
    pub id: Identity,
    uid: u32,
}

/// Looks at `name` in `at`, or at `at` itself if the name is empty, without opening anything.
pub(super) fn look(at: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<Look> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let flags = if name.is_empty() { flags | AtFlags::EMPTY_PATH } else { flags };
    let stat = statx(at, name, flags, StatxFlags::BASIC_STATS)?;
    Ok(Look {
        kind: FileType::from_raw_mode(stat.stx_mode.into()),
        mode: Mode::from_raw_mode(stat.stx_mode.into()),
        id: Identity {
            dev: (stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            size: stat.stx_size,
        },
        uid: stat.stx_uid,
    })
}

/// Walks the tree under `outputs`.
pub(super) fn walk(
    outputs: BorrowedFd<'_>,
    limits: &HarvestLimits,
    owner: Option<u32>,
) -> Result<Found, HarvestError> {
    let top = open_readable(outputs, c".", look(outputs, c"").map(|l| l.mode))
        .and_then(Dir::new)
        .map_err(|e| HarvestError::io("read", "the output directory", e))?;
    let mut walk = Walk { limits, owner, entries: 0, bytes: 0, files: Vec::new(), skips: Skips::default() };
    let mut levels = vec![(top, Vec::new())];
    loop {
        let level = levels.len() as u32;
        let Some((dir, prefix)) = levels.last_mut() else {
            break;
        };
        let entry = match dir.read() {
            None => {
                levels.pop();
                continue;
            }
            Some(entry) => entry.map_err(|e| HarvestError::io("read", names::shown(prefix), e))?,
        };
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        let at = dir.fd().map_err(|e| HarvestError::io("read", names::shown(prefix), e))?;
        let mut path = prefix.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(entry.file_name().to_bytes());
        if let Some(below) = walk.visit(at, entry.file_name(), &path, level)? {
            levels.push((below, path));
        }
    }
    walk.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(Found { files: walk.files, skips: walk.skips })
}

struct Walk<'a> {
    limits: &'a HarvestLimits,
    owner: Option<u32>,
    entries: u64,
    bytes: u64,
    files: Vec<File>,
    skips: Skips,
}

impl Walk<'_> {
    /// Takes in one entry, `level` directories beneath the top's parent; gives back the directory to go down into.
    fn visit(
        &mut self,
        at: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        path: &[u8],
        level: u32,
    ) -> Result<Option<Dir>, HarvestError> {
        self.entries += 1;
        let max_entries = self.limits.files.saturating_mul(10).saturating_add(1000);
        if self.entries > max_entries {
            let message =
                format!("the outputs are over the limit: more than {max_entries} entries of all kinds");
            return Err(HarvestError::Rejected { code: "outputs.too_many_files", message });
        }
        let text = match names::check(name.to_bytes()) {
            Ok(_) if level == 1 && names::is_temp(name.to_bytes()) => {
                Err("creel keeps such names for itself")
            }
            Ok(_) => std::str::from_utf8(path).map_err(|_| "the name is not valid UTF-8"),
            Err(reason) => Err(reason),
        };
        let seen = match (text, look(at, name)) {
            (Err(reason), _) => Err(reason.to_owned()),
            (_, Err(e)) => Err(trouble(e)),
            (Ok(_), Ok(seen)) if self.owner.is_some_and(|o| o != seen.uid) => {
                Err(format!("it belongs to user {}", seen.uid))
            }
            (Ok(text), Ok(seen)) => Ok((text, seen)),
        };
        let (text, seen) = match seen {
            Ok(seen) => seen,
            Err(reason) => {
                self.skips.add(path, reason);
                return Ok(None);
            }
        };
        match seen.kind {
            FileType::RegularFile if path.len() > MAX_PATH => {
                self.skips.add(path, format!("the path is longer than {MAX_PATH} bytes"));
            }
            FileType::RegularFile => self.add(text, seen.id)?,
            FileType::Directory => {
                let max = self.limits.depth.min(MAX_DEPTH);
                if level > max {
                    let name = names::shown(path);
                    let message =
                        format!("the outputs are over the limit: {name} is more than {max} directories deep");
                    return Err(HarvestError::Rejected { code: "outputs.too_deep", message });
                }
                return self.descend(at, name, path, &seen);
            }
            kind => self.skips.add(path, kind_reason(kind)),
        }
        Ok(None)
    }

    fn add(&mut self, path: &str, id: Identity) -> Result<(), HarvestError> {
        let max = self.limits.bytes;
        self.bytes = self.bytes.saturating_add(id.size);
        if self.bytes > max {
            let (name, size, total) = (names::shown(path.as_bytes()), id.size, self.bytes);
            let message = format!(
                "the outputs are over the limit of {max} bytes: {total} with {name}, which has {size}"
            );
            return Err(HarvestError::Rejected { code: "outputs.too_large", message });
        }
        if self.files.len() as u64 >= self.limits.files {
            let message = format!("the outputs are over the limit: more than {} files", self.limits.files);
            return Err(HarvestError::Rejected { code: "outputs.too_many_files", message });
        }
        self.files.push(File { path: path.to_owned(), id });
        Ok(())
    }

    fn descend(
        &mut self,
        at: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        path: &[u8],
        seen: &Look,
    ) -> Result<Option<Dir>, HarvestError> {
        let opened = open_readable(at, name, Ok(seen.mode));
        let opened = opened.and_then(|fd| look(fd.as_fd(), c"").map(|now| (fd, now)));
        match opened {
            Ok((fd, now)) if (now.id.dev, now.id.ino) == (seen.id.dev, seen.id.ino) => {
                let dir = Dir::new(fd).map_err(|e| HarvestError::io("read", names::shown(path), e))?;
                return Ok(Some(dir));
            }
            Ok(_) => self.skips.add(path, CHANGED),
            // Not a property of the entry: to leave it out would hide a shortage of the host.
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                return Err(HarvestError::io("open", names::shown(path), e));
            }
            Err(e) => self.skips.add(path, trouble(e)),
        }
        Ok(None)
    }
}

/// Opens a directory; one whose mode keeps its owner out is opened up first. `.` is `at` itself.
fn open_readable(
    at: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    mode: rustix::io::Result<Mode>,
) -> rustix::io::Result<rustix::fd::OwnedFd> {
    let needed = Mode::RUSR | Mode::XUSR;
    if !mode?.contains(needed) {
        // Root may do without; for others the opening tells.
        let _ = if name == c"." { tree::chmod_handle(at, Mode::RWXU) } else { chmod_dir(at, name) };
    }
    tree::open_dir_forced(at, name)
}

fn chmod_dir(at: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<()> {
    let handle = tree::open_handle(at, name)?;
    match look(handle.as_fd(), c"")?.kind {
        FileType::Directory => tree::chmod_handle(handle.as_fd(), Mode::RWXU),
        _ => Err(Errno::NOTDIR),
    }
}

/// Said of an entry that is no longer what was looked at first.
pub(super) const CHANGED: &str = "it changed while it was collected";

/// Why an entry can't be had, in words.
pub(super) fn trouble(error: Errno) -> String {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => CHANGED.into(),
        Errno::XDEV => "another file system is mounted there".into(),
        other => format!("it cannot be opened: {}", std::io::Error::from(other)),
    }
}

/// Why an entry of this kind is not kept.
fn kind_reason(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "it is a symbolic link; links are not followed",
        FileType::Fifo => "it is a FIFO",
        FileType::Socket => "it is a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "it is a device",
        _ => "it is not a regular file",
    }
}
