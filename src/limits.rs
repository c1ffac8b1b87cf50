//! The limits of one run, after the profile and the flags were put together.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

/// What one run may use. All sizes are bytes.
///
/// The defaults of the product stand in `profiles/default.toml`, not here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall-clock time from the start of the payload to its forced end.
    #[serde(serialize_with = "as_seconds", deserialize_with = "from_seconds", rename = "timeout_s")]
    pub timeout: Duration,
    /// Memory of the whole sandbox, tmpfs pages included; swap is always 0.
    pub memory: u64,
    /// CPU quota in thousandths of one CPU (500 = half a CPU).
    pub cpu_millis: u32,
    /// Tasks (processes and threads) that the payload may have at once.
    pub pids: u32,
    /// Size of the tmpfs at `/tmp`.
    pub tmp: u64,
    /// Size of the tmpfs at `/dev/shm`.
    pub shm: u64,
    /// Size of the tmpfs at `/run`.
    pub run: u64,
    /// Bytes under `/work`.
    pub work: u64,
    /// Files and directories under `/work`.
    pub work_files: u64,
    /// Bytes of all files under `/outputs`, as harvested.
    pub output: u64,
    /// Regular files under `/outputs`.
    pub output_files: u64,
    /// Directory levels under `/outputs`.
    pub output_depth: u32,
}

/// A limit that a host may be unable to enforce, as named by `--allow-unenforced`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitKind {
    Memory,
    Pids,
    Cpu,
}

impl LimitKind {
    /// The word used on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            LimitKind::Memory => "memory",
            LimitKind::Pids => "pids",
            LimitKind::Cpu => "cpu",
        }
    }
}

fn as_seconds<S: serde::Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(d.as_secs_f64())
}

fn from_seconds<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(d)?;
    Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
}
