//! Names that a hostile program chose.

/// Names in reports are cut here, in bytes.
const MAX_SHOWN: usize = 512;

/// Whether an entry of this name can be kept, and if not why.
pub(super) fn check(name: &[u8]) -> Result<&str, &'static str> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Err("the name is not valid UTF-8");
    };
    if text.chars().any(is_unsafe) {
        return Err("the name holds control characters");
    }
    Ok(text)
}

/// What creel's own temporary files in a destination are named.
pub(super) fn temp(random: u64, number: usize) -> String {
    format!(".creel-{random:016x}-{number}.tmp")
}

/// Whether a name is such a one: the next creel removes those that a killed one left.
pub(super) fn is_temp(name: &[u8]) -> bool {
    let middle = name.strip_prefix(b".creel-").and_then(|n| n.strip_suffix(b".tmp"));
    let Some((random, number)) = middle.and_then(|n| n.split_at_checked(16)) else {
        return false;
    };
    random.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && matches!(number, [b'-', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Characters that do something to a terminal or a log, or that make a name look like another: escape sequences in a name
/// (CVE-2003-0063's class), line ends that forge records (CWE-117), bidirectional overrides (CVE-2021-42574).
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A path as it may stand in a report: bytes that are not UTF-8 and unsafe characters as `\xNN`, cut when very long.
pub(super) fn shown(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len().min(MAX_SHOWN));
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if text.len() > MAX_SHOWN {
                break;
            }
            if is_unsafe(c) {
                escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        if text.len() > MAX_SHOWN {
            text.push('…');
            break;
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_but_harmless_names_pass() {
        for name in [
            "...",
            "报告",
            "a b",
            "back\\slash",
            "-rf",
            "~",
            "e\u{301}",
            "👩\u{200d}🔬",
            ".creel-x.tmp",
            "\"'$(x)",
        ] {
            assert_eq!(check(name.as_bytes()), Ok(name));
        }
    }

    #[test]
    fn names_that_could_do_harm_do_not() {
        let bad: [&[u8]; 8] = [
            b"\xff\xfe",
            b"a\nb",
            b"\x1b[2J",
            b"\x7f",
            "\u{9b}31m".as_bytes(),
            "x\u{202e}fdp.exe".as_bytes(),
            "\u{2028}".as_bytes(),
            b"\xed\xa0\x80",
        ];
        for name in bad {
            assert!(check(name).is_err(), "{name:?}");
            let text = shown(name);
            assert!(text.contains("\\x") && !text.chars().any(is_unsafe), "{text:?}");
        }
        assert_eq!(shown(b"a\nb/\xff\x1bc"), "a\\x0ab/\\xff\\x1bc");
    }

    #[test]
    fn a_shown_name_is_bounded() {
        for byte in [b'a', b'\n', 0xff] {
            let text = shown(&[byte].repeat(9000));
            assert!(text.len() < MAX_SHOWN + 20 && text.ends_with('…'), "{}", text.len());
        }
    }

    #[test]
    fn only_exact_temporary_names_are_creels() {
        assert!(is_temp(b".creel-0123456789abcdef-0.tmp") && is_temp(temp(u64::MAX, usize::MAX).as_bytes()));
        let others: [&[u8]; 6] = [
            b".creel-.tmp",
            b".creel-0123456789abcdef.tmp",
            b".creel-0123456789abcdef-.tmp",
            b".creel-0123456789abcdeF-1.tmp",
            b".creel-0123456789abcdef-1x.tmp",
            b".creel-0123456789abcdef-1",
        ];
        assert!(!others.iter().any(|n| is_temp(n)));
    }
}
