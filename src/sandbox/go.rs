//! The order to go, as it travels from the caller to the launcher to init: what was not known yet when they were forked, so that each can
//! be got ready while the others work.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::channel;

/// The compiled system-call filter as bytes of a packet.
pub fn filter_bytes(filter: &[libc::sock_filter]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(filter.len() * 8);
    for i in filter {
        bytes.extend_from_slice(&i.code.to_ne_bytes());
        bytes.extend_from_slice(&[i.jt, i.jf]);
        bytes.extend_from_slice(&i.k.to_ne_bytes());
    }
    bytes
}

/// [`filter_bytes`] back again; `None` when it is none.
fn filter_of(bytes: &[u8]) -> Option<Vec<libc::sock_filter>> {
    let instructions = bytes.chunks_exact(8);
    if bytes.is_empty() || !instructions.remainder().is_empty() {
        return None;
    }
    let one = |b: &[u8]| libc::sock_filter {
        code: u16::from_ne_bytes([b[0], b[1]]),
        jt: b[2],
        jf: b[3],
        k: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
    };
    Some(instructions.map(one).collect())
}

/// What init is told last.
pub struct Go {
    pub filter: Vec<libc::sock_filter>,
    /// Detached trees: the root, `/dev`, and what is bound where.
    pub root: OwnedFd,
    pub dev: OwnedFd,
    pub binds: Vec<(OwnedFd, String)>,
    /// See `cgroup::enter`.
    pub entrances: Vec<OwnedFd>,
}

impl Go {
    /// Sends it: length of the filter, filter, targets with a NUL after each; as descriptors the trees and then the entrances.
    pub fn send(
        to: BorrowedFd<'_>,
        filter: &[u8],
        root: BorrowedFd<'_>,
        dev: BorrowedFd<'_>,
        binds: &[(OwnedFd, String)],
        entrances: &[BorrowedFd<'_>],
    ) -> std::io::Result<()> {
        let mut data = (filter.len() as u32).to_ne_bytes().to_vec();
        data.extend_from_slice(filter);
        let mut fds = vec![root, dev];
        for (tree, target) in binds {
            data.extend_from_slice(target.as_bytes());
            data.push(0);
            fds.push(tree.as_fd());
        }
        fds.extend_from_slice(entrances);
        channel::send(to, &data, &fds)
    }

    /// Waits for it. `None` when the launcher is gone or the packet is not whole.
    pub fn receive(from: BorrowedFd<'_>) -> Option<Go> {
        let (data, fds) = channel::receive(from, channel::LONG).ok()?;
        let (len, rest) = data.split_first_chunk::<4>()?;
        let (filter, targets) = rest.split_at_checked(u32::from_ne_bytes(*len) as usize)?;
        let mut fds = fds.into_iter();
        let (root, dev) = (fds.next()?, fds.next()?);
        let targets: Vec<&[u8]> = targets.split_inclusive(|&b| b == 0).collect();
        if targets.len() > fds.len() {
            return None;
        }
        let name = |t: &[u8]| String::from_utf8(t.strip_suffix(b"\0")?.to_vec()).ok();
        let mut binds = Vec::with_capacity(targets.len());
        for t in targets {
            binds.push((fds.next()?, name(t)?));
        }
        Some(Go { filter: filter_of(filter)?, root, dev, binds, entrances: fds.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives() {
        let (a, b) = channel::pair().unwrap();
        let filter = [libc::sock_filter { code: 0x15, jt: 1, jf: 2, k: 0xdead_beef }; 3];
        let binds = vec![
            (a.try_clone().unwrap(), "/work".to_owned()),
            (b.try_clone().unwrap(), "/skill/汉".to_owned()),
        ];
        Go::send(a.as_fd(), &filter_bytes(&filter), a.as_fd(), b.as_fd(), &binds, &[a.as_fd()]).unwrap();
        let go = Go::receive(b.as_fd()).unwrap();
        assert_eq!((go.filter.len(), go.entrances.len()), (3, 1));
        assert_eq!((go.filter[2].code, go.filter[2].jf, go.filter[2].k), (0x15, 2, 0xdead_beef));
        assert_eq!(go.binds.iter().map(|b| b.1.as_str()).collect::<Vec<_>>(), ["/work", "/skill/汉"]);
    }

    #[test]
    fn a_launcher_that_is_gone_gives_nothing() {
        let (a, b) = channel::pair().unwrap();
        drop(a);
        assert!(Go::receive(b.as_fd()).is_none());
    }
}
