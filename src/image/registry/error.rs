//! Why an image can't be pulled.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::image::oci::{Digest, NoPlatform};
use crate::text::is_invisible;

/// Characters of a registry's own words that a message repeats.
const SAID_MAX: usize = 300;

/// Whom an error is about. Small, because errors are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At(Arc<(String, String)>);

impl At {
    pub fn new(registry: &str, repository: &str) -> At {
        At(Arc::new((registry.to_owned(), repository.to_owned())))
    }

    pub fn registry(&self) -> &str {
        &self.0.0
    }

    pub fn repository(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registry {}, repository {}", self.registry(), self.repository())
    }
}

/// Why an image can't be pulled. What a registry said is escaped and cut; secrets are in no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    #[error("{at}: can't be reached: {reason}; check the name, the network and HTTPS_PROXY/NO_PROXY")]
    Unreachable { at: At, reason: String },

    #[error(
        "{at}: no secure connection: {reason}; --ca FILE names a certificate authority of your own, --plain-http asks for none"
    )]
    Tls { at: At, reason: String },

    #[error("the proxy of the environment can't be used: {reason}")]
    Proxy { reason: String },

    #[error("certificates of {path:?} can't be used: {reason}")]
    Ca { path: PathBuf, reason: String },

    #[error(
        "this host has no certificate authorities: install the package ca-certificates, or name a file with --ca or SSL_CERT_FILE"
    )]
    NoAuthorities,

    #[error("{at}: login failed: status {status}{said}; {hint}")]
    Login { at: At, status: u16, said: Said, hint: String },

    #[error("{at}: the login that the registry asks for is refused: {reason}")]
    LoginRefused { at: At, reason: String },

    #[error("the registry's user or password can't be used: {reason}")]
    Credentials { reason: String },

    #[error("{at}: {what} is not there: status {status}{said}; check the name and the tag")]
    NotFound { at: At, what: String, status: u16, said: Said },

    #[error("{at}: {what} was not given: status {status}{said}{hint}")]
    Status { at: At, what: String, status: u16, said: Said, hint: &'static str },

    #[error("{at}: the registry puts us off: status {status}{said}; {wait}")]
    Busy { at: At, status: u16, said: Said, wait: Wait },

    #[error("{at}: a redirect is not followed: {reason}")]
    Redirect { at: At, reason: String },

    #[error("{at}: {what} makes no sense: {reason}")]
    Malformed { at: At, what: String, reason: String },

    #[error("{at}: {what} is larger than the {max} bytes that are taken")]
    TooLarge { at: At, what: String, max: u64 },

    #[error("{at}: what came as {what} is not it: its digest is {found}")]
    WrongDigest { at: At, what: String, found: Digest },

    #[error("{at}: {source}")]
    Platform { at: At, source: NoPlatform },

    #[error(
        "{at}: the download of {digest} stopped: {reason}; {} of {} are kept, the same command goes on from there",
        human(*.kept), human(*.size)
    )]
    Interrupted { at: At, digest: Digest, kept: u64, size: u64, reason: String },

    #[error(
        "not enough room in {path:?}: {} more are needed, {} are free; `creel image gc` frees what nothing names",
        human(*.needed), human(*.free)
    )]
    NoRoom { path: PathBuf, needed: u64, free: u64 },

    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },

    /// Another layer's download failed; that error is the one to report.
    #[error("stopped because another download failed")]
    Stopped,
}

impl RegistryError {
    /// `image.reason`; `host.reason` where the host is at fault.
    pub fn code(&self) -> &'static str {
        match self {
            RegistryError::Unreachable { .. } => "image.registry_unreachable",
            RegistryError::Tls { .. } => "image.registry_tls",
            RegistryError::Proxy { .. } => "image.registry_proxy",
            RegistryError::Ca { .. } => "image.registry_ca",
            RegistryError::NoAuthorities => "image.registry_no_authorities",
            RegistryError::Login { .. } => "image.registry_login",
            RegistryError::LoginRefused { .. } => "image.registry_login_refused",
            RegistryError::Credentials { .. } => "image.registry_credentials",
            RegistryError::NotFound { .. } => "image.not_found",
            RegistryError::Status { .. } => "image.registry_status",
            RegistryError::Busy { .. } => "image.registry_busy",
            RegistryError::Redirect { .. } => "image.registry_redirect",
            RegistryError::Malformed { .. } => "image.registry_malformed",
            RegistryError::TooLarge { .. } => "image.registry_too_large",
            RegistryError::WrongDigest { .. } => "image.digest_mismatch",
            RegistryError::Platform { .. } => "image.no_platform",
            RegistryError::Interrupted { .. } => "image.download_interrupted",
            RegistryError::NoRoom { .. } => "host.disk_full",
            RegistryError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "host.disk_full"
            }
            RegistryError::Io { .. } => "host.io",
            RegistryError::Stopped => "image.download_stopped",
        }
    }
}

/// What a registry said of an error of its own: empty, or `, CODE: message`, escaped, and at most 300 characters of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said(String);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Said {
    /// From the body of an error, as the distribution specification has it: `{"errors":[{"code","message"}]}`. Anything else says
    /// nothing.
    pub(super) fn from_body(body: &[u8]) -> Said {
        #[derive(Deserialize)]
        struct Body {
            #[serde(default)]
            errors: Vec<Entry>,
            #[serde(default)]
            details: Option<String>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
        }
        let Ok(body) = serde_json::from_slice::<Body>(body) else { return Said::default() };
        let text = match body.errors.first() {
            Some(e) if e.message.is_empty() => e.code.clone(),
            Some(e) if e.code.is_empty() => e.message.clone(),
            Some(e) => format!("{}: {}", e.code, e.message),
            // Token servers of docker.
            None => body.details.unwrap_or_default(),
        };
        match text.is_empty() {
            true => Said::default(),
            false => Said(format!(", {}", printable(&text))),
        }
    }
}

/// A stranger's text for a message: one line, no control characters, at most 300 characters.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == SAID_MAX {
            out.push('…');
            break;
        }
        match c {
            c if is_invisible(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// `1.2 MB`
fn human(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, 0);
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// How long a registry asks to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(pub Option<Duration>);

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "it asks to wait {} s", time.as_secs()),
            None => f.write_str("try again later, or log in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [(0, "0 B"), (999, "999 B"), (100_000, "100.0 kB"), (32 << 30, "34.4 GB")] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn a_registrys_words_are_cut_and_escaped() {
        let said = |text: &str| Said::from_body(text.as_bytes()).to_string();
        assert_eq!(said(r#"{"errors":[{"code":"DENIED","message":"no"}]}"#), ", DENIED: no");
        assert_eq!(said(r#"{"errors":[{"message":"拒绝访问"}]}"#), ", 拒绝访问");
        assert_eq!(
            said(r#"{"details":"incorrect username or password"}"#),
            ", incorrect username or password"
        );
        for nothing in ["", "<html>", "{}", "[]", r#"{"errors":[]}"#, r#"{"errors":7}"#, r#"{"errors":[{}]}"#]
        {
            assert_eq!(said(nothing), "", "{nothing}");
        }
        assert_eq!(said(r#"{"errors":[{"code":"a\u001b[2J\nb\u202e"}]}"#), ", a\\u{1b}[2J\\nb\\u{202e}");
        let long = said(&format!(r#"{{"errors":[{{"code":"{}"}}]}}"#, "界".repeat(10_000)));
        assert_eq!(long.chars().count(), 2 + SAID_MAX + 1);
    }
}
