//! How a sandbox ended, as the launcher tells it.

use serde::{Deserialize, Serialize};

/// Messages from the launcher to who asked for the sandbox, one JSON text a packet.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// The payload's program runs; the descriptor sent along is the `/outputs` directory.
    Started,
    /// It is over and everything in the sandbox is dead.
    Ended(Outcome),
}

/// Messages to the launcher: this byte, and what is said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    /// Inputs are staged: start the payload. The rest of the packet is the compiled system-call filter, see
    /// [`filter_bytes`](super::go::filter_bytes).
    Go = b'g',
    /// Kill the sandbox.
    Cancel = b'c',
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub end: End,
    /// Raw wait status of the payload's main process, when it ended by itself.
    pub status: Option<i32>,
    pub wall_us: u64,
    pub cpu_us: Option<u64>,
    pub memory_peak: Option<u64>,
    pub pids_peak: Option<u64>,
    pub oom_kills: u64,
    /// Whether `/proc/self/mountinfo` inside names no path of the host's for the run's own directories.
    pub paths_hidden: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The main process ended by itself.
    Exited,
    Timeout,
    /// The kernel killed a process of it for memory.
    Oom,
    Cancelled,
    /// It wrote more than allowed; which limit, in words.
    DiskLimit(String),
    /// The program could not be executed: the errno of execve(2).
    NotExecuted {
        errno: i32,
    },
    /// A step of the set-up failed.
    SetUp {
        step: String,
        errno: i32,
    },
    /// The end is not known: init died and no counter explains it.
    Lost(String),
}
