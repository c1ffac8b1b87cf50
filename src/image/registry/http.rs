//! Connections: time-outs, certificate authorities, proxies.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, Proxy};

use super::address::is_loopback;
use super::error::{At, RegistryError, printable};
use super::limits::{Limits, MAX_HEADERS};
use super::resolve::Names;
use crate::text::io_reason;

const USER_AGENT: &str = concat!("creel/", env!("CARGO_PKG_VERSION"));
/// The largest file of certificates.
const MAX_CA: u64 = 4 << 20;
/// What the environment calls a proxy, in ureq's order.
const PROXY_ENV: [&str; 6] =
    ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

/// What an answer's body is, for its time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Small: it comes within [`Limits::answer`].
    Document,
    /// Of any length; who reads it watches the pace.
    Blob,
}

/// Makes requests. Redirects are not followed, and no status is an error.
#[derive(Debug)]
pub struct Http {
    limits: Limits,
    ca: Vec<Certificate<'static>>,
    proxy: Option<Proxy>,
    /// For this machine itself (never through a proxy, as in Go's and curl's clients), and for all else. The certificate authorities
    /// of the host are read when the first `https` address is asked for.
    plain: OnceLock<Agent>,
    direct: OnceLock<Agent>,
    proxied: OnceLock<Agent>,
}

impl Http {
    /// Reads `ca`, if there is one, and the proxy variables.
    pub fn new(ca: Option<&Path>, limits: &Limits) -> Result<Http, RegistryError> {
        let proxy = Proxy::try_from_env();
        let named = PROXY_ENV.iter().find(|n| std::env::var_os(n).is_some_and(|v| !v.is_empty()));
        if let (None, Some(name)) = (&proxy, named) {
            return Err(RegistryError::Proxy { reason: format!("{name} is no address of a proxy") });
        }
        let ca = ca.map_or_else(|| Ok(Vec::new()), read_ca)?;
        let limits = limits.clone();
        let agent = OnceLock::new;
        Ok(Http { limits, ca, proxy, plain: agent(), direct: agent(), proxied: agent() })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// One request and the head of its answer.
    pub fn get(
        &self,
        at: &At,
        uri: &Uri,
        headers: &[(HeaderName, HeaderValue)],
        expect: Expect,
    ) -> Result<Response<Body>, Failure> {
        let agent = self.agent(uri).map_err(Failure::Final)?;
        let whole = match expect {
            Expect::Document => Some(self.limits.answer),
            Expect::Blob => None,
        };
        let mut request = agent.get(uri).config().timeout_recv_body(whole).build();
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.call().map_err(|e| self.failure(at, uri, &e))
    }

    fn agent(&self, uri: &Uri) -> Result<&Agent, RegistryError> {
        let https = uri.scheme_str() == Some("https");
        let local = uri.host().is_some_and(is_loopback);
        let proxy = self.proxy.as_ref().filter(|_| !local);
        // A proxy may be spoken to by https itself.
        let (cell, tls) = match (https, proxy) {
            (_, Some(_)) => (&self.proxied, true),
            (true, None) => (&self.direct, true),
            (false, None) => (&self.plain, false),
        };
        if let Some(agent) = cell.get() {
            return Ok(agent);
        }
        let made = self.make(proxy.cloned(), tls)?;
        Ok(cell.get_or_init(|| made))
    }

    fn make(&self, proxy: Option<Proxy>, tls: bool) -> Result<Agent, RegistryError> {
        let roots = if tls { self.authorities()? } else { Vec::new() };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(proxy)
            .user_agent(USER_AGENT)
            .accept_encoding("")
            .max_response_header_size(MAX_HEADERS)
            .timeout_resolve(Some(self.limits.connect))
            .timeout_connect(Some(self.limits.connect))
            .timeout_send_request(Some(self.limits.stall))
            .timeout_recv_response(Some(self.limits.answer))
            .timeout_per_read(Some(self.limits.stall))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::from(roots)).build())
            .build();
        Ok(Agent::with_parts(config, DefaultConnector::new(), Names { timeout: self.limits.connect }))
    }

    /// Those of the host (or of `SSL_CERT_FILE` and `SSL_CERT_DIR`), and the caller's.
    fn authorities(&self) -> Result<Vec<Certificate<'static>>, RegistryError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots: Vec<_> =
            found.certs.iter().map(|c| Certificate::from_der(c.as_ref()).to_owned()).collect();
        roots.extend(self.ca.iter().cloned());
        if roots.is_empty() { Err(RegistryError::NoAuthorities) } else { Ok(roots) }
    }

    fn failure(&self, at: &At, uri: &Uri, error: &ureq::Error) -> Failure {
        let at = at.clone();
        let host = uri.host().unwrap_or_default();
        let reason = match error {
            ureq::Error::HostNotFound => format!("the name {host:?} is not known"),
            other => said_by(other, &self.limits),
        };
        let reason = if at.registry().contains(host) { reason } else { format!("{reason} (host {host:?})") };
        match error {
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::TlsRequired => {
                Failure::Final(RegistryError::Tls { at, reason })
            }
            // rustls tells its errors through the reader.
            ureq::Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
                Failure::Final(RegistryError::Tls { at, reason })
            }
            ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) | ureq::Error::Http(_) => {
                Failure::Final(RegistryError::Malformed { at, what: "the answer".into(), reason })
            }
            ureq::Error::InvalidProxyUrl | ureq::Error::ConnectProxyFailed(_) => {
                Failure::Final(RegistryError::Proxy { reason })
            }
            ureq::Error::Io(e) if broke(e) => Failure::Broke(RegistryError::Unreachable { at, reason }),
            _ => Failure::Final(RegistryError::Unreachable { at, reason }),
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The connection stood and was cut: another try may do.
    Broke(RegistryError),
    Final(RegistryError),
}

impl From<Failure> for RegistryError {
    fn from(failure: Failure) -> RegistryError {
        match failure {
            Failure::Broke(e) | Failure::Final(e) => e,
        }
    }
}

/// In words what ended a body.
pub fn broke_off(error: &io::Error, limits: &Limits) -> String {
    match error.get_ref().and_then(|e| e.downcast_ref::<ureq::Error>()) {
        Some(error) => said_by(error, limits),
        None => printable(&error.to_string()),
    }
}

fn said_by(error: &ureq::Error, limits: &Limits) -> String {
    use ureq::Timeout::{Connect, PerRead, Resolve};
    match error {
        ureq::Error::Timeout(Resolve | Connect) => {
            format!("no connection within {}", seconds(limits.connect))
        }
        ureq::Error::Timeout(PerRead) => format!("nothing came for {}", seconds(limits.stall)),
        ureq::Error::Timeout(_) => format!("no whole answer within {}", seconds(limits.answer)),
        ureq::Error::Io(e) => printable(&io_reason(e)),
        other => printable(&other.to_string()),
    }
}

fn broke(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// `30 s`
pub fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn read_ca(path: &Path) -> Result<Vec<Certificate<'static>>, RegistryError> {
    use std::io::Read;
    let unusable = |reason: String| RegistryError::Ca { path: path.to_owned(), reason };
    let (file, _) = crate::regular::open(path).map_err(|e| unusable(e.to_string()))?;
    let mut text = Vec::new();
    file.take(MAX_CA + 1).read_to_end(&mut text).map_err(|e| unusable(e.to_string()))?;
    if text.len() as u64 > MAX_CA {
        return Err(unusable("it is larger than 4 MiB".into()));
    }
    let mut found = Vec::new();
    for item in ureq::tls::parse_pem(&text) {
        match item.map_err(|e| unusable(printable(&e.to_string())))? {
            PemItem::Certificate(certificate) => found.push(certificate),
            _ => {
                return Err(unusable(
                    "it holds a private key: name the file of the certificates only".into(),
                ));
            }
        }
    }
    if found.is_empty() { Err(unusable("there is no certificate in it (PEM)".into())) } else { Ok(found) }
}
