//! Signal masks and signalfd.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use super::check;

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &s in signals {
            libc::sigaddset(set.as_mut_ptr(), s);
        }
        set.assume_init()
    }
}

/// Blocks `signals` for the calling thread and returns a non-blocking signalfd that delivers them.
pub fn block_and_watch(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` is initialised; the old mask is not asked for.
    unsafe {
        check(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()).into())?;
        let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// The next pending signal of a signalfd, or none.
pub fn next(fd: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: signalfd_siginfo is plain data, all zeroes is a value of it.
    let mut info: libc::signalfd_siginfo = unsafe { zeroed() };
    let len = size_of::<libc::signalfd_siginfo>();
    // SAFETY: reads at most `len` bytes into a live structure of that size.
    let n = unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), len) };
    (n == len as isize).then_some(info.ssi_signo as i32)
}

/// Puts every disposition to its default, as a fresh process expects.
pub fn default_dispositions() {
    for s in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is a valid disposition, and a refusal (SIGKILL, SIGSTOP, the ones glibc keeps) is fine.
        unsafe { libc::signal(s, libc::SIG_DFL) };
    }
}

/// Unblocks every signal, as a fresh process expects.
pub fn unblock_all() -> io::Result<()> {
    let set = set_of(&[]);
    // SAFETY: `set` is initialised; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) }.into()).map(drop)
}

/// Ignores SIGPIPE and blocks everything else that can be blocked: for the launcher and init, which end only by their own logic.
pub fn shut_out() -> io::Result<()> {
    // SAFETY: sigfillset initialises the set; the old mask is not asked for.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigfillset(set.as_mut_ptr());
        check(libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut()).into())?;
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    Ok(())
}

/// Where [`tell`] writes; -1 as long as nobody wants to know.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// The handler: one byte, whatever the signal. A full pipe says it already.
extern "C" fn tell(_: libc::c_int) {
    let fd = TOLD.load(Ordering::Acquire);
    // SAFETY: write(2) is async-signal-safe, reads one byte of a live local, and errno is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fd, [1u8].as_ptr().cast(), 1);
        *libc::__errno_location() = errno;
    }
}

/// From now on `signals` make the pipe `fd` (its writing end, non-blocking; open until the process ends) readable at its other end and do
/// nothing else. Those that are ignored stay so. For a process with threads, in which [`block_and_watch`] would leave the signals blocked
/// in every program that is started.
pub fn note_on(fd: OwnedFd, signals: &[i32]) -> io::Result<()> {
    TOLD.store(fd.into_raw_fd(), Ordering::Release);
    for &signal in signals {
        // SAFETY: sigaction is plain data, all zeroes is a value of it; the handler does only what is allowed in one.
        unsafe {
            let mut old: libc::sigaction = zeroed();
            check(libc::sigaction(signal, std::ptr::null(), &mut old).into())?;
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = zeroed();
            new.sa_sigaction = tell as *const () as usize;
            new.sa_flags = libc::SA_RESTART;
            check(libc::sigaction(signal, &new, std::ptr::null_mut()).into())?;
        }
    }
    Ok(())
}
