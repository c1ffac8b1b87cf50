//! `config.json` of docker and `auth.json` of podman: their `auths` entries. Credential helpers are programs and are not run.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use super::address::Address;
use super::credentials::{Login, Secret};
use super::error::RegistryError;
use crate::regular::{self, NotUsable};

/// The largest file.
const MAX_FILE: u64 = 1 << 20;

/// docker pads its base64, others may not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

// No Debug: it holds secrets.
#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry(…)")
    }
}

/// Looks in the one file that counts: `$REGISTRY_AUTH_FILE`, or else `config.json` in `$DOCKER_CONFIG` or `~/.docker`.
pub fn find(address: &Address) -> Result<(Option<Login>, Vec<String>), RegistryError> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(path) = variable("REGISTRY_AUTH_FILE") {
        return in_file(&path, true, address);
    }
    match (variable("DOCKER_CONFIG"), variable("HOME")) {
        (Some(dir), _) => in_file(&dir.join("config.json"), false, address),
        (None, Some(home)) => in_file(&home.join(".docker/config.json"), false, address),
        (None, None) => Ok((None, Vec::new())),
    }
}

/// The login of `path` for the address. A file that is not there is no fault unless it `must_exist`.
fn in_file(
    path: &Path,
    must_exist: bool,
    address: &Address,
) -> Result<(Option<Login>, Vec<String>), RegistryError> {
    let broken = |reason: String| RegistryError::Credentials { reason: format!("{path:?} {reason}") };
    let file = match regular::open(path) {
        Ok((file, _)) => file,
        Err(NotUsable::Missing) if !must_exist => return Ok((None, Vec::new())),
        Err(e) => return Err(broken(e.to_string())),
    };
    let mut text = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(|e| broken(format!("can't be read: {e}")))?;
    if text.len() as u64 > MAX_FILE {
        return Err(broken("is larger than 1 MiB".into()));
    }
    // The parser's own message may quote what is in the file: only the place is told.
    let parsed: AuthFile = serde_json::from_slice(&text).map_err(|e| {
        broken(format!("is no docker configuration: line {}, column {}", e.line(), e.column()))
    })?;
    parsed.login(address, path)
}

impl AuthFile {
    fn login(&self, address: &Address, path: &Path) -> Result<(Option<Login>, Vec<String>), RegistryError> {
        let broken = |key: &str, reason: &str| RegistryError::Credentials {
            reason: format!("{path:?}: the entry {key:?} {reason}"),
        };
        let mut notes = Vec::new();
        for (key, entry) in self.entries(address) {
            let login = match (&entry.auth, &entry.username, &entry.password) {
                (Some(auth), ..) if !auth.is_empty() => {
                    let pair = BASE64.decode(auth.trim()).ok().and_then(|b| String::from_utf8(b).ok());
                    // Old docker versions fill up with NULs.
                    let pair = pair.ok_or_else(|| broken(key, "has no base64 text in \"auth\""))?;
                    let (user, password) = pair
                        .split_once(':')
                        .ok_or_else(|| broken(key, "has no user:password in \"auth\""))?;
                    Login::new(user, Secret::new(password.trim_end_matches('\0')))?
                }
                (_, Some(user), Some(password)) => Login::new(user, Secret::new(password))?,
                _ if entry.identitytoken.is_some() => {
                    notes.push(format!("{path:?} has only an identity token for {key:?}: it is not used"));
                    continue;
                }
                // With a helper, docker leaves an empty entry.
                _ => continue,
            };
            if entry.identitytoken.as_deref().is_some_and(|t| !t.is_empty())
                && login.password.reveal().is_empty()
            {
                notes.push(format!("{path:?} has only an identity token for {key:?}: it is not used"));
                continue;
            }
            return Ok((Some(login), notes));
        }
        let names = address.credential_names();
        let own = self.cred_helpers.iter().find(|(key, _)| names.contains(&host_of_key(key)));
        if let Some(helper) = own.map(|(_, helper)| helper).or(self.creds_store.as_ref()) {
            notes.push(format!(
                "{path:?} names the credential helper {:?} and has no entry for {}: creel runs no helpers, use --user or {}",
                helper.chars().take(60).collect::<String>(),
                address.registry,
                super::credentials::USER_ENV,
            ));
        }
        Ok((None, notes))
    }

    /// The entries that are for this registry, the closest first: `r.example/a/b` before `r.example/a` before `r.example`.
    fn entries(&self, address: &Address) -> Vec<(&str, &Entry)> {
        let names = address.credential_names();
        let mut found: Vec<_> = self
            .auths
            .iter()
            .filter_map(|(key, entry)| {
                let plain = without_scheme(key);
                let (host, path) = plain.split_once('/').unwrap_or((plain, ""));
                let path = path.trim_end_matches('/');
                // docker's own keys end in the API's version.
                let path = if matches!(path, "v1" | "v2") { "" } else { path };
                let below = match address.repository.strip_prefix(path) {
                    Some(rest) => path.is_empty() || rest.is_empty() || rest.starts_with('/'),
                    None => false,
                };
                (names.contains(&host) && below).then_some((path.len(), key.as_str(), entry))
            })
            .collect();
        found.sort_by_key(|(len, ..)| std::cmp::Reverse(*len));
        found.into_iter().map(|(_, key, entry)| (key, entry)).collect()
    }
}

fn without_scheme(key: &str) -> &str {
    key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key)
}

fn host_of_key(key: &str) -> &str {
    without_scheme(key).split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(json: &str, reference: &str) -> Result<(Option<Login>, Vec<String>), RegistryError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        in_file(&path, true, &Address::of(&reference.parse().unwrap(), false, false))
    }

    fn user(json: &str, reference: &str) -> Option<(String, String)> {
        let (login, _) = look(json, reference).unwrap();
        login.map(|l| (l.user, l.password.reveal().to_owned()))
    }

    fn pair(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.to_owned(), password.to_owned()))
    }

    #[test]
    fn the_closest_entry_counts() {
        // a:one, b:two, c:thr:ee
        let file = r#"{"auths": {
            "r.example:5000": {"auth": "YTpvbmU="},
            "r.example:5000/team": {"auth": "Yjp0d28"},
            "https://index.docker.io/v1/": {"auth": "Yzp0aHI6ZWU="},
            "other.example": {"username": "d", "password": "four"},
            "empty.example": {}
        }, "unknown": [1]}"#;
        assert_eq!(user(file, "r.example:5000/x"), pair("a", "one"));
        assert_eq!(user(file, "r.example:5000/team/x"), pair("b", "two"));
        assert_eq!(user(file, "r.example:5000/teamwork/x"), pair("a", "one"));
        assert_eq!(user(file, "python"), pair("c", "thr:ee"));
        assert_eq!(user(file, "docker.io/a/b"), pair("c", "thr:ee"));
        assert_eq!(user(file, "other.example/x"), pair("d", "four"));
        // Another port, another registry; no entry.
        for none in ["r.example/x", "r.example:5001/x", "empty.example/x", "x.r.example:5000/x"] {
            assert_eq!(user(file, none), None, "{none}");
        }
    }

    #[test]
    fn helpers_and_identity_tokens_are_named() {
        let (login, notes) =
            look(r#"{"credsStore":"desktop","auths":{"r.example":{}}}"#, "r.example/x").unwrap();
        assert_eq!(login, None);
        assert!(notes[0].contains("\"desktop\"") && notes[0].contains("CREEL_REGISTRY_USER"), "{notes:?}");
        let (_, notes) = look(r#"{"credHelpers":{"r.example":"ecr"}}"#, "r.example/x").unwrap();
        assert!(notes[0].contains("\"ecr\""), "{notes:?}");
        let (_, notes) = look(r#"{"credHelpers":{"r.example":"ecr"}}"#, "s.example/x").unwrap();
        assert_eq!(notes, Vec::<String>::new());
        let (login, notes) =
            look(r#"{"auths":{"r.example":{"auth":"MDA6","identitytoken":"t0p"}}}"#, "r.example/x").unwrap();
        assert_eq!(login, None);
        assert!(notes[0].contains("identity token") && !notes[0].contains("t0p"), "{notes:?}");
    }

    #[test]
    fn a_broken_file_is_named_and_not_quoted() {
        for bad in [
            r#"{"auths": {"r.example": {"auth": "hunter2!"}}}"#,
            r#"{"auths": {"r.example": {"auth": "aHVudGVyMg=="}}}"#,
            r#"{"auths": {"r.example": {"auth": hunter2}}}"#,
            r#"{"auths": ["hunter2"]}"#,
            "",
            &"x".repeat(2 << 20),
        ] {
            let error = look(bad, "r.example/x").unwrap_err();
            assert_eq!(error.code(), "image.registry_credentials");
            let text = error.to_string();
            assert!(text.contains("config.json") && !text.contains("hunter2"), "{text}");
        }
        let missing = Path::new("/nonexistent/config.json");
        let address = Address::of(&"r.example/x".parse().unwrap(), false, false);
        assert!(in_file(missing, true, &address).is_err());
        assert_eq!(in_file(missing, false, &address).unwrap(), (None, vec![]));
    }
}
