//! `WWW-Authenticate`: what a registry wants before it answers.

/// One challenge of the header. RFC 9110 section 11; the token scheme is that of the distribution project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// Bytes of a header that are looked at.
const MAX_HEADER: usize = 8 << 10;

/// The challenges of a header's value that are known, in its order. Several may stand in one value, parted by commas, which also part the
/// parameters of each: a word followed by `=` is a parameter, one followed by a space and anything else is a scheme.
pub fn parse(value: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut cut = value.len().min(MAX_HEADER);
    while !value.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut rest = &value[..cut];
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            // Neither a word nor a separator: skip it, or stop at the end.
            match rest.chars().next() {
                Some(c) => rest = &rest[c.len_utf8()..],
                None => break,
            }
            continue;
        }
        match after.trim_start_matches([' ', '\t']).strip_prefix('=') {
            Some(after) => {
                let (value, after) = parameter(after.trim_start_matches([' ', '\t']));
                if let Some((_, parameters)) = found.last_mut() {
                    parameters.push((word.to_ascii_lowercase(), value));
                }
                rest = after;
            }
            None => {
                found.push((word.to_ascii_lowercase(), Vec::new()));
                rest = after;
            }
        }
    }
    found.into_iter().filter_map(|(scheme, parameters)| known(&scheme, parameters)).collect()
}

fn known(scheme: &str, parameters: Vec<(String, String)>) -> Option<Challenge> {
    let get = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    match scheme {
        "basic" => Some(Challenge::Basic),
        "bearer" => {
            Some(Challenge::Bearer { realm: get("realm")?, service: get("service"), scope: get("scope") })
        }
        _ => None,
    }
}

/// A quoted string, with `\x` for x, or a bare word; and what follows it.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    // The quote that ends it is missing.
    (value, "")
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |t: Option<&str>| t.map(str::to_owned);
        Challenge::Bearer { realm: realm.into(), service: owned(service), scope: owned(scope) }
    }

    #[test]
    fn as_registries_write_it() {
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        assert_eq!(
            parse(docker),
            [bearer(
                "https://auth.docker.io/token",
                Some("registry.docker.io"),
                Some("repository:a/b:pull,push")
            )]
        );
        assert_eq!(parse("Basic realm=\"Registry, the \\\"one\\\"\""), [Challenge::Basic]);
        assert_eq!(parse("BASIC"), [Challenge::Basic]);
        assert_eq!(parse("bearer Realm = \"r\" , scope=s,"), [bearer("r", None, Some("s"))]);
        // Two in one value, and one that nobody knows.
        assert_eq!(
            parse(r#"Negotiate dG9r==, Basic realm="x", Bearer realm="y,z""#),
            [Challenge::Basic, bearer("y,z", None, None)]
        );
    }

    #[test]
    fn anything_else_is_none() {
        for bad in
            ["", ",,,", "Bearer", "Bearer service=\"x\"", "=", "\"", "Digest realm=\"x\"", "漢字 realm=1"]
        {
            assert_eq!(parse(bad), [], "{bad}");
        }
        assert_eq!(parse("Bearer realm=\"not closed"), [bearer("not closed", None, None)]);
        assert_eq!(parse(&format!("{}Basic", "é".repeat(1 << 20))), []);
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,80}|[ ,=\"\\\\a-bé]{0,40}") {
            parse(&text);
        }
    }
}
