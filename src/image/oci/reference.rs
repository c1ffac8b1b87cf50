//! The name of an image: `[registry/]repository[:tag][@digest]`, as the distribution specification writes it.

use std::fmt;
use std::str::FromStr;

use super::digest::Digest;

/// The tag of a name without one.
pub const LATEST: &str = "latest";

/// A name of an image. Displayed in full, `minimal:latest`, it is the key of the store's index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// `host[:port]`, when the first part of the name is one (it has a dot or a colon, or is `localhost`).
    pub registry: Option<String>,
    /// `sandbox/data`
    pub repository: String,
    /// The tag; with neither tag nor digest, `latest`.
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

/// Why a text is no image name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no image name: {reason}")]
pub struct ReferenceError {
    /// The text, at most 100 characters of it.
    pub text: String,
    pub reason: &'static str,
}

impl Reference {
    /// The name without tag and digest: `registry/repository`.
    pub fn name(&self) -> String {
        match &self.registry {
            Some(registry) => format!("{registry}/{}", self.repository),
            None => self.repository.clone(),
        }
    }

    /// What a registry's manifest address ends in: the digest, or else the tag.
    pub fn tag_or_digest(&self) -> String {
        self.digest.map_or_else(|| self.tag.clone().unwrap_or_else(|| LATEST.into()), |d| d.to_string())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Reference, ReferenceError> {
        parse(text).map_err(|reason| ReferenceError { text: text.chars().take(100).collect(), reason })
    }
}

fn parse(text: &str) -> Result<Reference, &'static str> {
    if text.len() > 1024 {
        return Err("it is longer than 1024 bytes");
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => {
            let reason = "what follows @ must be \"sha256:\" and 64 lower-case hexadecimal digits";
            (rest, Some(digest.parse::<Digest>().map_err(|_| reason)?))
        }
        None => (text, None),
    };
    // A colon behind the last slash starts the tag; one before it, the port.
    let after_slash = rest.rfind('/').map_or(0, |n| n + 1);
    let (name, tag) = match rest[after_slash..].rfind(':') {
        Some(n) => (&rest[..after_slash + n], Some(&rest[after_slash + n + 1..])),
        None => (rest, None),
    };
    let (registry, repository) = match name.split_once('/') {
        Some((first, more)) if first.contains(['.', ':']) || first == "localhost" => (Some(first), more),
        _ => (None, name),
    };
    if let Some(registry) = registry
        && !is_registry(registry)
    {
        return Err("the registry is no host name or address with an optional port");
    }
    if repository.is_empty() {
        return Err("the repository is missing");
    }
    if repository.len() > 255 || !repository.split('/').all(is_component) {
        return Err(
            "a repository is lower-case letters and digits, with single ., _ or - between them, and / between parts",
        );
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("a tag is at most 128 letters, digits, _, . and -, and starts with none of the last two");
    }
    let tag = match (tag, digest) {
        (None, None) => Some(LATEST),
        (tag, _) => tag,
    };
    Ok(Reference {
        registry: registry.map(str::to_owned),
        repository: repository.to_owned(),
        tag: tag.map(str::to_owned),
        digest,
    })
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let mut separators = bytes.split(|&b| alphanumeric(b)).filter(|s| !s.is_empty());
    bytes.first().copied().is_some_and(alphanumeric)
        && bytes.last().copied().is_some_and(alphanumeric)
        && separators.all(|s| matches!(s, b"." | b"_" | b"__") || s.iter().all(|&b| b == b'-'))
}

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`
fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = text.as_bytes();
    bytes.len() <= 128
        && bytes.first().copied().is_some_and(word)
        && bytes.iter().all(|&b| word(b) || b == b'.' || b == b'-')
}

/// A DNS name, an IPv4 address, or an IPv6 one in brackets, with an optional port.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(n) if !text[n..].contains(']') => (&text[..n], Some(&text[n + 1..])),
        _ => (text, None),
    };
    let name = |label: &str| {
        let bytes = label.as_bytes();
        !bytes.is_empty()
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && bytes[0] != b'-'
            && bytes[bytes.len() - 1] != b'-'
    };
    let host_is_sound = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(name),
    };
    host_is_sound && port.is_none_or(|p| p.parse::<u16>().is_ok_and(|p| p > 0) && !p.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_parts() {
        let d = Digest::of(b"");
        let by_digest = format!("r.example:5005/a/b@{d}");
        let both = format!("data:v1@{d}");
        for (text, registry, repository, tag, full) in [
            ("minimal", None, "minimal", Some("latest"), "minimal:latest"),
            ("data:v1", None, "data", Some("v1"), "data:v1"),
            (
                "library/python:3.11-slim",
                None,
                "library/python",
                Some("3.11-slim"),
                "library/python:3.11-slim",
            ),
            ("localhost/x", Some("localhost"), "x", Some("latest"), "localhost/x:latest"),
            ("127.0.0.1:5005/s/d:v1", Some("127.0.0.1:5005"), "s/d", Some("v1"), "127.0.0.1:5005/s/d:v1"),
            ("[::1]:5005/x", Some("[::1]:5005"), "x", Some("latest"), "[::1]:5005/x:latest"),
            ("a__b/c--d.e_f", None, "a__b/c--d.e_f", Some("latest"), "a__b/c--d.e_f:latest"),
            (by_digest.as_str(), Some("r.example:5005"), "a/b", None, by_digest.as_str()),
            (both.as_str(), None, "data", Some("v1"), both.as_str()),
        ] {
            let r: Reference = text.parse().unwrap();
            assert_eq!(r.registry.as_deref(), registry, "{text}");
            assert_eq!(r.repository, repository, "{text}");
            assert_eq!(r.tag.as_deref(), tag, "{text}");
            assert_eq!(r.to_string(), full, "{text}");
            assert_eq!(full.parse::<Reference>().unwrap(), r, "{text}");
        }
    }

    #[test]
    fn texts_that_are_none() {
        for bad in [
            "",
            ":v1",
            "@",
            "Data",
            "a//b",
            "/a",
            "a/",
            "../x",
            "a/../b",
            ".",
            "..",
            "a b",
            "a\n",
            "图",
            "a:",
            "a:-x",
            "a:.x",
            "a:b:c",
            "a___b",
            "a..b",
            "-a",
            "a-",
            "a@sha256:00",
            "x.y:0/a",
            "x.y:+5/a",
            "x.y:99999/a",
            "[::1/a",
            "-x.y/a",
            "a\0",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?}");
        }
        assert!(format!("a:{}", "t".repeat(129)).parse::<Reference>().is_err());
        assert!("a".repeat(256).parse::<Reference>().is_err());
    }
}
