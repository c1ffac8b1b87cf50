//! One header block.

use super::super::error::{Fault, Rule};

/// Headers and contents come in units of this size.
pub(super) const BLOCK: usize = 512;

pub(super) type Block = [u8; BLOCK];

/// The largest number that eleven octal digits can say: the end of the size and time fields.
pub(super) const OCTAL_MAX: u64 = 0o77_777_777_777;

/// Who wrote the header; it decides what its last part means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Before POSIX: nothing behind the link name.
    V7,
    Posix,
    /// Old GNU: no prefix, but times and a sparse map.
    Gnu,
}

/// A header block whose checksum is right.
#[derive(Clone, Copy)]
pub(super) struct Header<'a> {
    block: &'a Block,
    pub dialect: Dialect,
}

impl<'a> Header<'a> {
    /// Checks the checksum and the magic.
    pub fn new(block: &'a Block) -> Result<Header<'a>, Fault> {
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        let field: u32 = block[148..156].iter().map(|&b| u32::from(b)).sum();
        match octal(&block[148..156]) {
            Ok(said) if said == u64::from(sum - field + 8 * 0x20) => {}
            _ => {
                return malformed("the header's checksum is wrong: this is no tar archive, or it is damaged");
            }
        }
        let dialect = match &block[257..265] {
            b"ustar\x0000" | b"ustar\0\0\0" => Dialect::Posix,
            b"ustar  \0" => Dialect::Gnu,
            [0, 0, 0, 0, 0, 0, 0, 0] => Dialect::V7,
            _ => return malformed("the header has an unknown magic"),
        };
        Ok(Header { block, dialect })
    }

    /// The raw name field, for messages about a header that is not understood.
    pub fn raw_name(block: &Block) -> &[u8] {
        let name = &block[..100];
        &name[..name.iter().position(|&b| b == 0).unwrap_or(100)]
    }

    pub fn kind(&self) -> u8 {
        self.block[156]
    }

    /// The name: the prefix of POSIX and the name field.
    pub fn name(&self) -> Result<Vec<u8>, Fault> {
        let name = text(&self.block[..100], "name")?;
        let prefix = match self.dialect {
            Dialect::Posix => text(&self.block[345..500], "name prefix")?,
            Dialect::V7 | Dialect::Gnu => b"",
        };
        if prefix.is_empty() { Ok(name.to_vec()) } else { Ok([prefix, b"/", name].concat()) }
    }

    /// Where POSIX has the prefix nothing may stand in the other dialects, but for the map of a sparse file: some readers take
    /// it for one all the same (Python's tarfile does), others don't.
    pub fn check_prefix(&self) -> Result<(), Fault> {
        let free = self.dialect == Dialect::Posix || self.kind() == b'S';
        if !free && self.block[345..500].iter().any(|&b| b != 0) {
            return malformed(
                "the header has something where only POSIX headers have a name prefix: readers disagree on it",
            );
        }
        Ok(())
    }

    pub fn link(&self) -> Result<&'a [u8], Fault> {
        text(&self.block[157..257], "link name")
    }

    pub fn mode(&self) -> Result<u32, Fault> {
        // Some writers put the type of the file in front of the permission bits.
        Ok((number(&self.block[100..108], "mode")? & 0o7777) as u32)
    }

    pub fn uid(&self) -> Result<u64, Fault> {
        number(&self.block[108..116], "uid")
    }

    pub fn gid(&self) -> Result<u64, Fault> {
        number(&self.block[116..124], "gid")
    }

    pub fn size(&self) -> Result<u64, Fault> {
        number(&self.block[124..136], "size")
    }

    pub fn mtime(&self) -> Result<u64, Fault> {
        number(&self.block[136..148], "mtime")
    }

    /// The four places of an old GNU sparse map in the header, whether more blocks follow, and the size with the holes.
    pub fn gnu_sparse(&self) -> Result<(&'a [u8], bool, u64), Fault> {
        Ok((&self.block[386..482], self.block[482] != 0, number(&self.block[483..495], "real size")?))
    }
}

fn malformed<T>(reason: &'static str) -> Result<T, Fault> {
    Fault::refused(Rule::Malformed, reason)
}

/// A text up to the first NUL. What follows must be NUL too: a name with a NUL in it is read in two ways.
fn text<'a>(field: &'a [u8], what: &str) -> Result<&'a [u8], Fault> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    if field[end..].iter().any(|&b| b != 0) {
        return Fault::refused(Rule::Malformed, format!("its {what} has a NUL in it"));
    }
    Ok(&field[..end])
}

/// A number, octal or in base 256.
pub(super) fn number(field: &[u8], what: &str) -> Result<u64, Fault> {
    let reason = match (field[0], octal(field)) {
        (0x80, _) => {
            let (high, low) = field.split_at(field.len().saturating_sub(8).max(1));
            if high[1..].iter().all(|&b| b == 0) && (low.len() < 8 || low[0] < 0x80) {
                return Ok(low.iter().fold(0, |n, &b| n << 8 | u64::from(b)));
            }
            "is too large"
        }
        (0xff, _) => "is negative",
        (_, Ok(number)) => return Ok(number),
        (_, Err(reason)) => reason,
    };
    Fault::refused(
        if reason == "is negative" { Rule::Attribute } else { Rule::Malformed },
        format!("its {what} {reason}"),
    )
}

/// Octal digits, with spaces in front, and spaces or NULs behind. Nothing else: readers differ in where they stop.
fn octal(field: &[u8]) -> Result<u64, &'static str> {
    let start = field.iter().position(|&b| b != b' ').unwrap_or(field.len());
    let digits = field[start..].iter().take_while(|b| (b'0'..=b'7').contains(b)).count();
    if field[start..].starts_with(b"-") {
        return Err("is negative");
    }
    if field[start + digits..].iter().any(|&b| b != 0 && b != b' ') {
        return Err("is not an octal number");
    }
    // At most twelve digits: that fits.
    Ok(field[start..start + digits].iter().fold(0, |n, &b| n << 3 | u64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(field: &[u8]) -> String {
        match number(field, "size") {
            Err(Fault::Refused(_, text)) => text.into_owned(),
            other => panic!("{field:?}: {other:?}"),
        }
    }

    #[test]
    fn numbers() {
        for (field, n) in [
            (&b"0000644\0"[..], 0o644),
            (b"   644 \0", 0o644),
            (b"0000644 ", 0o644),
            (b"00000644", 0o644),
            (b"644\0\0\0\0\0", 0o644),
            (b"\0\0\0\0\0\0\0\0", 0),
            (b"        ", 0),
            (b"77777777777\0", OCTAL_MAX),
            (b"777777777777", 0o777_777_777_777),
            (b"\x80\0\0\0\0\0\x27\x11", 10001),
            (b"\x80\0\0\0\0\0\0\x02\0\0\0\0", 1 << 33),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", i64::MAX as u64),
        ] {
            assert_eq!(number(field, "x").unwrap(), n, "{field:?}");
        }
    }

    #[test]
    fn what_is_no_number() {
        for (field, reason) in [
            (&b"-0000644"[..], "negative"),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", "negative"),
            (b"+0000644", "octal"),
            (b"0000648\0", "octal"),
            (b"0x00644\0", "octal"),
            (b"644\x009999", "octal"),
            (b"64\x0044444", "octal"),
            (b"\x81\0\0\0\0\0\0\0", "octal"),
            // Beyond 64 bits: a reader that only shifts would see 0.
            (b"\x80\0\0\x01\0\0\0\0\0\0\0\0", "too large"),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", "too large"),
        ] {
            assert!(refused(field).contains(reason), "{field:?}: {}", refused(field));
        }
    }
}
