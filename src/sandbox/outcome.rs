//! How a sandbox ended, as the launcher tells it.

use serde::{Deserialize, Serialize};

/// Messages from the launcher to who asked for the sandbox, one JSON text a packet.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// The payload's program runs; the descriptor sent along is the `/outputs` directory.
    Started,
    /// A slot waits for its [`Delivery`].
    Ready,
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
    /// To a slot that is ready: run this. The rest of the packet is a [`Delivery`] as JSON; the descriptors sent along are, in this order: the
    /// [`Parcel`] (a file, read from its beginning), standard output, standard error, standard input when `stdin`, the directory of staged
    /// inputs when `inputs`, and a directory for each of `skills` (both opened with `O_PATH|O_DIRECTORY`).
    Deliver = b'd',
    /// To a slot that is ready: do what most programs do once, so that the pages that they write to are its own already. It takes a few
    /// milliseconds and some memory, and has no answer; a delivery may follow at once.
    Heat = b'h',
}

/// What a slot is given to run, as far as it needs no more room than a packet has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Wall time from now on, in milliseconds.
    pub timeout_ms: u64,
    pub stdin: bool,
    pub inputs: bool,
    /// Their ids, checked by who sends them.
    pub skills: Vec<String>,
}

/// The rest of a delivery, of any length: what the program is and what it is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parcel {
    /// Becomes `/work/entry.py`.
    pub code: Vec<u8>,
    /// After `/work/entry.py`.
    pub args: Vec<Vec<u8>>,
    /// `NAME=value`, the whole environment.
    pub env: Vec<Vec<u8>>,
}

impl Parcel {
    /// As bytes, each part with its length before it (JSON would make numbers of the bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.code.len() + 4096);
        let mut part = |b: &[u8]| {
            bytes.extend_from_slice(&(b.len() as u64).to_le_bytes());
            bytes.extend_from_slice(b);
        };
        part(&self.code);
        for list in [&self.args, &self.env] {
            part(&(list.len() as u64).to_le_bytes());
            list.iter().for_each(|b| part(b));
        }
        bytes
    }

    /// [`to_bytes`](Parcel::to_bytes) back again; `None` when it is none.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Parcel> {
        let mut part = || {
            let (len, rest) = bytes.split_first_chunk::<8>()?;
            let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
            bytes = rest;
            Some(part.to_vec())
        };
        let code = part()?;
        let mut list = || {
            let n = u64::from_le_bytes(part()?.try_into().ok()?);
            (0..n).map(|_| part()).collect::<Option<Vec<_>>>()
        };
        let (args, env) = (list()?, list()?);
        Some(Parcel { code, args, env })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_arrives_as_it_was_sent() {
        let parcel = Parcel {
            code: "print('汉')\n".into(),
            args: vec![b"a".to_vec(), vec![], vec![0xff]],
            env: vec![b"A=1".to_vec()],
        };
        assert_eq!(Parcel::from_bytes(&parcel.to_bytes()), Some(parcel.clone()));
        let cut = parcel.to_bytes();
        assert_eq!(Parcel::from_bytes(&cut[..cut.len() - 1]), None);
    }
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
