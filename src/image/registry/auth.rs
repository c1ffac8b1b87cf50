//! Logging in: what a registry's 401 asks for.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use ureq::http::Uri;

use super::address::{Address, is_loopback};
use super::challenge::Challenge;
use super::credentials::{Login, Secret};
use super::error::RegistryError;
use super::follow;
use super::http::{Expect, Http};
use super::limits::MAX_TOKEN;

/// The longest token: it is sent with each request.
const MAX_TOKEN_TEXT: usize = 48 << 10;

/// The login in force, shared by all downloads of a pull.
#[derive(Debug)]
pub struct Auth {
    login: Option<Login>,
    /// The caller allows plain http everywhere, passwords included.
    plain_http: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the renewals, so that of two downloads whose token ran out only one asks for a new one.
    generation: u64,
    header: Option<Secret>,
}

impl Auth {
    pub fn new(login: Option<Login>, plain_http: bool) -> Auth {
        Auth { login, plain_http, state: Mutex::default() }
    }

    /// The value of `Authorization`, and which one it is.
    pub fn current(&self) -> (u64, Option<Secret>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.generation, state.header.clone())
    }

    /// What may help when a login was refused.
    pub fn hint(&self) -> String {
        match &self.login {
            Some(login) => format!(
                "check the repository's name, the password of user {:?}, and that this user may pull",
                login.user.chars().take(60).collect::<String>()
            ),
            None => "check the repository's name, or log in with --user, or CREEL_REGISTRY_USER and CREEL_REGISTRY_PASSWORD"
                .to_owned(),
        }
    }

    /// Answers the challenges of a 401 to a request that was made with `generation`. After `Ok`, the request is worth repeating;
    /// `false`: another request has renewed the login meanwhile.
    pub fn renew(
        &self,
        http: &Http,
        address: &Address,
        challenges: &[Challenge],
        generation: u64,
    ) -> Result<bool, RegistryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation != generation {
            return Ok(false);
        }
        let refused = |reason: &str| RegistryError::LoginRefused { at: address.at(), reason: reason.into() };
        let bearer = challenges.iter().find_map(|c| match c {
            Challenge::Bearer { realm, service, scope } => {
                Some((realm, service.as_deref(), scope.as_deref()))
            }
            Challenge::Basic => None,
        });
        let header = match bearer {
            Some((realm, service, scope)) => self.token(http, address, realm, service, scope)?,
            None if challenges.contains(&Challenge::Basic) => match &self.login {
                Some(login) => login.header(),
                None => {
                    return Err(refused(
                        "it asks for a user and a password: use --user, or CREEL_REGISTRY_USER and CREEL_REGISTRY_PASSWORD",
                    ));
                }
            },
            None => return Err(refused("it names neither Basic nor Bearer (WWW-Authenticate)")),
        };
        state.header = Some(header);
        state.generation += 1;
        Ok(true)
    }

    fn token(
        &self,
        http: &Http,
        address: &Address,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<Secret, RegistryError> {
        let at = address.at();
        let malformed = |reason: &str| RegistryError::Malformed {
            at: at.clone(),
            what: "the token server's answer".into(),
            reason: reason.into(),
        };
        let plain = self.check_realm(address, realm)?;
        let mut uri = realm.split('#').next().unwrap_or_default().to_owned();
        let own_scope = format!("repository:{}:pull", address.repository);
        for (name, value) in [
            ("service", service),
            ("scope", Some(scope.unwrap_or(&own_scope))),
            ("account", self.login.as_ref().map(|l| l.user.as_str())),
        ] {
            if let Some(value) = value {
                uri.push(if uri.contains('?') { '&' } else { '?' });
                uri.push_str(name);
                uri.push('=');
                encode(&mut uri, value);
            }
        }
        let basic = self.login.as_ref().map(Login::header);
        if plain && basic.is_some() && !self.may_send_in_the_clear(realm) {
            return Err(RegistryError::LoginRefused {
                at,
                reason: "the token server would get the password in the clear: --plain-http allows it".into(),
            });
        }
        let answer = follow::get(http, &at, &uri, &[], basic.as_ref(), Expect::Document)?;
        let status = answer.response.status().as_u16();
        if status != 200 {
            let said = follow::said(answer.response, http.limits().answer);
            return Err(RegistryError::Login { at, status, said, hint: self.hint() });
        }
        let body = super::client::read_document(
            &at,
            "the token server's answer",
            answer.response,
            MAX_TOKEN,
            http.limits(),
        )?;
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|_| malformed("it is no JSON object with a token"))?;
        let given = |t: &String| !t.is_empty();
        let token = answer.token.filter(given).or(answer.access_token.filter(given));
        let token = token.ok_or_else(|| malformed("it has neither token nor access_token"))?;
        if token.len() > MAX_TOKEN_TEXT || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(malformed("its token is too long, or has characters that no token has"));
        }
        Ok(Secret::new(format!("Bearer {token}")))
    }

    /// True: the token server speaks plain http.
    fn check_realm(&self, address: &Address, realm: &str) -> Result<bool, RegistryError> {
        let refused = |reason: &str| RegistryError::LoginRefused { at: address.at(), reason: reason.into() };
        let uri: Uri = realm.parse().map_err(|_| refused("its token server's address is no URI"))?;
        if uri.authority().is_none_or(|a| a.as_str().contains('@') || a.host().is_empty()) {
            return Err(refused("its token server's address has no host, or a user in it"));
        }
        match (uri.scheme_str(), address.plain) {
            (Some("https"), _) => Ok(false),
            (Some("http"), true) => Ok(true),
            (Some("http"), false) => Err(refused("its token server speaks plain http")),
            _ => Err(refused("its token server's address is neither http nor https")),
        }
    }

    fn may_send_in_the_clear(&self, realm: &str) -> bool {
        self.plain_http || realm.parse::<Uri>().is_ok_and(|u| u.host().is_some_and(is_loopback))
    }
}

/// As in a URI's query: everything but RFC 3986's unreserved characters as `%XX`.
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => out.push(char::from(b)),
            // Writing to a String can't fail.
            b => _ = write!(out, "%{b:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::registry::limits::Limits;

    fn renew(reference: &str, plain_http: bool, challenge: &str) -> RegistryError {
        let login = Login::new("anna", Secret::new("hunter2")).unwrap();
        let auth = Auth::new(Some(login), plain_http);
        let limits = Limits { retries: 0, ..Limits::default() };
        let http = Http::new(None, &limits).unwrap();
        let address = Address::of(&reference.parse().unwrap(), plain_http, false);
        auth.renew(&http, &address, &super::super::challenge::parse(challenge), 0).unwrap_err()
    }

    #[test]
    fn realms_that_get_no_password() {
        for (reference, challenge, reason) in [
            ("r.example/x", "Bearer realm=\"http://r.example/token\"", "plain http"),
            ("r.example/x", "Bearer realm=\"file:///etc/passwd\"", "URI"),
            ("r.example/x", "Bearer realm=\"ftp://r.example/t\"", "neither http nor https"),
            ("r.example/x", "Bearer realm=\"/token\"", "no host"),
            ("r.example/x", "Bearer realm=\"https://a:b@r.example/t\"", "a user in it"),
            ("localhost:1/x", "Bearer realm=\"http://192.0.2.1/t\"", "in the clear"),
            ("localhost:1/x", "Digest realm=\"x\"", "neither Basic nor Bearer"),
        ] {
            let error = renew(reference, false, challenge);
            assert_eq!(error.code(), "image.registry_login_refused", "{challenge}");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_query_is_encoded() {
        let mut out = String::new();
        encode(&mut out, "repository:a/b:pull&x=1 é");
        assert_eq!(out, "repository%3Aa%2Fb%3Apull%26x%3D1%20%C3%A9");
    }
}
