//! Names for files in `/inputs` that no program and no shell trips over.

use crate::text::is_invisible;

/// The most bytes of a name, without its number.
const MAX: usize = 120;
/// An extension longer than this is not kept when a name is cut.
const EXTENSION_MAX: usize = 17;

/// `name` with everything but letters, digits and `._-+@=,` replaced by `_`. Letters and digits of all scripts stay.
///
/// Never empty, at most 120 bytes, with the extension kept; no leading dot; no space, quote, slash or control character.
pub fn safe_name(name: &str) -> String {
    let mut safe = String::with_capacity(name.len().min(4 * MAX));
    let mut leading = true;
    for c in name.chars() {
        leading &= c == '.';
        safe.push(if leading || !is_safe(c) { '_' } else { c });
    }
    if safe.is_empty() {
        safe.push_str("file");
    }
    cut(safe)
}

fn is_safe(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric() || "._-+@=,".contains(c)
    } else {
        !c.is_whitespace() && !is_invisible(c) && !matches!(c, '\u{2018}'..='\u{201f}')
    }
}

/// `name` in at most [`MAX`] bytes.
fn cut(mut name: String) -> String {
    if name.len() <= MAX {
        return name;
    }
    let extension = name.rfind('.').map(|at| name[at..].to_owned()).filter(|e| e.len() <= EXTENSION_MAX);
    let extension = extension.unwrap_or_default();
    let mut end = MAX - extension.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name.push_str(&extension);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, want) in [
            ("销售 2024年.csv", "销售_2024年.csv"),
            ("données_é.csv", "données_é.csv"),
            ("e\u{301}.txt", "e\u{301}.txt"),
            ("हिन्दी.txt", "हिन्दी.txt"),
            ("../../x", "___.._x"),
            ("..", "__"),
            (".bashrc", "_bashrc"),
            ("a\0b\nc\x1bd", "a_b_c_d"),
            ("it's \"q\" `x`.txt", "it_s__q___x_.txt"),
            ("a\\b", "a_b"),
            ("\u{202e}cod.exe", "_cod.exe"),
            ("全角\u{3000}空格（1）.xlsx", "全角_空格（1）.xlsx"),
            ("-rf", "-rf"),
            ("a;b|c&d$e", "a_b_c_d_e"),
            ("", "file"),
            ("manifest.json", "manifest.json"),
            ("😀.png", "😀.png"),
        ] {
            assert_eq!(safe_name(name), want);
        }
    }

    #[test]
    fn long_names_keep_their_extension() {
        let safe = safe_name(&format!("{}.xlsx", "报".repeat(100)));
        assert!(safe.len() <= MAX && safe.len() > MAX - 4, "{}", safe.len());
        assert!(safe.ends_with("报.xlsx"));
        let safe = safe_name(&format!("a.{}", "b".repeat(300)));
        assert_eq!(safe.len(), MAX);
    }

    proptest::proptest! {
        #[test]
        fn always_safe(name in ".*") {
            let safe = safe_name(&name);
            proptest::prop_assert!(!safe.is_empty() && safe.len() <= MAX && !safe.starts_with('.'));
            proptest::prop_assert!(!safe.contains(['/', '\0', '\n', ' ', '\'', '"', '\\']));
        }
    }
}
