//! The second phase: copies what the first one found, and moves it into place when all of it is there.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, unlinkat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::dest::{Dest, Place, Staging, file_place, split};
use super::walk::{CHANGED, File, look, trouble};
use super::{HarvestError, Produced, Skips, names};
use crate::executor::mime;
use crate::sandbox::tree;

const BUFFER: usize = 128 * 1024;

/// Copies `files` beneath `outputs` to the directory `path`. All or, when an error comes back, none.
pub(super) fn keep(
    outputs: BorrowedFd<'_>,
    files: Vec<File>,
    path: &Path,
    skips: &mut Skips,
) -> Result<Vec<Produced>, HarvestError> {
    let files = without_blocked(files, path, skips)?;
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut dest = Dest::create(path)?;
    let produced = fill(outputs, files, &dest, skips)?;
    if !produced.is_empty() {
        dest.keep();
    }
    Ok(produced)
}

fn fill(
    outputs: BorrowedFd<'_>,
    files: Vec<File>,
    dest: &Dest,
    skips: &mut Skips,
) -> Result<Vec<Produced>, HarvestError> {
    let mut staging = Staging::new(dest).map_err(|e| HarvestError::io("prepare", "temporary names", e))?;
    let mut staged = Vec::new();
    let mut buffer = vec![0; BUFFER];
    for (number, file) in files.into_iter().enumerate() {
        match copy(outputs, &file, &mut staging, number, &mut buffer)? {
            Ok(sha256) => staged.push((number, file, sha256)),
            Err(reason) => skips.add(file.path.as_bytes(), reason),
        }
    }
    let mut placed = Placed { dest, fresh: Vec::new() };
    let mut produced = Vec::new();
    for (number, file, sha256) in staged {
        match placed.place(&mut staging, number, &file.path) {
            Ok(Place::Blocked(reason)) => skips.add(file.path.as_bytes(), reason),
            Ok(_) => produced.push(describe(file, sha256)),
            Err(e) => {
                return Err(HarvestError::io("put in place", names::shown(file.path.as_bytes()), e));
            }
        }
    }
    placed.fresh.clear();
    Ok(produced)
}

/// Leaves out what something at the destination is in the way of, before anything is copied.
fn without_blocked(files: Vec<File>, path: &Path, skips: &mut Skips) -> Result<Vec<File>, HarvestError> {
    let Some(dest) = Dest::open(path)? else {
        return Ok(files);
    };
    let mut kept = Vec::with_capacity(files.len());
    for file in files {
        let (dir, name) = split(&file.path);
        let place = match dest.subdir(dir, false) {
            Ok(Place::There(at)) => file_place(at.as_fd(), name),
            Ok(Place::Free) => Ok(Place::Free),
            Ok(Place::Blocked(reason)) => Ok(Place::Blocked(reason)),
            Err(e) => Err(e),
        };
        match place {
            Ok(Place::Blocked(reason)) => skips.add(file.path.as_bytes(), reason),
            Ok(_) => kept.push(file),
            Err(e) => {
                let object = format!("{} in {path:?}", names::shown(file.path.as_bytes()));
                return Err(HarvestError::io("look for", object, e));
            }
        }
    }
    Ok(kept)
}

/// Copies one file under a temporary name; gives back its hash, or why it is left out.
fn copy(
    outputs: BorrowedFd<'_>,
    file: &File,
    staging: &mut Staging<'_>,
    number: usize,
    buffer: &mut [u8],
) -> Result<Result<String, String>, HarvestError> {
    let name = || names::shown(file.path.as_bytes());
    let source = match open_source(outputs, file) {
        Ok(Ok(source)) => source,
        Ok(Err(reason)) => return Ok(Err(reason)),
        Err(e) => return Err(HarvestError::io("open", name(), e)),
    };
    let target = staging.create(number).map_err(|e| HarvestError::io("create a copy of", name(), e))?;
    let (mut source, mut target) = (fs::File::from(source), fs::File::from(target));
    let mut hash = Sha256::new();
    let mut left = file.id.size;
    while left > 0 {
        // Never more than was counted, however much there is by now.
        let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let got = match source.read(&mut buffer[..want]) {
            Ok(0) => break,
            Ok(got) => got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(HarvestError::io("read", name(), e)),
        };
        hash.update(&buffer[..got]);
        target.write_all(&buffer[..got]).map_err(|e| HarvestError::io("write a copy of", name(), e))?;
        left -= got as u64;
    }
    if left > 0 || !look(source.as_fd(), c"").is_ok_and(|now| now.id == file.id) {
        return Ok(Err(CHANGED.into()));
    }
    Ok(Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Opens the very file that the first phase saw: first a handle, which has no effect on whatever it is (a FIFO would block, a
/// device could act), then, when it is known to be the same regular file, through that handle for reading.
fn open_source(outputs: BorrowedFd<'_>, file: &File) -> Result<Result<rustix::fd::OwnedFd, String>, Errno> {
    let shortage = |e| matches!(e, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
    let handle = match tree::open_handle(outputs, &*file.path) {
        Ok(handle) => handle,
        Err(e) if shortage(e) => return Err(e),
        Err(e) => return Ok(Err(trouble(e))),
    };
    let now = look(handle.as_fd(), c"")?;
    if now.kind != FileType::RegularFile || now.id != file.id {
        return Ok(Err(CHANGED.into()));
    }
    if !now.mode.contains(Mode::RUSR) {
        // Root may do without; for others the opening tells.
        let _ = tree::chmod_handle(handle.as_fd(), Mode::RUSR | Mode::WUSR);
    }
    match tree::read_handle(handle.as_fd()) {
        Ok(source) => Ok(Ok(source)),
        Err(Errno::ACCESS | Errno::PERM) => Ok(Err(trouble(Errno::ACCESS))),
        Err(e) => Err(e),
    }
}

/// Files that are in place. Those that nothing was replaced by go again, unless `fresh` is cleared before this is dropped.
struct Placed<'a> {
    dest: &'a Dest,
    fresh: Vec<String>,
}

impl Placed<'_> {
    fn place(
        &mut self,
        staging: &mut Staging<'_>,
        number: usize,
        path: &str,
    ) -> rustix::io::Result<Place<()>> {
        let (dir, name) = split(path);
        let at = match self.dest.subdir(dir, true)? {
            Place::There(at) => at,
            Place::Blocked(reason) => return Ok(Place::Blocked(reason)),
            Place::Free => return Err(Errno::NOENT),
        };
        let place = file_place(at.as_fd(), name)?;
        if !matches!(place, Place::Blocked(_)) {
            staging.place(number, at.as_fd(), name)?;
        }
        if matches!(place, Place::Free) {
            self.fresh.push(path.to_owned());
        }
        Ok(place)
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        for path in &self.fresh {
            let (dir, name) = split(path);
            if let Ok(Place::There(at)) = self.dest.subdir(dir, false) {
                let _ = unlinkat(&at, name, AtFlags::empty());
            }
        }
    }
}

fn describe(file: File, sha256: String) -> Produced {
    let name = split(&file.path).1.to_owned();
    let mime_type = mime::by_name(&name);
    Produced { name, path: file.path, size: file.id.size, sha256, mime_type }
}
