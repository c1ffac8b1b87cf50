//! Packets with descriptors between the three processes of a run (unix(7), SOCK_SEQPACKET).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Longest packet: a system-call filter of the kernel's full size and the targets of all binds.
pub const LONG: usize = 64 << 10;
/// Enough for every other packet.
pub const SHORT: usize = 4 << 10;
/// Descriptors in one packet; the kernel takes 253 (SCM_MAX_FD).
const FDS: usize = 200;

/// Two connected ends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one packet and up to 200 descriptors.
pub fn send(to: BorrowedFd<'_>, data: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::retry_on_intr(|| sendmsg(to, &[IoSlice::new(data)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The next packet, of at most `longest` bytes, and its descriptors; an empty one when the other end is closed.
pub fn receive(from: BorrowedFd<'_>, longest: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let packet = receive_whole(from, longest)?;
    Ok((packet.data, packet.fds))
}

/// A packet with everything that came along.
pub struct Packet {
    pub data: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// Who sent it, in our pid namespace, when [`tell_senders`] was asked for.
    pub sender: Option<i32>,
}

/// From now on the kernel says of each packet that arrives at `end` which process sent it (SO_PASSCRED, unix(7)).
pub fn tell_senders(end: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(end, true)?)
}

/// [`receive`] with the sender.
///
/// # Errors
/// Besides the kernel's: ETIMEDOUT when nothing comes `within` this time.
pub fn receive_within(from: BorrowedFd<'_>, longest: usize, within: Duration) -> io::Result<Packet> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(from, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            Err(Errno::INTR) => {}
            Ok(_) => return receive_whole(from, longest),
            Err(e) => return Err(e.into()),
        }
    }
}

fn receive_whole(from: BorrowedFd<'_>, longest: usize) -> io::Result<Packet> {
    let mut data = vec![0u8; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let bytes = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut data)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got.bytes,
            // The other end closed with a packet of ours unread. The kernel says so once, before it hands out what was sent before.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(e) => return Err(e.into()),
        }
    };
    data.truncate(bytes);
    let (mut fds, mut sender) = (Vec::new(), None);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(received) => fds.extend(received),
            RecvAncillaryMessage::ScmCredentials(who) => sender = Some(who.pid.as_raw_nonzero().get()),
            _ => {}
        }
    }
    Ok(Packet { data, fds, sender })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn packets_keep_their_bounds_and_their_descriptors() {
        let (a, b) = pair().unwrap();
        send(a.as_fd(), b"one", &[]).unwrap();
        send(a.as_fd(), b"two", &[a.as_fd(), b.as_fd()]).unwrap();
        assert_eq!(receive(b.as_fd(), SHORT).unwrap().0, b"one");
        let (data, fds) = receive(b.as_fd(), SHORT).unwrap();
        assert_eq!((data.as_slice(), fds.len()), (b"two".as_slice(), 2));
        drop((a, fds));
        assert!(receive(b.as_fd(), SHORT).unwrap().0.is_empty());
    }

    #[test]
    fn the_last_word_of_an_end_that_closed_with_something_unread_is_heard() {
        let (a, b) = pair().unwrap();
        send(a.as_fd(), b"unread", &[]).unwrap();
        send(b.as_fd(), b"last word", &[]).unwrap();
        drop(b);
        assert_eq!(receive(a.as_fd(), SHORT).unwrap().0, b"last word");
        assert!(receive(a.as_fd(), SHORT).unwrap().0.is_empty());
    }
}
