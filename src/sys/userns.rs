//! Identity maps of user namespaces.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

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

/// The namespace that `userns` was made in.
///
/// # Errors
/// EPERM when that is not below the caller's own, see ioctl_ns(2).
pub fn parent_of(userns: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const NS_GET_PARENT: libc::c_ulong = 0xb702;
    // SAFETY: this request takes no argument and returns a new descriptor, which nobody else owns.
    unsafe {
        let fd = super::check(libc::ioctl(userns.as_raw_fd(), NS_GET_PARENT as _).into())?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// [`write_maps`] by a process inside `parent`, the namespace that process `pid`'s own was made in: the kernel takes maps only from there, and
/// the outside ids are those of it.
pub fn write_maps_inside(parent: BorrowedFd<'_>, pid: i32, uids: &[IdMap], gids: &[IdMap]) -> io::Result<()> {
    match clone3(0, None)? {
        Cloned::Child => {
            let written = rustix::thread::move_into_link_name_space(parent, None)
                .map_err(io::Error::from)
                .and_then(|()| write_maps(pid, uids, gids, false));
            exit_now(written.err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO)))
        }
        Cloned::Parent { pidfd, .. } => {
            let ended = rustix::process::waitid(
                rustix::process::WaitId::PidFd(pidfd.as_fd()),
                rustix::process::WaitIdOptions::EXITED,
            )?;
            match ended.and_then(|e| e.exit_status()) {
                Some(0) => Ok(()),
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
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
                rustix::process::WaitId::PidFd(pidfd.as_fd()),
                rustix::process::WaitIdOptions::EXITED,
            )?;
            made
        }
    }
}

/// Has `command` start as 0 of `userns`, with nothing of the caller's blocked signals, and end by SIGTERM when the thread that starts it does.
pub fn start_inside(command: &mut Command, userns: OwnedFd) {
    let enter = move || {
        rustix::thread::move_into_link_name_space(userns.as_fd(), None)?;
        super::process::become_user(0, 0, true)?;
        super::signal::unblock_all()?;
        // After the change of identity, which clears it (prctl(2)).
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls and nothing else: no allocation, no lock.
    unsafe { command.pre_exec(enter) };
}

fn lines(maps: &[IdMap]) -> String {
    maps.iter().map(|m| format!("{} {} {}\n", m.inside, m.outside, m.count)).collect()
}

fn write(path: &str, text: &str) -> io::Result<()> {
    // One write(2): the kernel takes a map in a single call only.
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
