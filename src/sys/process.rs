//! Birth, identity and end of processes.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::check;

/// `CLONE_INTO_CGROUP`; libc's constant of that name is truncated to 0 on gnu (libc issue 3584).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `struct clone_args` of linux/sched.h, version 2 (88 bytes).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Both sides of [`clone3`].
pub enum Cloned {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Forks the calling process with `clone3(2)`: new namespaces by `namespaces` (`CLONE_NEW*`), born inside the
/// cgroup v2 directory `cgroup` when given, which needs no write to `cgroup.procs` and so no global lock.
///
/// Like `fork`, but glibc's atfork handlers do not run: call it from a single-threaded process only.
///
/// # Errors
/// The kernel's, see clone3(2): EBADF when `cgroup` is not a cgroup v2 directory, EPERM without the right to a namespace.
pub fn clone3(namespaces: libc::c_int, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: namespaces as u32 as u64 | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = fd.as_raw_fd() as u64;
    }
    // SAFETY: `args` is a valid clone_args of the size passed and outlives the call; without CLONE_VM the child runs on a copy
    // of this memory and stack, as after fork(2). `pidfd` is written by the kernel in the parent only.
    let ret = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match check(ret)? {
        0 => Ok(Cloned::Child),
        pid => {
            // SAFETY: the kernel has just opened this descriptor for us and nobody else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent { pid: pid as i32, pidfd })
        }
    }
}

/// Sets real, effective and saved uid and gid of the calling thread and empties its supplementary groups (when `groups`:
/// a user namespace whose `setgroups` is `deny` refuses that call).
///
/// The raw system calls: glibc's wrappers broadcast to threads and can hang after a raw clone.
pub fn become_user(uid: u32, gid: u32, groups: bool) -> io::Result<()> {
    if groups {
        // SAFETY: a length of 0 makes the kernel ignore the pointer.
        check(unsafe { libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<libc::gid_t>()) })?;
    }
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
    Ok(())
}

/// Where this process's arguments lie, which is where `ps` reads them.
#[derive(Debug, Clone, Copy)]
pub struct TitleArea {
    start: usize,
    end: usize,
}

impl TitleArea {
    /// Asks the kernel for it; it stays the same in forked children.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn find() -> io::Result<TitleArea> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // Fields 48 and 49 of proc_pid_stat(5), arg_start and arg_end; field 3 is the first after the name in parentheses.
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        let address = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<usize>().ok()).filter(|&a| a != 0);
        match (address(48), address(49)) {
            (Some(start), Some(end)) if start < end => Ok(TitleArea { start, end }),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Makes `ps` show `title` for this process instead of the arguments that it inherited by fork: `/proc/PID/cmdline` of init is
    /// readable in the sandbox, and the caller's arguments name files of the host. A title that is longer than these is cut.
    pub fn set(self, title: &str) -> io::Result<()> {
        let mut text = vec![0u8; self.end - self.start];
        let n = title.len().min(text.len() - 1);
        text[..n].copy_from_slice(&title.as_bytes()[..n]);
        // SAFETY: the kernel put this process's argument strings at start..end on its stack, which stays mapped and writable; the
        // standard library copies arguments before it hands them out, so no Rust reference points there, and the launcher and init,
        // which call this, are single-threaded.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.start as *mut u8, text.len()) };
        rustix::thread::set_name(&std::ffi::CString::new(&title.as_bytes()[..title.len().min(15)])?)?;
        Ok(())
    }
}

/// Gives up real-time scheduling and a raised priority: a payload inherits neither from who started creel, and cgroup v1's cpu controller
/// takes no real-time task.
pub fn ordinary_scheduling() -> io::Result<()> {
    // SAFETY: plain integers and a structure that lives through the call.
    unsafe {
        let policy = check(libc::sched_getscheduler(0).into())? as i32;
        // Batch and idle scheduling are below the ordinary: they may stay, and an idle task may not even leave.
        if matches!(
            policy & !libc::SCHED_RESET_ON_FORK,
            libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
        ) {
            let param = libc::sched_param { sched_priority: 0 };
            check(libc::sched_setscheduler(0, libc::SCHED_OTHER, &param).into())?;
        }
        if libc::getpriority(libc::PRIO_PROCESS, 0) < 0 {
            check(libc::setpriority(libc::PRIO_PROCESS, 0, 0).into())?;
        }
    }
    Ok(())
}

/// How a child ended, from `wait4(2)`.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub pid: i32,
    /// The raw wait status.
    pub status: i32,
    /// User and system time of the child and of those it waited for, in microseconds.
    pub cpu_us: u64,
}

/// Waits for any child to end. `Ok(None)` when there is none left.
pub fn wait_any() -> io::Result<Option<Ended>> {
    match wait4(0) {
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other,
    }
}

/// A child that has ended already; `Ok(None)` when none has.
///
/// # Errors
/// ECHILD when there is none at all.
pub fn wait_ended() -> io::Result<Option<Ended>> {
    wait4(libc::WNOHANG)
}

fn wait4(options: libc::c_int) -> io::Result<Option<Ended>> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain data, all zeroes is a value of it.
        let mut usage: libc::rusage = unsafe { zeroed() };
        // SAFETY: both pointers are to live local variables of the right types.
        let pid = unsafe { libc::wait4(-1, &mut status, options, &mut usage) };
        if pid > 0 {
            let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
            return Ok(Some(Ended { pid, status, cpu_us: us(usage.ru_utime) + us(usage.ru_stime) }));
        }
        if pid == 0 {
            return Ok(None);
        }
        let err = io::Error::last_os_error();
        if err.raw_os_error() != Some(libc::EINTR) {
            return Err(err);
        }
    }
}

/// Sends SIGKILL to every process in the calling PID 1's namespace but itself (kill(2), pid -1).
pub fn kill_all_others() -> io::Result<()> {
    // Outside of a pid namespace of our own this would be a catastrophe.
    if std::process::id() != 1 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: plain integers.
    check(unsafe { libc::kill(-1, libc::SIGKILL) }.into()).map(drop)
}

/// Replaces the process image; returns only on failure.
pub fn execve(path: &CStr, argv: &[CString], envp: &[CString]) -> io::Error {
    let ptrs = |v: &[CString]| -> Vec<*const libc::c_char> {
        v.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (ptrs(argv), ptrs(envp));
    // SAFETY: both arrays are NULL-terminated and point to NUL-terminated strings that live until the call returns.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends the process at once, without destructors or exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Moves the calling process into new namespaces (`CLONE_NEW*`).
pub fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: only namespaces change; descriptors and memory stay shared as they were.
    check(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}
