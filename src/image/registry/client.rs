//! The distribution API's two questions: a manifest, and a blob.

use std::io::Read;
use std::path::PathBuf;

use ureq::Body;
use ureq::BodyReader;
use ureq::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE, WWW_AUTHENTICATE};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::address::Address;
use super::auth::Auth;
use super::challenge;
use super::credentials::Login;
use super::document::{self, Document};
use super::error::{At, RegistryError};
use super::follow::{self, Answer};
use super::http::{Expect, Http, broke_off};
use super::limits::{Limits, MAX_DOCUMENT};
use crate::image::oci::{Digest, Reference};

/// The documents that are asked for.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// How often one request is repeated after a 401.
const MAX_LOGINS: u32 = 4;
/// The digest that a registry gives a manifest.
const DOCKER_CONTENT_DIGEST: &str = "docker-content-digest";

/// How a registry is spoken to.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `None`: anonymous.
    pub login: Option<Login>,
    /// Plain http for any host, passwords included; without it only for this machine.
    pub plain_http: bool,
    /// A file of certificate authorities in PEM, taken besides those of the host.
    pub ca: Option<PathBuf>,
    pub limits: Limits,
}

/// Speaks to one repository of one registry.
#[derive(Debug)]
pub struct Client {
    address: Address,
    http: Http,
    auth: Auth,
}

/// A part of a blob, as it comes. Nothing of it is checked but that it begins where it was asked to.
pub struct BlobStream {
    /// Where in the blob it begins: as asked, or 0.
    pub from: u64,
    pub reader: BodyReader<'static>,
}

impl std::fmt::Debug for BlobStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobStream").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// [`RegistryError::Ca`] and [`RegistryError::Proxy`].
    pub fn new(reference: &Reference, access: &Access) -> Result<Client, RegistryError> {
        Ok(Client {
            address: Address::of(reference, access.plain_http, access.ca.is_some()),
            http: Http::new(access.ca.as_deref(), &access.limits)?,
            auth: Auth::new(access.login.clone(), access.plain_http),
        })
    }

    /// For messages.
    pub fn at(&self) -> At {
        self.address.at()
    }

    pub fn limits(&self) -> &Limits {
        self.http.limits()
    }

    /// The manifest or index of a tag or digest, at most [`MAX_DOCUMENT`] bytes. With a digest, it is the one that was asked for.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn document(&self, tag: &str, digest: Option<&Digest>) -> Result<Document, RegistryError> {
        let name = digest.map_or_else(|| tag.to_owned(), Digest::to_string);
        let what = match digest {
            Some(digest) => format!("the manifest {digest}"),
            None => format!("the tag {tag:?}"),
        };
        let accept = [(ACCEPT, HeaderValue::from_static(ACCEPTED))];
        let response = self.ask("manifests", &name, &accept, Expect::Document)?;
        if response.status() != 200 {
            return Err(self.refused(what, response));
        }
        let said_type = text(response.headers(), CONTENT_TYPE);
        let said_digest: Option<Digest> =
            text(response.headers(), HeaderName::from_static(DOCKER_CONTENT_DIGEST))
                .and_then(|d| d.parse().ok());
        let bytes = read_document(&self.at(), &what, response, MAX_DOCUMENT, self.limits())?;
        let found = Digest::of(&bytes);
        if digest.or(said_digest.as_ref()).is_some_and(|expected| *expected != found) {
            return Err(RegistryError::WrongDigest { at: self.at(), what, found });
        }
        document::parse(bytes, found, said_type.as_deref()).map_err(|reason| RegistryError::Malformed {
            at: self.at(),
            what,
            reason,
        })
    }

    /// A blob's bytes from `from` on.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn blob(&self, digest: &Digest, size: u64, from: u64) -> Result<BlobStream, RegistryError> {
        let what = format!("the blob {digest}");
        let malformed =
            |reason: String| RegistryError::Malformed { at: self.at(), what: what.clone(), reason };
        let mut range = Vec::new();
        if from > 0 {
            // Digits and ASCII only.
            let value =
                HeaderValue::from_str(&format!("bytes={from}-")).map_err(|e| malformed(e.to_string()))?;
            range.push((RANGE, value));
        }
        let response = self.ask("blobs", &digest.to_string(), &range, Expect::Blob)?;
        let begins = match response.status().as_u16() {
            200 => 0,
            206 if from > 0 => {
                let begins = content_range(response.headers(), size);
                begins
                    .filter(|n| *n == from)
                    .ok_or_else(|| malformed("it is not the part that was asked for".into()))?
            }
            // What is kept is of no use: all of it again.
            416 if from > 0 => return self.blob(digest, size, 0),
            _ => return Err(self.refused(what, response)),
        };
        let length = text(response.headers(), CONTENT_LENGTH).and_then(|l| l.parse::<u64>().ok());
        if length.is_some_and(|length| length > size - begins) {
            return Err(RegistryError::TooLarge { at: self.at(), what, max: size });
        }
        Ok(BlobStream { from: begins, reader: response.into_body().into_reader() })
    }

    /// Asks, and logs in when the registry wants that: before the first question, and when a token ran out.
    fn ask(
        &self,
        kind: &str,
        name: &str,
        headers: &[(HeaderName, HeaderValue)],
        expect: Expect,
    ) -> Result<Response<Body>, RegistryError> {
        let at = self.at();
        let uri = self.address.uri(kind, name);
        // One login of our own; a token that another download got may have run out before we came to use it.
        let (mut renewed, mut tries) = (false, 0);
        loop {
            let (generation, authorization) = self.auth.current();
            let Answer { response, elsewhere } =
                follow::get(&self.http, &at, &uri, headers, authorization.as_ref(), expect)?;
            if response.status() != 401 || elsewhere || renewed || tries == MAX_LOGINS {
                return Ok(response);
            }
            tries += 1;
            let challenges: Vec<_> = response
                .headers()
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .take(8)
                .flat_map(|v| challenge::parse(&String::from_utf8_lossy(v.as_bytes())))
                .collect();
            drop(response);
            renewed = self.auth.renew(&self.http, &self.address, &challenges, generation)?;
        }
    }

    fn refused(&self, what: String, response: Response<Body>) -> RegistryError {
        let at = self.at();
        let status = response.status().as_u16();
        let said = follow::said(response, self.limits().answer);
        match status {
            401 | 403 => RegistryError::Login { at, status, said, hint: self.auth.hint() },
            404 => RegistryError::NotFound { at, what, status, said },
            _ => {
                // What Go's servers, and nginx, answer to http on a port of https.
                let hint = match status == 400 && self.address.plain {
                    true => {
                        "; it was asked by plain http: if it speaks https, give --ca FILE and no --plain-http"
                    }
                    false => "",
                };
                RegistryError::Status { at, what, status, said, hint }
            }
        }
    }
}

/// The body, if it has at most `max` bytes, whatever it says of its length.
pub fn read_document(
    at: &At,
    what: &str,
    response: Response<Body>,
    max: u64,
    limits: &Limits,
) -> Result<Vec<u8>, RegistryError> {
    let too_large = || RegistryError::TooLarge { at: at.clone(), what: what.into(), max };
    let body = response.into_body();
    if body.content_length().is_some_and(|length| length > max) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    body.into_reader().take(max + 1).read_to_end(&mut bytes).map_err(|e| RegistryError::Unreachable {
        at: at.clone(),
        reason: format!("{what} broke off: {}", broke_off(&e, limits)),
    })?;
    if bytes.len() as u64 > max { Err(too_large()) } else { Ok(bytes) }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}

/// Where `Content-Range: bytes FIRST-LAST/SIZE` begins, if the size is right (or `*`).
fn content_range(headers: &HeaderMap, size: u64) -> Option<u64> {
    let value = text(headers, CONTENT_RANGE)?;
    let (range, total) = value.strip_prefix("bytes")?.trim_start().split_once('/')?;
    if total != "*" && total.parse() != Ok(size) {
        return None;
    }
    range.split_once('-')?.0.trim().parse().ok()
}
