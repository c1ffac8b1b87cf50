//! Text from outside, made fit to print: one line, no terminal escapes, bounded.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The most characters of a value that a message repeats.
const QUOTED_MAX: usize = 120;

/// `'value'` for a message: what is not printable is shown as `\xNN` or `\u{…}`, what is long is cut (`…`).
pub fn quoted(value: impl AsRef<OsStr>) -> String {
    let mut out = String::from("'");
    // A prefix that surely holds QUOTED_MAX characters: a program of megabytes is not walked through.
    let bytes = value.as_ref().as_bytes();
    let head = &bytes[..bytes.len().min(4 * (QUOTED_MAX + 1))];
    let mut shown = 0;
    for chunk in head.utf8_chunks() {
        for c in chunk.valid().chars() {
            if shown == QUOTED_MAX {
                out.push_str("…'");
                return out;
            }
            push_printable(&mut out, c);
            shown += 1;
        }
        for byte in chunk.invalid() {
            if shown == QUOTED_MAX {
                out.push_str("…'");
                return out;
            }
            push_byte(&mut out, *byte);
            shown += 1;
        }
    }
    out.push_str(if head.len() < bytes.len() { "…'" } else { "'" });
    out
}

/// The whole name, with bytes that are not UTF-8 shown as `\xNN`; everything else is kept as it is.
pub fn lossless(name: &OsStr) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            push_byte(&mut out, *byte);
        }
    }
    out
}

/// `text` as one printable line: line ends and their indents become one space, other control characters are escaped.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        for c in line.chars() {
            push_printable(&mut out, c);
        }
    }
    out
}

/// What the system said, without the `(os error 2)` that means nothing to most people.
pub fn io_reason(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.rfind(" (os error ") {
        text.truncate(at);
    }
    // "No such file" → "no such file": it stands in the middle of a line.
    if let Some(first) = text.get(..1) {
        let lower = first.to_ascii_lowercase();
        text.replace_range(..1, &lower);
    }
    text
}

/// Characters that change how the text around them is shown, or that can't be seen at all.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn push_printable(out: &mut String, c: char) {
    if is_invisible(c) {
        out.extend(c.escape_default());
    } else {
        out.push(c);
    }
}

fn push_byte(out: &mut String, byte: u8) {
    // Writing to a String can't fail.
    let _ = write!(out, "\\x{byte:02X}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_on_one_line() {
        assert_eq!(quoted("销售.csv"), "'销售.csv'");
        assert_eq!(quoted("a\nb\x1b[31m"), "'a\\nb\\u{1b}[31m'");
        assert_eq!(quoted(OsStr::from_bytes(b"a\xffb")), "'a\\xFFb'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn long_values_are_cut() {
        let long = quoted("x".repeat(1 << 20));
        assert_eq!(long.chars().count(), QUOTED_MAX + 3);
        assert!(long.ends_with("…'"));
        let invalid = quoted(OsStr::from_bytes(&[0xff; 5000]));
        assert!(invalid.ends_with("…'"));
        // Exactly at the bound nothing is cut.
        assert!(!quoted("报".repeat(QUOTED_MAX)).contains('…'));
    }

    #[test]
    fn lines_are_joined() {
        assert_eq!(one_line("a\n\n  b\r\nc\t\u{202e}d"), "a b c\\t\\u{202e}d");
    }

    #[test]
    fn system_errors_read_well() {
        assert_eq!(io_reason(&io::Error::from_raw_os_error(2)), "no such file or directory");
    }
}
