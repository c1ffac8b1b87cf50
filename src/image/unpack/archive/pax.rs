//! PAX extended headers: `LENGTH KEY=VALUE\n`, again and again.

use super::super::error::{Fault, Rule};

/// What the extended header of an entry says, as far as it matters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    /// Seconds and nanoseconds since 1970.
    pub mtime: Option<(u64, u32)>,
    /// `GNU.sparse.` 1.0: the name, and the size with the holes.
    pub sparse_name: Option<Vec<u8>>,
    pub sparse_size: Option<u64>,
    sparse_major: Option<u64>,
    sparse_minor: Option<u64>,
    /// Names of extended attributes (an access control list is one).
    pub attributes: Vec<Vec<u8>>,
}

impl Extended {
    /// Reads the header of one entry.
    ///
    /// A key that changes what is unpacked may be there once only, and not be empty: in POSIX that takes the value back,
    /// and readers differ. Unknown keys are ignored, as POSIX says.
    pub fn parse(data: &[u8]) -> Result<Extended, Fault> {
        let mut x = Extended::default();
        for record in records(data) {
            let (key, value) = record?;
            match key {
                b"path" => once(&mut x.path, key, text(key, value)?)?,
                b"linkpath" => once(&mut x.link, key, text(key, value)?)?,
                b"size" => once(&mut x.size, key, decimal(key, value)?)?,
                b"uid" => once(&mut x.uid, key, decimal(key, value)?)?,
                b"gid" => once(&mut x.gid, key, decimal(key, value)?)?,
                b"mtime" => once(&mut x.mtime, key, time(value)?)?,
                b"hdrcharset" if matches!(value, b"BINARY" | b"ISO-IR 10646 2000 UTF-8") => {}
                b"GNU.sparse.name" => once(&mut x.sparse_name, key, text(key, value)?)?,
                b"GNU.sparse.realsize" => once(&mut x.sparse_size, key, decimal(key, value)?)?,
                b"GNU.sparse.major" => once(&mut x.sparse_major, key, decimal(key, value)?)?,
                b"GNU.sparse.minor" => once(&mut x.sparse_minor, key, decimal(key, value)?)?,
                _ => match attribute(key) {
                    Some(name) => x.attributes.push(name),
                    None => refuse_meaningful(key)?,
                },
            }
        }
        let sparse = (x.sparse_major, x.sparse_minor);
        let all = x.sparse_name.is_some() && x.sparse_size.is_some() && sparse == (Some(1), Some(0));
        if !all && (x.sparse_name.is_some() || x.sparse_size.is_some() || sparse != (None, None)) {
            return malformed(
                "its PAX header is not that of a GNU sparse file of version 1.0, the only one that is known",
            );
        }
        Ok(x)
    }
}

/// Checks a header that holds for all that follow (type `g`). `git archive` writes one with a comment.
///
/// One that would change an entry is refused: bsdtar ignores most of them, the others don't.
pub(super) fn check_global(data: &[u8]) -> Result<(), Fault> {
    const CHANGING: [&[u8]; 8] =
        [b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime", b"hdrcharset", b"charset"];
    for record in records(data) {
        let (key, _) = record?;
        let known = key.starts_with(b"GNU.") || attribute(key).is_some();
        if known || CHANGING.contains(&key) {
            return malformed(format!(
                "a global PAX header sets {:?} for all entries: readers disagree on that",
                shown(key)
            ));
        }
        refuse_meaningful(key)?;
    }
    Ok(())
}

/// The records. Nothing between or behind them is skipped (CVE-2026-32766): what one reader passes over another takes.
fn records(mut data: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), Fault>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let Some((key, value, rest)) = record(data) else {
            data = &[];
            return Some(malformed("its PAX header has a record that is not LENGTH KEY=VALUE"));
        };
        data = rest;
        Some(Ok((key, value)))
    })
}

/// Key, value, and what follows.
fn record(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = data.iter().take_while(|b| b.is_ascii_digit()).count();
    // A header of a MiB has no record with more digits.
    if digits == 0 || digits > 7 || data[0] == b'0' || data.get(digits) != Some(&b' ') {
        return None;
    }
    let length = data[..digits].iter().fold(0, |n, &b| n * 10 + usize::from(b - b'0'));
    let (record, rest) = data.split_at_checked(length)?;
    let pair = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = pair.iter().position(|&b| b == b'=').filter(|&n| n > 0)?;
    Some((&pair[..equals], &pair[equals + 1..], rest))
}

/// The name of the extended attribute that a key stands for.
fn attribute(key: &[u8]) -> Option<Vec<u8>> {
    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
        return Some(name.to_vec());
    }
    if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
        return Some(percent_decoded(name));
    }
    let known = key.starts_with(b"SCHILY.acl.") || key == b"RHT.security.selinux";
    known.then(|| key.to_vec())
}

/// bsdtar writes `%2E` and such into the names of attributes.
fn percent_decoded(mut text: &[u8]) -> Vec<u8> {
    let digit = |b: u8| (b as char).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        text = rest;
        match (first, rest) {
            (b'%', [a, b, rest @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                let value = digit(*a).zip(digit(*b)).map_or(0, |(a, b)| a * 16 + b);
                out.push(value as u8);
                text = rest;
            }
            _ => out.push(*first),
        }
    }
    out
}

/// Refuses keys that change an entry's content in some reader and that are not supported here.
fn refuse_meaningful(key: &[u8]) -> Result<(), Fault> {
    let sparse = key.starts_with(b"GNU.sparse.") || matches!(key, b"SCHILY.realsize" | b"SUN.holesdata");
    if sparse {
        return malformed(format!(
            "its PAX header has {:?}, an old way to write sparse files: make the archive without --sparse, or with --sparse-version=1.0",
            shown(key)
        ));
    }
    if key.starts_with(b"GNU.") || key == b"hdrcharset" {
        return malformed(format!("its PAX header has {:?}, which is not supported", shown(key)));
    }
    Ok(())
}

fn once<T>(place: &mut Option<T>, key: &[u8], value: T) -> Result<(), Fault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => malformed(format!("its PAX header has {:?} twice", shown(key))),
    }
}

fn text(key: &[u8], value: &[u8]) -> Result<Vec<u8>, Fault> {
    if value.is_empty() {
        return malformed(format!("its PAX header has an empty {:?}", shown(key)));
    }
    if value.contains(&0) {
        return malformed(format!("its PAX header has a {:?} with a NUL in it", shown(key)));
    }
    Ok(value.to_vec())
}

fn decimal(key: &[u8], value: &[u8]) -> Result<u64, Fault> {
    let number = std::str::from_utf8(value).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|t| t.parse::<u64>().ok()).filter(|n| i64::try_from(*n).is_ok()) {
        Some(number) => Ok(number),
        None if value.starts_with(b"-") => {
            Fault::refused(Rule::Attribute, format!("its PAX header has a negative {:?}", shown(key)))
        }
        None => malformed(format!("its PAX header has a {:?} that is no decimal number", shown(key))),
    }
}

/// Seconds with an optional fraction; what is finer than a nanosecond is cut off.
fn time(value: &[u8]) -> Result<(u64, u32), Fault> {
    let (seconds, fraction) = match value.iter().position(|&b| b == b'.') {
        Some(n) => (&value[..n], &value[n + 1..]),
        None => (value, &b""[..]),
    };
    let seconds = decimal(b"mtime", seconds)?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return malformed("its PAX header has an \"mtime\" that is no decimal number");
    }
    let digit = |n: usize| u32::from(fraction.get(n).map_or(0, |b| b - b'0'));
    Ok((seconds, (0..9).fold(0, |nanos, n| nanos * 10 + digit(n))))
}

fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(100)]).into_owned()
}

fn malformed<T>(reason: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Fault> {
    Fault::refused(Rule::Malformed, reason)
}

#[cfg(test)]
#[path = "pax_tests.rs"]
mod tests;
