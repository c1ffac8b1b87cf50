//! Which names of entries are taken.

use super::error::{Fault, Rule};

/// The longest path, in bytes (`PATH_MAX` with its NUL is 4096; this is what an archive may say).
const MAX_PATH: usize = 4096;
/// The longest component: what Linux file systems take.
const MAX_NAME: usize = 255;
/// The most components.
const MAX_DEPTH: usize = 255;

/// A path as the archive wrote it, checked: relative, without `.`, `..` and empty components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clean<'a> {
    /// Without `./` in front and slashes at the end; empty for the root itself.
    pub path: &'a [u8],
    /// Whether slashes at its end say that it is a directory.
    pub slash: bool,
}

/// Checks the name of an entry, or the target of a hard link.
///
/// No `..` is ever taken, not even one that stays inside: what a symbolic link makes of it is found out too late
/// (CVE-2001-1267 and all that came after). `what` begins the message: `its name`.
pub(super) fn clean<'a>(raw: &'a [u8], what: &str) -> Result<Clean<'a>, Fault> {
    let refuse = |reason: &str| Fault::refused(Rule::Path, format!("{what} {reason}"));
    if raw.is_empty() {
        return refuse("is empty");
    }
    if raw.len() > MAX_PATH {
        return refuse("is longer than 4096 bytes");
    }
    if raw.contains(&0) {
        return refuse("has a NUL");
    }
    if raw[0] == b'/' {
        return refuse("is absolute");
    }
    let bare = raw.strip_suffix(b"/").map_or(raw, |_| {
        let end = raw.iter().rposition(|&b| b != b'/').map_or(0, |n| n + 1);
        &raw[..end]
    });
    let slash = bare.len() < raw.len();
    if bare == b"." {
        return Ok(Clean { path: b"", slash });
    }
    let path = bare.strip_prefix(b"./").unwrap_or(bare);
    for (n, part) in path.split(|&b| b == b'/').enumerate() {
        match part {
            b"" => return refuse("has an empty component"),
            b"." => return refuse("has a component \".\" that is not its beginning"),
            b".." => return refuse("has a component \"..\""),
            part if part.len() > MAX_NAME => return refuse("has a component of more than 255 bytes"),
            _ if n == MAX_DEPTH => return refuse("is more than 255 directories deep"),
            _ => {}
        }
    }
    Ok(Clean { path, slash })
}

/// The directory that a path is in (empty for the root), and its last component.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(n) => (&path[..n], &path[n + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken() {
        let long = [&[b'n'; 255][..], b"/", &[b'm'; 255]].concat();
        let deep = vec!["d"; 255].join("/");
        for (raw, path, slash) in [
            (&b"a"[..], &b"a"[..], false),
            (b"./a/b", b"a/b", false),
            (b"a/b/", b"a/b", true),
            (b"a//", b"a", true),
            (b".", b"", false),
            (b"./", b"", true),
            (b".//", b"", true),
            (b"...", b"...", false),
            (b"..a/.b", b"..a/.b", false),
            (b"a\nb\x1b\xff", b"a\nb\x1b\xff", false),
            ("报告/图.png".as_bytes(), "报告/图.png".as_bytes(), false),
            (&long, &long, false),
            (deep.as_bytes(), deep.as_bytes(), false),
        ] {
            assert_eq!(clean(raw, "x").unwrap(), Clean { path, slash }, "{raw:?}");
        }
    }

    #[test]
    fn refused() {
        let long_name = [b'n'; 256];
        let long = vec!["d".repeat(200); 21].join("/");
        let deep = vec!["d"; 256].join("/");
        for (raw, reason) in [
            (&b""[..], "empty"),
            (b"/", "absolute"),
            (b"/a", "absolute"),
            (b"//a", "absolute"),
            (b"..", "\"..\""),
            (b"../a", "\"..\""),
            (b"./../a", "\"..\""),
            (b"a/../../x", "\"..\""),
            (b"a/..", "\"..\""),
            (b"a/../", "\"..\""),
            (b"a//b", "empty component"),
            (b".//a", "empty component"),
            (b"a/./b", "\".\""),
            (b"././a", "\".\""),
            (b"a/.", "\".\""),
            (b"a\0b", "NUL"),
            (&long_name, "255 bytes"),
            (long.as_bytes(), "4096 bytes"),
            (deep.as_bytes(), "255 directories"),
        ] {
            match clean(raw, "its name") {
                Err(Fault::Refused(Rule::Path, text)) => {
                    assert!(text.starts_with("its name ") && text.contains(reason), "{raw:?}: {text}");
                }
                other => panic!("{raw:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn parts() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
    }
}
