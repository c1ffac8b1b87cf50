//! Adding up what a tree uses, while whoever fills it is alive.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fchmod, fstat, openat2, statx,
};
use rustix::io::Errno;

use super::remove::is_dots;
use super::{chmod_handle, open_dir, open_handle};

/// So many directories of one branch are kept open at most; above them the way back is `..`, checked.
const WINDOW: usize = 16;

/// So many files with several names are remembered; with more, each name counts.
const MAX_LINKED: usize = 1 << 16;

/// Where [`usage`] stops: as soon as one of these is passed.
#[derive(Debug, Clone, Copy)]
pub struct UsageBound {
    /// Allocated bytes.
    pub bytes: u64,
    /// Files, directories and anything else with a name.
    pub entries: u64,
}

/// What a tree uses. When it was not `complete` these are lower bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Allocated on disk (`st_blocks`): a sparse file counts what it occupies, a directory too.
    pub bytes: u64,
    /// Names, without the top directory's own.
    pub entries: u64,
    /// False if a bound was passed, or some part could not be looked at.
    pub complete: bool,
}

impl Usage {
    /// Whether the tree is over `bound`.
    pub fn exceeds(&self, bound: &UsageBound) -> bool {
        self.bytes > bound.bytes || self.entries > bound.entries
    }
}

/// Adds up what the tree under `dir` uses, with work limited by `bound`.
///
/// Made to watch a live sandbox: entries may vanish, change into links or move while it walks. Links are never followed, no
/// mount is crossed, a chain of 100,000 directories costs 16 descriptors and a few megabytes. A file with two names counts
/// once. A directory that its owner can't look into (mode 000) is opened up for a moment: nothing hides from a watcher that
/// isn't root.
///
/// It can be deceived: a program that moves things out of the way in time, or keeps a file open that has no name any more,
/// uses more than this sees. A quota or a sized tmpfs can't be deceived; this is for where neither is to be had.
pub fn usage(dir: BorrowedFd<'_>, bound: &UsageBound) -> Usage {
    let mut walk = Walk {
        total: Usage { bytes: 0, entries: 0, complete: true },
        linked: HashSet::new(),
        looks: 0,
        max_looks: bound.entries.saturating_mul(2).saturating_add(1000),
    };
    match open_dir(dir, c".").or_else(|_| open_closed(dir, c".")).and_then(Dir::new) {
        Ok(top) => {
            if let Ok(stat) = top.stat() {
                walk.total.bytes = blocks(stat.st_blocks.try_into().unwrap_or(0));
            }
            walk.run(top, bound);
        }
        Err(_) => walk.total.complete = false,
    }
    walk.total
}

/// A directory on the way from the top to where the walk is.
struct Level {
    /// None for those far up: closed, to be found again through `..`.
    dir: Option<Dir>,
    /// Device and inode, known once it is closed.
    id: (u64, u64),
    /// Where to go on reading it.
    cookie: i64,
}

struct Walk {
    total: Usage,
    linked: HashSet<(u64, u64)>,
    /// Entries looked at, those that vanished included.
    looks: u64,
    max_looks: u64,
}

impl Walk {
    fn run(&mut self, top: Dir, bound: &UsageBound) {
        let mut levels = vec![Level { dir: Some(top), id: (0, 0), cookie: 0 }];
        while let Some(level) = levels.last_mut() {
            // The last level is always open: only those far above it are closed.
            let Some(dir) = level.dir.as_mut() else { break };
            match dir.read() {
                Some(Ok(entry)) if is_dots(entry.file_name()) => {}
                Some(Ok(entry)) => {
                    level.cookie = entry.offset();
                    let Ok(at) = dir.fd() else { break };
                    let below = self.look(at, entry.file_name());
                    if self.total.exceeds(bound) || self.looks > self.max_looks {
                        self.total.complete = false;
                        return;
                    }
                    if let Some(below) = below {
                        levels.push(Level { dir: Some(below), id: (0, 0), cookie: 0 });
                        close_far(&mut levels);
                    }
                }
                ended => {
                    self.total.complete &= ended.is_none();
                    let left = levels.pop().and_then(|l| l.dir);
                    if let (Some(level), Some(left)) = (levels.last_mut(), left)
                        && level.dir.is_none()
                        && !reopen(level, &left)
                    {
                        // Moved meanwhile. The rest of this branch can't be found from here.
                        self.total.complete = false;
                        return;
                    }
                }
            }
        }
    }

    /// Counts one entry; gives back the directory to go down into.
    fn look(&mut self, at: BorrowedFd<'_>, name: &CStr) -> Option<Dir> {
        self.looks += 1;
        let seen = match self.try_look(at, name) {
            Err(Errno::ACCESS) => with_search(at, || self.try_look(at, name)),
            other => other,
        };
        match seen {
            Ok(below) => below,
            // Vanished, swapped for a link, or a mount, which is not part of this tree.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => None,
            Err(_) => {
                self.total.complete = false;
                None
            }
        }
    }

    fn try_look(&mut self, at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Option<Dir>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let want =
            StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::BLOCKS | StatxFlags::NLINK;
        let stat = statx(at, name, flags, want)?;
        self.total.entries += 1;
        let is_dir = FileType::from_raw_mode(stat.stx_mode.into()).is_dir();
        let id = (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino);
        if is_dir || stat.stx_nlink == 1 || self.linked.len() >= MAX_LINKED || self.linked.insert(id) {
            self.total.bytes = self.total.bytes.saturating_add(blocks(stat.stx_blocks));
        }
        if !is_dir {
            return Ok(None);
        }
        let opened = match open_dir(at, name) {
            Err(Errno::ACCESS) => open_closed(at, name)?,
            other => other?,
        };
        Dir::new(opened).map(Some)
    }
}

fn blocks(count: u64) -> u64 {
    count.saturating_mul(512)
}

/// Opens a directory whose mode keeps its owner out, and leaves the mode as it was.
fn open_closed(at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let opened = open_handle(at, name);
    let handle = match &opened {
        Ok(handle) => handle.as_fd(),
        // Without the right to search it, even the top's own name in it is out of reach.
        Err(Errno::ACCESS) if name == c"." => at,
        Err(e) => return Err(*e),
    };
    let stat = fstat(handle)?;
    if !FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(Errno::NOTDIR);
    }
    let before = Mode::from_raw_mode(stat.st_mode);
    chmod_handle(handle, before | Mode::RUSR | Mode::XUSR)?;
    let opened = open_dir(handle, c".");
    let _ = chmod_handle(handle, before);
    opened
}

/// Does `step` while the owner of `at` may search it, and leaves the mode as it was.
fn with_search<T>(at: BorrowedFd<'_>, step: impl FnOnce() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let before = Mode::from_raw_mode(fstat(at)?.st_mode);
    fchmod(at, before | Mode::RUSR | Mode::XUSR)?;
    let result = step();
    let _ = fchmod(at, before);
    result
}

/// Closes the directory that is `WINDOW` levels above the last one.
fn close_far(levels: &mut [Level]) {
    let Some(far) = levels.len().checked_sub(WINDOW + 1) else {
        return;
    };
    let level = &mut levels[far];
    if let Some(stat) = level.dir.take().and_then(|d| d.stat().ok()) {
        level.id = (stat.st_dev, stat.st_ino);
    }
}

/// Finds `level` again as the parent of `below`. Whoever lives in the tree may have moved `below`, even so that its `..`
/// lies outside (CVE-2015-2925 is of that class): only the very directory that was left is taken.
fn reopen(level: &mut Level, below: &Dir) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = below.fd().and_then(|fd| openat2(fd, c"..", flags, Mode::empty(), resolve));
    let Ok(mut dir) = opened.and_then(Dir::new) else {
        return false;
    };
    if !dir.stat().is_ok_and(|s| (s.st_dev, s.st_ino) == level.id) || dir.seek(level.cookie).is_err() {
        return false;
    }
    level.dir = Some(dir);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_up_leads_only_to_where_it_came_from() {
        let t = tempfile::tempdir().unwrap();
        let (left, below) = (t.path().join("a/left"), t.path().join("a/left/below"));
        std::fs::create_dir_all(&below).unwrap();
        let open = |path| Dir::new(open_dir_any(path)).unwrap();
        let stat = open(&left).stat().unwrap();
        let mut level = Level { dir: None, id: (stat.st_dev, stat.st_ino), cookie: 0 };
        let below_dir = open(&below);
        assert!(reopen(&mut level, &below_dir));
        // Moved out by whoever lives there: its `..` is now a directory above the tree.
        level.dir = None;
        std::fs::rename(&below, t.path().join("below")).unwrap();
        assert!(!reopen(&mut level, &below_dir) && level.dir.is_none());
    }

    fn open_dir_any(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }
}
