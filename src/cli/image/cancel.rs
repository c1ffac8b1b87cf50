//! Ctrl-C, `kill` and a closed terminal while an image comes in or goes out.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use super::super::refusal::CANCELLED;
use crate::image::store::unfinished;
use crate::sys::signal;

/// From now on SIGINT, SIGTERM and SIGHUP end the process with one line, `creel: cancelled` and `more`, and what is unfinished removed.
/// To be called before there are other threads. Without a thread for it the signals do what they always do.
pub(super) fn watch(more: &'static str) {
    let ignored = ignored();
    // nohup(1), and shells for what they start in the background, ask for deaf programs. signalfd(2) would hear all the same.
    let signals: Vec<i32> = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
        .into_iter()
        .filter(|signal| ignored & (1 << (signal - 1)) == 0)
        .collect();
    let Ok(fd) = signal::block_and_watch(&signals) else { return };
    let watcher = move || {
        loop {
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
            if signal::next(fd.as_fd()).is_some() {
                break;
            }
        }
        let _stopped = unfinished::cancel();
        let mut err = std::io::stderr();
        // A progress bar may stand in the line.
        let clear = if err.is_terminal() { "\r\x1b[K" } else { "" };
        let _ = writeln!(err, "{clear}creel: cancelled{more}");
        std::process::exit(CANCELLED.into());
    };
    if thread::Builder::new().name("signals".to_owned()).spawn(watcher).is_err() {
        let _ = signal::unblock_all();
    }
}

/// The set of signals that are ignored (proc(5), `SigIgn`).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}
