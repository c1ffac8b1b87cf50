//! Identity maps of user namespaces.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use super::process::{Cloned, clone3, exit_now};

/// One line of a uid or gid map: `inside` … shown as `outside` …, `count` ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMap {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Writes the maps of process `pid`. With `deny_setgroups`, as an unprivileged writer must, `setgroups` is switched off first
/// (user_namespaces(7), CVE-2014-8989).
///
/// # Errors
/// EPERM when the ids are not ours to map.
pub fn write_maps(pid: i32, uids: &[IdMap], gids: &[IdMap], deny_setgroups: bool) -> io::Result<()> {
    if deny_setgroups {
        write(&format!("/proc/{pid}/setgroups"), "deny")?;
    }
    write(&format!("/proc/{pid}/uid_map"), &lines(uids))?;
    write(&format!("/proc/{pid}/gid_map"), &lines(gids))
}

/// A user namespace with these maps and no process in it, for idmapped mounts.
pub fn with_maps(uids: &[IdMap], gids: &[IdMap]) -> io::Result<OwnedFd> {
    let (read, wait) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match clone3(libc::CLONE_NEWUSER, None)? {
        Cloned::Child => {
            drop(wait);
            let _ = rustix::io::read(&read, &mut [0u8; 1]);
            exit_now(0)
        }
        Cloned::Parent { pid, pidfd } => {
            let made = write_maps(pid, uids, gids, false)
                .and_then(|()| File::open(format!("/proc/{pid}/ns/user")))
                .map(OwnedFd::from);
            drop(wait);
            rustix::process::waitid(
                rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
                rustix::process::WaitIdOptions::EXITED,
            )?;
            made
        }
    }
}

fn lines(maps: &[IdMap]) -> String {
    maps.iter().map(|m| format!("{} {} {}\n", m.inside, m.outside, m.count)).collect()
}

fn write(path: &str, text: &str) -> io::Result<()> {
    // One write(2): the kernel takes a map in a single call only.
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
