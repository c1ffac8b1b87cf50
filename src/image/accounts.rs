//! `/etc/passwd` and `/etc/group` of a sandbox: the image's lines, with creel's user in them.

/// The user id of the payload, whatever user an image names.
pub const UID: u32 = 10001;
/// The group id of the payload.
pub const GID: u32 = 10001;
/// The name of both.
pub const NAME: &str = "sandbox";

const PASSWD_ROOT: &str = "root:x:0:0:root:/root:/bin/sh\n";
const PASSWD_SANDBOX: &str = "sandbox:x:10001:10001:sandbox:/work:/bin/sh\n";
const PASSWD_NOBODY: &str = "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP_ROOT: &str = "root:x:0:\n";
const GROUP_SANDBOX: &str = "sandbox:x:10001:\n";
const GROUP_NOGROUP: &str = "nogroup:x:65534:\n";

/// The text of `/etc/passwd`, given the image's (empty when it has none).
///
/// Lines of the image that claim our name or our id are dropped, as are lines that are no entry; `root` and `nobody` (the
/// owner that unmapped ids are shown as) are added when missing.
pub fn passwd(image: &[u8]) -> Vec<u8> {
    merge(image, 7, UID, [(0, PASSWD_ROOT), (65534, PASSWD_NOBODY)], PASSWD_SANDBOX)
}

/// The text of `/etc/group`, given the image's; the same rules as [`passwd`].
pub fn group(image: &[u8]) -> Vec<u8> {
    merge(image, 4, GID, [(0, GROUP_ROOT), (65534, GROUP_NOGROUP)], GROUP_SANDBOX)
}

fn merge(image: &[u8], fields: usize, our_id: u32, usual: [(u32, &str); 2], ours: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(image.len() + 160);
    let mut present = [false; 2];
    for line in image.split(|b| *b == b'\n') {
        let parts: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        let Some(id) = entry_id(&parts, fields) else {
            continue;
        };
        if parts[0] == NAME.as_bytes() || id == our_id {
            continue;
        }
        for (seen, (usual_id, _)) in present.iter_mut().zip(&usual) {
            *seen |= id == *usual_id;
        }
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    for (seen, (_, line)) in present.into_iter().zip(&usual) {
        if !seen {
            out.extend_from_slice(line.as_bytes());
        }
    }
    out.extend_from_slice(ours.as_bytes());
    out
}

/// The numeric id of an entry; `None` for a line that is none (comment, NIS `+` line, wrong number of fields, odd number,
/// a control character).
fn entry_id(parts: &[&[u8]], fields: usize) -> Option<u32> {
    let name = *parts.first()?;
    if parts.len() != fields || name.is_empty() || b"+-#".contains(&name[0]) {
        return None;
    }
    if parts.iter().any(|p| p.iter().any(|b| *b < b' ' || *b == 0x7f)) {
        return None;
    }
    // Digits only: glibc reads this with strtoul, which also takes " 10001", "+10001" and "-1".
    let digits = parts[2];
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_image_without_accounts_gets_three() {
        assert_eq!(text(passwd(b"")), [PASSWD_ROOT, PASSWD_NOBODY, PASSWD_SANDBOX].concat());
        assert_eq!(text(group(b"\n\n")), [GROUP_ROOT, GROUP_NOGROUP, GROUP_SANDBOX].concat());
    }

    #[test]
    fn lines_of_the_image_are_kept() {
        let image = "root:x:0:0:root:/root:/bin/bash\nwww:x:33:33:网:/var/www:/bin/false";
        assert_eq!(text(passwd(image.as_bytes())), format!("{image}\n{PASSWD_NOBODY}{PASSWD_SANDBOX}"));
        let image = "root:x:0:\nnogroup:x:65534:\nvideo:x:44:a,b\n";
        assert_eq!(text(group(image.as_bytes())), format!("{image}{GROUP_SANDBOX}"));
    }

    #[test]
    fn nobody_else_is_sandbox_or_10001() {
        let image = b"sandbox:x:0:0::/:/bin/sh\nevil:x:10001:0::/:/bin/sh\nevil:x:0010001:0::/:/bin/sh\n\
                      sandbox:x:55:55::/:/bin/sh\n";
        assert_eq!(text(passwd(image)), text(passwd(b"")));
        assert_eq!(text(group(b"evil:x:10001:root\nsandbox:x:0:\n")), text(group(b"")));
    }

    #[test]
    fn what_is_no_entry_is_dropped() {
        for line in [
            "# comment",
            "+::::::",
            "-x:x:5:5::/:/bin/sh",
            "a:x:5:5::/",
            "a:x:5:5::/:/bin/sh:more",
            ":x:5:5::/:/bin/sh",
            "a:x: 10001:5::/:/bin/sh",
            "a:x:+10001:5::/:/bin/sh",
            "a:x:-1:5::/:/bin/sh",
            "a:x:4294967297:5::/:/bin/sh",
            "a:x::5::/:/bin/sh",
            "a:x:5:5:\x1b[2J:/:/bin/sh",
            "a:x:5:5:\0:/:/bin/sh",
        ] {
            assert_eq!(text(passwd(line.as_bytes())), text(passwd(b"")), "{line:?}");
        }
        // Bytes that are not UTF-8 are no reason to drop one.
        assert!(passwd(b"a:x:5:5:\xff:/:/bin/sh\n").starts_with(b"a:x:5:5:\xff:/"));
    }

    #[test]
    fn ours_is_the_last_line_even_without_a_final_newline() {
        assert!(text(passwd(b"a:x:5:5::/:/bin/sh")).ends_with(PASSWD_SANDBOX));
    }
}
