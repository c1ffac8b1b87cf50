//! Blobs on their way out.

use std::fs::File;
use std::io::{self, Read};

use super::ExportError;
use crate::image::oci::Hasher;
use crate::image::store::{Blob, StoreError, Work};

/// A blob that is read, told of, and compared with its name at its end. A disk that has changed a byte must not be found out by who
/// gets the export.
pub(super) struct Checked<'a, 'w> {
    work: &'a Work<'w>,
    image: &'a str,
    blob: Blob,
    file: File,
    hasher: Option<Hasher>,
    read: u64,
    damaged: bool,
}

impl<'a, 'w> Checked<'a, 'w> {
    /// `image` is its name, for messages.
    pub fn open(work: &'a Work<'w>, image: &'a str, blob: &Blob) -> Result<Checked<'a, 'w>, ExportError> {
        let missing = StoreError::BlobMissing { what: "blob", digest: blob.digest };
        let file = work.blob(&blob.digest)?.ok_or(missing)?;
        let hasher = Some(Hasher::default());
        Ok(Checked { work, image, blob: *blob, file, hasher, read: 0, damaged: false })
    }

    /// Reads it to its end.
    pub fn through(mut self) -> Result<(), ExportError> {
        let copied = io::copy(&mut self, &mut io::sink());
        copied.map(drop).map_err(|source| self.blame(self.unreadable(source)))
    }

    /// The error of an action on what was read: that the blob is damaged, or else `other`.
    pub fn blame(&self, other: ExportError) -> ExportError {
        match self.damaged {
            true => ExportError::Damaged { image: self.image.to_owned(), digest: self.blob.digest },
            false => other,
        }
    }

    pub fn unreadable(&self, source: io::Error) -> ExportError {
        StoreError::Source { what: format!("blob {}", self.blob.digest), source }.into()
    }
}

impl Read for Checked<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let n = self.file.read(buf)?;
        self.read += n as u64;
        self.work.tell_read(n as u64);
        if n > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buf[..n]);
            }
            self.damaged = self.read > self.blob.size;
        } else if let Some(hasher) = self.hasher.take() {
            self.damaged = self.read != self.blob.size || hasher.finish() != self.blob.digest;
        }
        if self.damaged { Err(io::ErrorKind::InvalidData.into()) } else { Ok(n) }
    }
}
