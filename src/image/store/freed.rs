//! How many bytes removing a tree gives back.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use crate::sandbox::tree::open_dir;

/// Deeper trees are removed all the same; what lies below is not counted.
const MAX_DEPTH: usize = 300;

/// Counts what is about to be removed. A file with several names counts once, with its last one.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Allocated bytes.
    pub bytes: u64,
    /// Names that files have left, by device and inode.
    left: HashMap<(u64, u64), u64>,
}

impl Freed {
    /// Counts `parent/name`, whatever it is; the caller removes it afterwards.
    pub fn add(&mut self, parent: BorrowedFd<'_>, name: &std::ffi::OsStr) {
        use std::os::unix::ffi::OsStrExt;
        if let Ok(name) = std::ffi::CString::new(name.as_bytes()) {
            self.walk(parent, &name, 0);
        }
    }

    fn walk(&mut self, parent: BorrowedFd<'_>, name: &std::ffi::CStr, depth: usize) {
        let Ok(stat) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let names = u64::from(stat.st_nlink as u32).max(1);
            let left = match names {
                1 => 0,
                names => {
                    let left = self.left.entry((stat.st_dev, stat.st_ino)).or_insert(names);
                    *left = left.saturating_sub(1);
                    *left
                }
            };
            self.bytes += if left == 0 { bytes } else { 0 };
            return;
        }
        self.bytes += bytes;
        if depth == MAX_DEPTH {
            return;
        }
        let Ok(dir) = open_dir(parent, name) else { return };
        let Ok(entries) = Dir::read_from(&dir) else { return };
        for entry in entries.flatten() {
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                self.walk(dir.as_fd(), entry.file_name(), depth + 1);
            }
        }
    }
}
