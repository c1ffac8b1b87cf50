//! One question to a registry: redirects followed, and asked again when it asks to wait.

use std::thread;
use std::time::{Duration, Instant};

use ureq::Body;
use ureq::http::header::{AUTHORIZATION, HeaderMap, LOCATION, RETRY_AFTER};
use ureq::http::{HeaderName, HeaderValue, Response, StatusCode, Uri};

use super::credentials::Secret;
use super::error::{At, RegistryError, Said, Wait};
use super::http::{Expect, Failure, Http};
use super::limits::{MAX_ERROR_BODY, MAX_REDIRECTS, MAX_RETRY_AFTER};

/// An answer, of whatever status but a redirect.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<Body>,
    /// Another host than the one asked has answered: its 401 is not the registry's.
    pub elsewhere: bool,
}

/// Asks for `uri`. `authorization` goes to that host only.
pub fn get(
    http: &Http,
    at: &At,
    uri: &str,
    headers: &[(HeaderName, HeaderValue)],
    authorization: Option<&Secret>,
    expect: Expect,
) -> Result<Answer, RegistryError> {
    let uri: Uri = uri.parse().map_err(|_| malformed(at, "the address", "it is no valid URI"))?;
    let mut broke = false;
    let mut n = 0;
    loop {
        let answer = match hops(http, at, uri.clone(), headers, authorization, expect) {
            // A connection kept from the last question may have been closed meanwhile.
            Err(Failure::Broke(_)) if !broke => {
                broke = true;
                continue;
            }
            answer => answer?,
        };
        let status = answer.response.status();
        if !puts_off(status) {
            return Ok(answer);
        }
        let asked = retry_after(answer.response.headers());
        if n == http.limits().retries || asked.is_some_and(|t| t > MAX_RETRY_AFTER) {
            let said = said(answer.response, http.limits().answer);
            return Err(RegistryError::Busy {
                at: at.clone(),
                status: status.as_u16(),
                said,
                wait: Wait(asked),
            });
        }
        drop(answer);
        thread::sleep(asked.unwrap_or_else(|| http.limits().pause(n)));
        n += 1;
    }
}

/// What the body of an error says, as far as it comes within `time`: half of it is no JSON and says nothing.
pub fn said(response: Response<Body>, time: Duration) -> Said {
    use std::io::Read;
    let until = Instant::now() + time;
    let mut reader = response.into_body().into_reader().take(MAX_ERROR_BODY);
    let mut body = Vec::new();
    let mut buf = [0; 4096];
    while Instant::now() < until {
        match reader.read(&mut buf) {
            Ok(n) if n > 0 => body.extend_from_slice(&buf[..n]),
            _ => break,
        }
    }
    Said::from_body(&body)
}

fn hops(
    http: &Http,
    at: &At,
    mut uri: Uri,
    headers: &[(HeaderName, HeaderValue)],
    authorization: Option<&Secret>,
    expect: Expect,
) -> Result<Answer, Failure> {
    let refused = |reason: String| Failure::Final(RegistryError::Redirect { at: at.clone(), reason });
    let mut headers = headers.to_vec();
    if let Some(secret) = authorization {
        let mut value = HeaderValue::from_str(secret.reveal())
            .map_err(|_| Failure::Final(malformed(at, "the login", "it can't be sent in a header")))?;
        value.set_sensitive(true);
        headers.push((AUTHORIZATION, value));
    }
    let mut elsewhere = false;
    for _ in 0..=MAX_REDIRECTS {
        let response = http.get(at, &uri, &headers, expect)?;
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(Answer { response, elsewhere });
        }
        let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok());
        let next =
            location.and_then(|l| join(&uri, l)).ok_or_else(|| refused("it names no address".into()))?;
        match (uri.scheme_str(), next.scheme_str()) {
            (_, Some("https")) | (Some("http"), Some("http")) => {}
            (Some("https"), Some("http")) => return Err(refused("it leads from https to http".into())),
            _ => return Err(refused("it leads to something that is neither http nor https".into())),
        }
        if next.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(refused("it has a user in its address".into()));
        }
        // Once dropped it does not come back: the way home may have been chosen by a stranger. (CVE-2018-1000007 in curl,
        // CVE-2020-15157 in containerd: registries' credentials sent to the host of a redirect.)
        if origin(&next) != origin(&uri) {
            elsewhere = true;
            headers.retain(|(name, _)| name != AUTHORIZATION);
        }
        uri = next;
    }
    Err(refused(format!("there are more than {MAX_REDIRECTS} one after the other")))
}

/// 500 is not among them: it mostly comes again.
fn puts_off(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// Seconds. (A date, the other form, is for HTML pages; the pause is then our own.)
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Scheme, host and port, the default port filled in.
fn origin(uri: &Uri) -> (String, String, u16) {
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    (scheme, uri.host().unwrap_or_default().to_ascii_lowercase(), port)
}

/// The address that `location` means in an answer of `base`.
fn join(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next()?;
    let scheme = base.scheme_str()?;
    let authority = base.authority()?.as_str();
    let is_absolute = location.find("://").is_some_and(|n| {
        let word = &location.as_bytes()[..n];
        !word.is_empty() && word.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
    });
    let whole = if is_absolute {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.is_empty() {
        return None;
    } else {
        let dir = base.path().rfind('/').map_or("/", |n| &base.path()[..=n]);
        format!("{scheme}://{authority}{dir}{location}")
    };
    let uri: Uri = whole.parse().ok()?;
    uri.host().filter(|h| !h.is_empty())?;
    Some(uri)
}

fn malformed(at: &At, what: &str, reason: &str) -> RegistryError {
    RegistryError::Malformed { at: at.clone(), what: what.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_redirect_leads() {
        let base: Uri = "https://r.example:5000/v2/a/blobs/x".parse().unwrap();
        for (location, expected) in [
            ("https://cdn.example/y?sig=1#top", "https://cdn.example/y?sig=1"),
            ("//cdn.example/y", "https://cdn.example/y"),
            ("/y?to=http://x", "https://r.example:5000/y?to=http://x"),
            ("y", "https://r.example:5000/v2/a/blobs/y"),
            ("http://cdn.example/", "http://cdn.example/"),
            ("file://host/etc/passwd", "file://host/etc/passwd"),
        ] {
            assert_eq!(join(&base, location).unwrap().to_string(), expected);
        }
        for none in ["", "#x", "https://", "https:///x", "https://a b/", "//", "\u{7f}"] {
            assert_eq!(join(&base, none), None, "{none:?}");
        }
    }

    #[test]
    fn an_origin_has_a_port() {
        let o = |uri: &str| origin(&uri.parse().unwrap());
        assert_eq!(o("https://R.example/a"), o("https://r.example:443/b"));
        for other in ["http://r.example:443/", "https://r.example:444/", "https://x.r.example/"] {
            assert_ne!(o("https://r.example/"), o(other));
        }
    }

    #[test]
    fn seconds_to_wait() {
        let after = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        for other in ["", "-1", "Fri, 31 Dec 1999 23:59:59 GMT", "99999999999999999999999"] {
            assert_eq!(after(other), None, "{other}");
        }
    }
}
