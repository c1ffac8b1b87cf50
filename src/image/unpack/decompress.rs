//! gzip, zstd or neither, found by the first bytes.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

use super::Limits;

/// Bytes read from the source at once.
const BUFFER: usize = 128 << 10;

/// The largest window of a zstd frame, as a power of two: 64 MiB, eight times what RFC 8878 (3.1.1.1.2) wants every decoder to take, so that no
/// layer needs 100 MB of memory. Only `zstd --long` and `--ultra -22` write more; a frame with less takes its window's size, not this.
const ZSTD_WINDOW_LOG: u32 = 26;

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn name(self) -> &'static str {
        match self {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

/// What is wrong with a stream. It comes inside an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("the {format} stream is cut: fetch or copy the layer once more")]
    Truncated { format: &'static str },

    #[error("the {format} stream is damaged: {reason}")]
    Corrupt { format: &'static str, reason: String },

    #[error("the {format} stream is followed by something else")]
    Trailing { format: &'static str },

    #[error("the stream unpacks to more than {ratio} times its size: that is a decompression bomb")]
    Ratio { ratio: u64 },

    #[error("the stream unpacks to more than the limit of {bytes} bytes")]
    Bytes { bytes: u64 },
}

impl StreamError {
    /// The error of this type in `error`.
    pub fn of(error: &io::Error) -> Option<StreamError> {
        error.get_ref()?.downcast_ref::<StreamError>().cloned()
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> io::Error {
        let kind = match error {
            StreamError::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

/// Reads `stream` decompressed: all members of a gzip stream (zeros may follow), all frames of a zstd stream (skippable ones
/// are skipped), or the bytes as they are.
///
/// Reading fails with a [`StreamError`] in the [`io::Error`] where the stream is cut, damaged, followed by something else, or
/// unpacks to more than [`Limits::ratio`] times its size ([`Decompressed::with_ratio`] changes that); with the
/// stream's own error where that can't be read.
///
/// # Errors
/// The stream's own, while its first bytes are read.
pub fn decompress<R: Read>(stream: R) -> io::Result<Decompressed<R>> {
    let mut source = Source::new(stream);
    let magic = source.peek(4)?;
    let inner = match magic {
        [0x1f, 0x8b, ..] => Inner::Gzip(Box::new(GzDecoder::new(Slot(Some(source))))),
        // A frame, or a skippable one in front of it.
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Inner::Zstd(decoder)
        }
        _ => Inner::Plain(source),
    };
    Ok(Decompressed { inner, written: 0, ratio: Limits::default().ratio, ended: false })
}

/// A stream, decompressed while it is read. Made by [`decompress`].
pub struct Decompressed<R: Read> {
    inner: Inner<R>,
    written: u64,
    ratio: u64,
    ended: bool,
}

enum Inner<R: Read> {
    Plain(Source<R>),
    Gzip(Box<GzDecoder<Slot<R>>>),
    Zstd(zstd::stream::read::Decoder<'static, Source<R>>),
}

impl<R: Read> Decompressed<R> {
    /// Refuses more than `ratio` times the compressed size, beyond [`Limits::RATIO_FREE`].
    pub fn with_ratio(mut self, ratio: u64) -> Self {
        self.ratio = ratio;
        self
    }

    /// What the first bytes said.
    pub fn compression(&self) -> Compression {
        match &self.inner {
            Inner::Plain(_) => Compression::None,
            Inner::Gzip(_) => Compression::Gzip,
            Inner::Zstd(_) => Compression::Zstd,
        }
    }

    /// Compressed bytes used so far.
    pub fn consumed(&self) -> u64 {
        self.source().map_or(0, |s| s.consumed)
    }

    fn source(&self) -> Option<&Source<R>> {
        match &self.inner {
            Inner::Plain(source) => Some(source),
            Inner::Gzip(decoder) => decoder.get_ref().0.as_ref(),
            Inner::Zstd(decoder) => Some(decoder.get_ref()),
        }
    }

    /// Tells a damaged stream from one that can't be read.
    fn explain(&self, error: io::Error) -> io::Error {
        if self.source().is_none_or(|s| s.failed) || StreamError::of(&error).is_some() {
            return error;
        }
        let format = self.compression().name();
        match error.kind() {
            io::ErrorKind::Interrupted => error,
            io::ErrorKind::UnexpectedEof => StreamError::Truncated { format }.into(),
            _ => StreamError::Corrupt { format, reason: error.to_string() }.into(),
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() || self.ended {
            return Ok(0);
        }
        let result = match &mut self.inner {
            Inner::Plain(source) => return source.read(buf),
            Inner::Gzip(decoder) => read_members(decoder, buf),
            Inner::Zstd(decoder) => decoder.read(buf),
        };
        let n = result.map_err(|e| self.explain(e))?;
        self.ended = n == 0;
        self.written += n as u64;
        if self.written > Limits::RATIO_FREE && self.written / self.ratio.max(1) > self.consumed() {
            return Err(StreamError::Ratio { ratio: self.ratio }.into());
        }
        Ok(n)
    }
}

/// Reads on through the members. flate2's own reader of many would take zeros behind the last one for a damaged member.
fn read_members<R: Read>(decoder: &mut GzDecoder<Slot<R>>, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        let n = decoder.read(buf)?;
        if n > 0 {
            return Ok(n);
        }
        let Some(source) = decoder.get_mut().0.as_mut() else { return Ok(0) };
        match source.peek(2)? {
            [] => return Ok(0),
            [0x1f, 0x8b] => {
                let next = Slot(decoder.get_mut().0.take());
                // The decoder's memory is used again: a stream may be millions of tiny members.
                decoder.reset(next);
            }
            _ => {
                source.only_zeros()?;
                return Ok(0);
            }
        }
    }
}

/// Holds the source; empty only for the moment between two members.
struct Slot<R>(Option<Source<R>>);

impl<R: Read> Read for Slot<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(0), |s| s.read(buf))
    }
}

impl<R: Read> BufRead for Slot<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.as_mut().map_or(Ok(&[]), |s| s.fill_buf())
    }

    fn consume(&mut self, n: usize) {
        if let Some(source) = &mut self.0 {
            source.consume(n);
        }
    }
}

/// A buffered reader that can look ahead, counts what was used, and knows whether reading itself failed.
struct Source<R> {
    inner: R,
    buf: Box<[u8]>,
    at: usize,
    end: usize,
    consumed: u64,
    failed: bool,
}

impl<R: Read> Source<R> {
    fn new(inner: R) -> Source<R> {
        let buf = vec![0; BUFFER].into_boxed_slice();
        Source { inner, buf, at: 0, end: 0, consumed: 0, failed: false }
    }

    fn read_inner(&mut self, from: usize) -> io::Result<usize> {
        loop {
            match self.inner.read(&mut self.buf[from..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.failed = true;
                    return Err(e);
                }
                Ok(n) => return Ok(n),
            }
        }
    }

    /// The next `n` bytes, or fewer at the end, without using them. `n` is small.
    fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.end - self.at < n {
            self.buf.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
            while self.end < n {
                match self.read_inner(self.end)? {
                    0 => break,
                    more => self.end += more,
                }
            }
        }
        Ok(&self.buf[self.at..self.end.min(self.at + n)])
    }

    /// Reads to the end, where all must be zero.
    fn only_zeros(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.fill_buf()?;
            if bytes.iter().any(|&b| b != 0) {
                return Err(StreamError::Trailing { format: "gzip" }.into());
            }
            match bytes.len() {
                0 => return Ok(()),
                n => self.consume(n),
            }
        }
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.end && buf.len() >= BUFFER {
            // Nothing to gain from a copy.
            loop {
                match self.inner.read(buf) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => {
                        self.failed = true;
                        return Err(e);
                    }
                    Ok(n) => {
                        self.consumed += n as u64;
                        return Ok(n);
                    }
                }
            }
        }
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl<R: Read> BufRead for Source<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.end {
            self.at = 0;
            self.end = 0;
            self.end = self.read_inner(0)?;
        }
        Ok(&self.buf[self.at..self.end])
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
        self.consumed += n as u64;
    }
}

#[cfg(test)]
#[path = "decompress_tests.rs"]
mod tests;
