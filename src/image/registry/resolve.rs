//! Names to addresses, from a static binary.
//!
//! `getaddrinfo` in a static glibc binary loads the host's NSS modules, and with them the host's glibc, which may be another version: that ends in a
//! crash (rust-lang/rust#100711). So the host's own `getent` is asked, a program of the same glibc as its modules; it answers
//! what any other program of this host would get. Only a host without `getent` is served by the linked-in resolver: such a
//! host (a bare container) has no modules to load either.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Addresses of a name that are tried: as many as ureq takes.
const MAX_ADDRESSES: usize = 16;
/// What is read of `getent`'s answer.
const MAX_ANSWER: u64 = 64 << 10;

/// Resolves names for the HTTP client.
#[derive(Debug)]
pub struct Names {
    pub timeout: Duration,
}

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        let mut found = self.empty();
        for ip in addresses(host, self.timeout)?.into_iter().take(MAX_ADDRESSES) {
            found.push(SocketAddr::new(ip, port));
        }
        if found.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(found) }
    }
}

/// The addresses of a host, best first; none when it has none.
fn addresses(host: &str, timeout: Duration) -> io::Result<Vec<IpAddr>> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse() {
        return Ok(vec![ip]);
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    // The host of a redirect is a stranger's word, and becomes an argument.
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if host.is_empty() || host.len() > 253 || host.starts_with('-') || !host.bytes().all(sound) {
        return Ok(Vec::new());
    }
    match getent(host, timeout) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => linked_in(host),
        answer => Ok(parse(&answer?)),
    }
}

fn getent(host: &str, timeout: Duration) -> io::Result<String> {
    let mut child = Command::new("getent")
        .args(["ahosts", host])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (send, receive) = mpsc::sync_channel(1);
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.map(|out| out.take(MAX_ANSWER).read_to_end(&mut text));
        // The receiver is gone after a timeout.
        let _ = send.send(read.transpose().map(|_| text));
    });
    let answer = receive.recv_timeout(timeout);
    // It has answered, or it is too late: either way nothing more is wanted of it.
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    match answer {
        Ok(text) => Ok(String::from_utf8_lossy(&text?).into_owned()),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer for the name {host:?}"))),
    }
}

/// `192.0.2.1  STREAM name` and so on, a line for each address and socket type.
fn parse(answer: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for line in answer.lines() {
        if let Some(ip) = line.split_whitespace().next().and_then(|word| word.parse().ok())
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

fn linked_in(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|a| a.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn addresses_need_no_resolver() {
        assert_eq!(addresses("127.0.0.1", TIMEOUT).unwrap(), [IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(addresses("[::1]", TIMEOUT).unwrap(), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        assert_eq!(addresses("LocalHost", TIMEOUT).unwrap().len(), 2);
    }

    #[test]
    fn odd_names_are_asked_of_nobody() {
        for odd in ["", "-s", "a b", "a/b", "名", &"a.".repeat(200)] {
            assert_eq!(addresses(odd, TIMEOUT).unwrap(), Vec::<IpAddr>::new(), "{odd:?}");
        }
    }

    #[test]
    fn the_answer_of_getent() {
        let answer =
            "2001:db8::1     STREAM deb.debian.org\n2001:db8::1     DGRAM  \n192.0.2.1 STREAM \nx\n\n";
        assert_eq!(parse(answer), ["2001:db8::1".parse::<IpAddr>().unwrap(), IpAddr::from([192, 0, 2, 1])]);
    }

    #[test]
    fn a_name_of_the_hosts_file() {
        // Each host has its own name or localhost there; `ip6-localhost` and the like differ. `getent` itself says what is right.
        let name = std::fs::read_to_string("/etc/hosts")
            .unwrap()
            .lines()
            .filter_map(|l| l.split('#').next()?.split_whitespace().nth(1).map(str::to_owned))
            .find(|n| n != "localhost");
        let Some(name) = name else { return };
        assert!(!addresses(&name, TIMEOUT).unwrap().is_empty(), "{name}");
        assert_eq!(addresses("no-such-name.invalid", TIMEOUT).unwrap_or_default(), Vec::<IpAddr>::new());
    }
}
