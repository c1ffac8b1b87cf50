//! What becomes of each entry.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::os::fd::OwnedFd;

use rustix::fs::{ftruncate, futimens};
use rustix::io::{Errno, pwrite};

use super::archive::{Archive, Entry, Kind};
use super::error::{Fault, Rule};
use super::notes::{Left, Notes};
use super::path::{clean, split};
use super::target::{Target, set_mode, times};
use super::{LayerRecord, Limits, PathBytes, modes};
use crate::image::skeleton::OWN_MOUNTS;

/// The longest target of a symbolic link.
const MAX_SYMLINK: usize = 4095;

/// Marks of a whiteout, and of AUFS's own files; the last one makes a directory opaque.
const WHITEOUT: &[u8] = b".wh.";
const AUFS: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// One layer on its way into a directory.
pub(super) struct Extract<'a> {
    target: Target,
    limits: &'a Limits,
    entries: u64,
    bytes: u64,
    whiteouts: BTreeSet<Vec<u8>>,
    opaque: BTreeSet<Vec<u8>>,
    notes: Notes,
}

impl<'a> Extract<'a> {
    pub fn new(target: Target, limits: &'a Limits) -> Self {
        let (whiteouts, opaque) = Default::default();
        Extract { target, limits, entries: 0, bytes: 0, whiteouts, opaque, notes: Notes::default() }
    }

    /// Unpacks the archive to its end. On an error the archive tells which entry it is about.
    pub fn all<R: BufRead>(mut self, archive: &mut Archive<R>) -> Result<LayerRecord, Fault> {
        while let Some(entry) = archive.next()? {
            self.entries += 1;
            if self.entries > self.limits.entries {
                let reason = format!("the layer has more than {} entries", self.limits.entries);
                return Fault::refused(Rule::Limit, reason);
            }
            self.entry(&entry, archive)?;
        }
        for path in &self.whiteouts {
            archive.about(path);
            self.target.check_whiteout(path)?;
        }
        let implied = self.target.finish().map_err(|(path, fault)| {
            archive.about(&path);
            fault
        })?;
        Ok(LayerRecord {
            whiteouts: PathBytes::sorted(self.whiteouts),
            opaque: PathBytes::sorted(self.opaque),
            implied,
            entries: self.entries,
            bytes: self.bytes,
            dropped: self.notes.lines(),
        })
    }

    fn entry<R: BufRead>(&mut self, entry: &Entry, archive: &mut Archive<R>) -> Result<(), Fault> {
        let path = clean(&entry.name, "its name")?.path;
        if self.special_name(entry, path)? {
            return Ok(());
        }
        self.attributes(entry)?;
        match entry.kind {
            Kind::File => self.file(entry, path, archive),
            Kind::Directory => {
                let mode = self.mode(entry, true);
                self.target.directory(path, mode, entry.mtime)
            }
            _ if path.is_empty() => Fault::refused(Rule::Kind, "it is the layer's root, and no directory"),
            Kind::Symlink => {
                if entry.link.len() > MAX_SYMLINK || entry.link.contains(&0) {
                    return Fault::refused(Rule::Link, "its target is longer than 4095 bytes or has a NUL");
                }
                self.target.symlink(path, &entry.link, entry.mtime)
            }
            Kind::HardLink => self.hard_link(entry, path),
            Kind::CharDevice | Kind::BlockDevice => self.leave_out(("a device node", "device nodes"), path),
            Kind::Fifo => self.leave_out(("a FIFO", "FIFOs"), path),
            Kind::Other(_) => {
                self.leave_out(("an entry of an unknown type", "entries of unknown types"), path)
            }
        }
    }

    /// Whether the name means something else than a file: a whiteout, or AUFS's book-keeping.
    fn special_name(&mut self, entry: &Entry, path: &[u8]) -> Result<bool, Fault> {
        let (parent, name) = split(path);
        let refuse = |reason| Fault::refused(Rule::Whiteout, reason);
        if path.split(|&b| b == b'/').any(|part| part.starts_with(AUFS) && part != OPAQUE) {
            self.notes.entry(("a file of AUFS", "files of AUFS"), path);
            return Ok(true);
        }
        if parent.split(|&b| b == b'/').any(|part| part.starts_with(WHITEOUT)) {
            return refuse("it lies beneath a whiteout");
        }
        let Some(hidden) = name.strip_prefix(WHITEOUT) else {
            return Ok(false);
        };
        if entry.kind != Kind::File {
            return refuse("it is named like a whiteout, and is no regular file");
        }
        if name == OPAQUE {
            if !self.opaque.contains(parent) {
                self.target.keep(parent)?;
                self.opaque.insert(parent.to_vec());
            }
            // An opaque directory is one of this layer.
            self.target.dir(parent)?;
            return Ok(true);
        }
        // Joined to the parent these would be the parent itself, or its own parent.
        if matches!(hidden, b"" | b"." | b"..") {
            return refuse("it is a whiteout of \"\", \".\" or \"..\"");
        }
        let mut hides = parent.to_vec();
        if !parent.is_empty() {
            hides.push(b'/');
        }
        hides.extend_from_slice(hidden);
        if !self.whiteouts.contains(&hides) {
            self.target.keep(&hides)?;
            self.whiteouts.insert(hides);
        }
        Ok(true)
    }

    /// None is kept. Those of overlayfs would make the store's own overlay mounts show something else (CVE-2021-3493,
    /// CVE-2023-2640 and CVE-2023-32629 are of that kind).
    fn attributes(&mut self, entry: &Entry) -> Result<(), Fault> {
        for name in &entry.attributes {
            if name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.") {
                return Fault::refused(Rule::Attribute, "it has an extended attribute of overlayfs");
            }
            self.notes.attribute(name);
        }
        Ok(())
    }

    fn mode(&mut self, entry: &Entry, directory: bool) -> u32 {
        let mode = modes::stored(entry.mode, entry.uid, entry.gid, directory);
        self.notes.setuid += u64::from(mode.setuid);
        self.notes.setgid += u64::from(mode.setgid);
        mode.bits
    }

    fn file<R: BufRead>(
        &mut self,
        entry: &Entry,
        path: &[u8],
        archive: &mut Archive<R>,
    ) -> Result<(), Fault> {
        if path.is_empty() {
            return Fault::refused(Rule::Kind, "it is the layer's root, and no directory");
        }
        self.bytes = self.bytes.saturating_add(entry.size());
        if self.bytes > self.limits.bytes {
            let reason = format!("with it the layer's files have more than {} bytes", self.limits.bytes);
            return Fault::refused(Rule::Limit, reason);
        }
        let mode = self.mode(entry, false);
        let file = self.target.file(path)?;
        match &entry.sparse {
            None => copy(archive, &file, 0, entry.stored)?,
            Some(sparse) => {
                for &(offset, length) in &sparse.pieces {
                    copy(archive, &file, offset, length)?;
                }
                ftruncate(&file, sparse.size).map_err(Fault::os("write"))?;
            }
        }
        set_mode(&file, mode)?;
        futimens(&file, &times(entry.mtime)).map_err(Fault::os("set the time of"))
    }

    fn hard_link(&mut self, entry: &Entry, path: &[u8]) -> Result<(), Fault> {
        let target = clean(&entry.link, "the target of the hard link")?;
        if target.slash || target.path.is_empty() {
            return Fault::refused(Rule::Link, "it is a hard link to a directory");
        }
        self.target.hard_link(path, target.path)
    }

    /// Beneath a mount point of creel's own nothing of an image is seen anyway, and many images have a few devices there.
    fn leave_out(&mut self, kind: Left, path: &[u8]) -> Result<(), Fault> {
        let hidden = OWN_MOUNTS.iter().any(|mount| {
            path.strip_prefix(&mount.as_bytes()[1..]).is_some_and(|rest| rest.starts_with(b"/"))
        });
        if !hidden {
            return Fault::refused(
                Rule::Kind,
                format!("it is {}; a layer may have one only beneath {}", kind.0, OWN_MOUNTS.join(", ")),
            );
        }
        self.notes.entry(kind, path);
        Ok(())
    }
}

/// Writes the next `length` bytes of the entry at `offset`.
fn copy<R: BufRead>(
    archive: &mut Archive<R>,
    file: &OwnedFd,
    mut offset: u64,
    mut length: u64,
) -> Result<(), Fault> {
    while length > 0 {
        let bytes = archive.content()?;
        let n = usize::try_from(length).map_or(bytes.len(), |length| bytes.len().min(length));
        let written = match pwrite(file, &bytes[..n], offset) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(Fault::Os("write", Errno::IO)),
            result => result.map_err(Fault::os("write"))?,
        };
        archive.used(written);
        offset += written as u64;
        length -= written as u64;
    }
    Ok(())
}
