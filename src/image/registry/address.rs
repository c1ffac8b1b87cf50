//! Where the registry of an image is: host, scheme and the repository's name there.

use std::net::{IpAddr, Ipv4Addr};

use super::error::At;
use crate::image::oci::Reference;

/// What a name without a registry means, as in docker.
const DOCKER: &str = "docker.io";
const DOCKER_ALIASES: [&str; 3] = [DOCKER, "index.docker.io", "registry-1.docker.io"];
/// The host behind the name `docker.io`.
const DOCKER_HOST: &str = "registry-1.docker.io";

/// Where an image is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The registry's name for people and in credential files: `docker.io`, `127.0.0.1:5000`.
    pub registry: String,
    /// `host[:port]` of requests.
    host: String,
    /// The repository as the registry knows it: `library/python`.
    pub repository: String,
    /// `http` instead of `https`.
    pub plain: bool,
}

impl Address {
    /// The address of `reference`. `plain_http` means `http` whatever the host; without it only this machine is spoken to so, and not
    /// even that when the caller has certificate authorities for it (`has_ca`).
    pub fn of(reference: &Reference, plain_http: bool, has_ca: bool) -> Address {
        let registry = reference.registry.as_deref().unwrap_or(DOCKER);
        if DOCKER_ALIASES.contains(&registry.to_ascii_lowercase().as_str()) {
            let repository = match reference.repository.contains('/') {
                true => reference.repository.clone(),
                false => format!("library/{}", reference.repository),
            };
            return Address { registry: DOCKER.into(), host: DOCKER_HOST.into(), repository, plain: false };
        }
        Address {
            registry: registry.to_owned(),
            host: registry.to_owned(),
            repository: reference.repository.clone(),
            plain: plain_http || !has_ca && is_loopback(host_of(registry)),
        }
    }

    /// `https://host/v2/repository/kind/name`
    pub(super) fn uri(&self, kind: &str, name: &str) -> String {
        let scheme = if self.plain { "http" } else { "https" };
        format!("{scheme}://{}/v2/{}/{kind}/{name}", self.host, self.repository)
    }

    pub(super) fn at(&self) -> At {
        At::new(&self.registry, &self.repository)
    }

    /// The names under which a credential file may have this registry.
    pub(super) fn credential_names(&self) -> Vec<&str> {
        match self.registry.as_str() {
            DOCKER => DOCKER_ALIASES.to_vec(),
            other => vec![other],
        }
    }
}

/// `host` of `host[:port]`, an IPv6 address without its brackets.
pub(super) fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Is this host the machine we run on? By its name or address alone: nothing is resolved.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || matches!(ip, IpAddr::V6(v6) if mapped_loopback(v6)),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn mapped_loopback(v6: std::net::Ipv6Addr) -> bool {
    v6.to_ipv4_mapped().as_ref().is_some_and(Ipv4Addr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(reference: &str, plain_http: bool) -> String {
        let reference: Reference = reference.parse().unwrap();
        Address::of(&reference, plain_http, false).uri("manifests", &reference.tag_or_digest())
    }

    #[test]
    fn names_without_a_registry_are_dockers() {
        let python = "https://registry-1.docker.io/v2/library/python/manifests/3.11";
        for name in ["python:3.11", "docker.io/python:3.11", "index.docker.io/library/python:3.11"] {
            assert_eq!(uri(name, false), python, "{name}");
        }
        assert_eq!(uri("a/b", false), "https://registry-1.docker.io/v2/a/b/manifests/latest");
        // Docker Hub speaks https whatever the caller allows.
        assert_eq!(uri("python:3.11", true), python);
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        for local in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            let name = format!("{local}/x");
            assert!(uri(&name, false).starts_with("http://"), "{local}");
            assert!(!Address::of(&name.parse().unwrap(), false, true).plain, "{local}");
        }
        for remote in ["r.example", "10.0.0.1:5000", "localhost.example:80", "127.0.0.1.example", "[fe80::1]"]
        {
            assert!(uri(&format!("{remote}/x"), false).starts_with("https://"), "{remote}");
            assert!(uri(&format!("{remote}/x"), true).starts_with("http://"), "{remote}");
        }
    }
}
