//! Removing a tree, however it was made.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, IFlags, Mode, fchmod, ioctl_getflags, ioctl_setflags, renameat, unlinkat,
};
use rustix::io::Errno;

use super::{chmod_handle, open_dir, open_dir_forced, open_handle, read_handle};

/// So many levels are emptied in place, with a descriptor open for each; what lies deeper is moved to the top first.
const MAX_OPEN: u32 = 16;

/// How often directories that can't be flattened into the one above (btrfs subvolumes) may lie in each other.
const MAX_NESTED_TOPS: u32 = 4;

/// Removes `parent/name`, whatever it is, with everything in it. That it isn't there is no error.
///
/// A directory that lies deep and is not empty is renamed into the topmost one first, then emptied there. So no depth is
/// too deep: recursion has a bound, there is no path, no way up through `..`, and few descriptors are open.
/// Symbolic links are removed, not followed, also if one takes a directory's place meanwhile (CVE-2022-21658); what is
/// mounted in the tree is left alone and reported. Modes, and with the capability also immutable and append-only flags,
/// are changed where they are in the way.
///
/// `name` is one component. An entry that can't be removed doesn't stop the rest; the first such error is returned at
/// the end and names the entry.
pub fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        let text = format!("cannot remove {name:?}: it is not the name of an entry");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let name = CString::new(bytes)?;
    let mut remover = Remover::new()?;
    // The parent is not ours: its mode is not touched.
    if remover.unlink(parent, &name, false) == Gone::Directory {
        match open_dir_forced(parent, name.as_c_str()) {
            Ok(top) => {
                remover.empty(top, 0);
                remover.rmdir(parent, &name, false);
            }
            Err(Errno::NOENT) => {}
            Err(e) => remover.note(e, "open", &name),
        }
    }
    remover.first.map_or(Ok(()), Err)
}

/// What became of an entry.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Gone {
    Yes,
    /// It is a directory, with something in it as far as is known.
    Directory,
    /// Noted as an error.
    Failed,
}

/// The directory into which others are moved.
struct Top<'a> {
    fd: BorrowedFd<'a>,
    /// Serial numbers of those that are not emptied yet: short, unlike their names were.
    moved: &'a mut Vec<u64>,
    /// How many tops it lies in itself.
    nested: u32,
}

struct Remover {
    first: Option<io::Error>,
    /// Begins the names of directories that were moved to the top; random, so that nothing in the tree has such a name.
    prefix: String,
    serial: u64,
}

impl Remover {
    fn new() -> io::Result<Self> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let prefix = format!(".creel-rm-{:016x}-", u64::from_ne_bytes(random));
        Ok(Remover { first: None, prefix, serial: 0 })
    }

    fn note(&mut self, error: Errno, action: &str, name: &CStr) {
        if self.first.is_none() {
            let error = io::Error::from(error);
            let text = format!("cannot {action} {:?}: {error}", OsStr::from_bytes(name.to_bytes()));
            self.first = Some(io::Error::new(error.kind(), text));
        }
    }

    fn moved_name(&self, serial: u64) -> CString {
        // A hexadecimal prefix and a number hold no NUL.
        CString::new(format!("{}{serial}", self.prefix)).unwrap_or_default()
    }

    /// Empties the directory `top`.
    fn empty(&mut self, top: OwnedFd, nested: u32) {
        let Some(mut entries) = self.reader(top) else {
            return;
        };
        let mut moved = Vec::new();
        loop {
            let mut progress = false;
            while let Some(Ok(entry)) = entries.read() {
                let name = entry.file_name();
                if is_dots(name) || name.to_bytes().starts_with(self.prefix.as_bytes()) {
                    continue;
                }
                let Ok(fd) = entries.fd() else { return };
                let mut top = Top { fd, moved: &mut moved, nested };
                progress |= match self.remove_entry(fd, name, entry.file_type()) {
                    Gone::Yes => true,
                    Gone::Failed => false,
                    Gone::Directory => self.take_apart(&mut top, fd, name, 1),
                };
                while let Some(serial) = top.moved.pop() {
                    progress |= self.take_apart(&mut top, fd, &self.moved_name(serial), 1);
                }
            }
            // On some file systems, reading a directory that shrinks passes entries over: until a pass finds nothing to do.
            if !progress {
                return;
            }
            entries.rewind();
        }
    }

    /// Empties and removes the directory `parent/name`, `level` levels below `top`. Whether anything was done.
    fn take_apart(&mut self, top: &mut Top<'_>, parent: BorrowedFd<'_>, name: &CStr, level: u32) -> bool {
        let dir = match open_dir_forced(parent, name) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return true,
            Err(e) => {
                self.note(e, "open", name);
                return false;
            }
        };
        let Some(mut entries) = self.reader(dir) else {
            return false;
        };
        let mut any = false;
        loop {
            let mut progress = false;
            while let Some(Ok(entry)) = entries.read() {
                let child = entry.file_name();
                if is_dots(child) {
                    continue;
                }
                let Ok(dir) = entries.fd() else { return any };
                progress |= match self.remove_entry(dir, child, entry.file_type()) {
                    Gone::Yes => true,
                    Gone::Failed => false,
                    Gone::Directory if level < MAX_OPEN => self.take_apart(top, dir, child, level + 1),
                    Gone::Directory => self.move_up(top, dir, child),
                };
            }
            any |= progress;
            match coaxed(parent, name, true, || unlinkat(parent, name, AtFlags::REMOVEDIR)) {
                Ok(()) | Err(Errno::NOENT) => return true,
                Err(Errno::NOTEMPTY | Errno::EXIST) if progress => entries.rewind(),
                Err(e) => {
                    self.note(e, "remove", name);
                    return any;
                }
            }
        }
    }

    /// Moves the directory `dir/child` into `top` under a new name. Whether that, or emptying it in place, was done.
    fn move_up(&mut self, top: &mut Top<'_>, dir: BorrowedFd<'_>, child: &CStr) -> bool {
        self.serial += 1;
        let target = self.moved_name(self.serial);
        let result = coaxed(dir, child, true, || renameat(dir, child, top.fd, &target));
        match result {
            Ok(()) => {
                top.moved.push(self.serial);
                true
            }
            Err(Errno::NOENT) => true,
            // Another subvolume (btrfs) or project (quota) on the same file system: that directory is a top of its own.
            Err(Errno::XDEV) if top.nested < MAX_NESTED_TOPS => match open_dir_forced(dir, child) {
                Ok(inner) => {
                    self.empty(inner, top.nested + 1);
                    self.rmdir(dir, child, true)
                }
                Err(e) => {
                    self.note(e, "open", child);
                    false
                }
            },
            Err(e) => {
                self.note(e, "move", child);
                false
            }
        }
    }

    /// Removes anything but a directory with something in it.
    fn remove_entry(&mut self, dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Gone {
        if kind != FileType::Directory {
            return self.unlink(dir, name, true);
        }
        match coaxed(dir, name, true, || unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Ok(()) | Err(Errno::NOENT) => Gone::Yes,
            Err(Errno::NOTEMPTY | Errno::EXIST) => Gone::Directory,
            Err(Errno::NOTDIR) => self.unlink(dir, name, true),
            Err(e) => {
                self.note(e, "remove", name);
                Gone::Failed
            }
        }
    }

    fn unlink(&mut self, dir: BorrowedFd<'_>, name: &CStr, ours: bool) -> Gone {
        match coaxed(dir, name, ours, || unlinkat(dir, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Gone::Yes,
            Err(Errno::ISDIR) => Gone::Directory,
            Err(e) => {
                self.note(e, "remove", name);
                Gone::Failed
            }
        }
    }

    fn rmdir(&mut self, dir: BorrowedFd<'_>, name: &CStr, ours: bool) -> bool {
        match coaxed(dir, name, ours, || unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Ok(()) | Err(Errno::NOENT) => true,
            Err(e) => {
                self.note(e, "remove", name);
                false
            }
        }
    }

    fn reader(&mut self, dir: OwnedFd) -> Option<Dir> {
        Dir::new(dir).map_err(|e| self.note(e, "read", c".")).ok()
    }
}

/// Does `step` on `dir/name`; if a mode or a flag forbids it, lifts that and does it once more. `ours`: `dir` belongs to the tree.
fn coaxed(
    dir: BorrowedFd<'_>,
    name: &CStr,
    ours: bool,
    step: impl Fn() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let error = match step() {
        Err(e @ (Errno::ACCESS | Errno::PERM)) => e,
        other => return other,
    };
    if error == Errno::ACCESS && ours {
        // `dir` is open for reading, not a mere handle.
        let _ = fchmod(dir, Mode::RWXU);
    }
    if error == Errno::PERM && ours {
        clear_flags(dir);
    }
    if let Ok(handle) = open_handle(dir, name) {
        let kind = rustix::fs::fstat(&handle).map(|s| FileType::from_raw_mode(s.st_mode));
        match (kind, error) {
            // To move a directory its own `..` is written.
            (Ok(FileType::Directory), Errno::ACCESS) => {
                let _ = chmod_handle(handle.as_fd(), Mode::RWXU);
            }
            (Ok(FileType::Directory), _) => {
                if let Ok(fd) = open_dir(&handle, c".") {
                    clear_flags(fd.as_fd());
                }
            }
            (Ok(FileType::RegularFile), Errno::PERM) => {
                if let Ok(fd) = read_handle(handle.as_fd()) {
                    clear_flags(fd.as_fd());
                }
            }
            _ => {}
        }
    }
    step()
}

/// Takes the immutable and append-only flags off; needs CAP_LINUX_IMMUTABLE, and a file system that has them.
fn clear_flags(fd: BorrowedFd<'_>) {
    let fixed = IFlags::IMMUTABLE | IFlags::APPEND;
    if let Ok(flags) = ioctl_getflags(fd)
        && flags.intersects(fixed)
    {
        // Failing is found out by the caller, whose second try fails.
        let _ = ioctl_setflags(fd, flags.difference(fixed));
    }
}

pub(super) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
