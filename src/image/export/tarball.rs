//! A layout as a tar.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use tar_core::{EntryBuilder, EntryType};

use super::checked::Checked;
use super::{Contents, ExportError, OCI_LAYOUT, index_of};
use crate::image::store::Work;
use crate::image::store::unfinished::Unfinished;

pub(super) fn to_stdout(work: &Work<'_>, contents: &Contents) -> Result<(), ExportError> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(ExportError::Terminal);
    }
    let mut out = BufWriter::with_capacity(256 << 10, stdout.lock());
    write(work, contents, &mut out, |source| ExportError::Stdout { source })?;
    out.flush().map_err(|source| ExportError::Stdout { source })
}

/// Written beside its place, on the disk before it gets its name.
pub(super) fn to_file(work: &Work<'_>, contents: &Contents, dest: &Path) -> Result<(), ExportError> {
    let failed = ExportError::io("write", dest);
    if dest.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let mut name = OsString::from(".");
    name.push(dest.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let tmp = dest.with_file_name(name);
    let _unfinished = Unfinished::new(&tmp);
    let result = (|| {
        let file = File::create(&tmp).map_err(&failed)?;
        let mut out = BufWriter::with_capacity(256 << 10, file);
        write(work, contents, &mut out, &failed)?;
        let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(&failed)?;
        fs::rename(&tmp, dest).map_err(&failed)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&tmp);
    }
    result
}

fn write(
    work: &Work<'_>,
    contents: &Contents,
    out: &mut impl Write,
    failed: impl Fn(io::Error) -> ExportError,
) -> Result<(), ExportError> {
    let small = |out: &mut dyn Write, name: &str, content: &[u8]| {
        out.write_all(&header(name, EntryType::Regular, content.len() as u64)?)?;
        out.write_all(content)?;
        pad(out, content.len() as u64)
    };
    small(out, "oci-layout", OCI_LAYOUT).map_err(&failed)?;
    small(out, "index.json", &index_of(vec![contents.entry.clone()])).map_err(&failed)?;
    for dir in ["blobs/", "blobs/sha256/"] {
        header(dir, EntryType::Directory, 0).and_then(|h| out.write_all(&h)).map_err(&failed)?;
    }
    let mut buffer = vec![0; 256 << 10];
    for blob in &contents.blobs {
        let mut checked = Checked::open(work, &contents.image, blob)?;
        let name = format!("blobs/sha256/{}", blob.digest.hex());
        header(&name, EntryType::Regular, blob.size).and_then(|h| out.write_all(&h)).map_err(&failed)?;
        // Exactly the size that the header has, or an error.
        loop {
            match checked.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => out.write_all(&buffer[..n]).map_err(&failed)?,
                Err(source) => return Err(checked.blame(checked.unreadable(source))),
            }
        }
        pad(out, blob.size).map_err(&failed)?;
    }
    out.write_all(&[0; 1024]).map_err(&failed)
}

/// The header of an entry: no owner's name and no time, so that the same image gives the same tar.
fn header(name: &str, kind: EntryType, size: u64) -> io::Result<Vec<u8>> {
    let mut builder = EntryBuilder::new_ustar();
    let mode = if kind == EntryType::Directory { 0o755 } else { 0o644 };
    builder.path(name).entry_type(kind);
    let fields = |b: &mut EntryBuilder| {
        b.mode(mode)?.uid(0)?.gid(0)?.mtime(0)?.size(size)?;
        Ok(())
    };
    fields(&mut builder).map_err(|e: tar_core::HeaderError| io::Error::other(e.to_string()))?;
    Ok(builder.finish_bytes())
}

fn pad(out: &mut dyn Write, size: u64) -> io::Result<()> {
    let rest = (512 - size % 512) % 512;
    // Less than a block.
    out.write_all(&[0; 512][..rest as usize])
}
