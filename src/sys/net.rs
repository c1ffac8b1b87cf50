//! The loopback device of a new network namespace.

use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use super::check;

/// Brings `lo` up in the calling process's network namespace; needs CAP_NET_ADMIN there.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain data, all zeroes is a value of it.
    let mut req: libc::ifreq = unsafe { zeroed() };
    req.ifr_name[0] = b'l' as libc::c_char;
    req.ifr_name[1] = b'o' as libc::c_char;
    req.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq; `req` is one and lives through the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const req) }.into()).map(drop)
}
