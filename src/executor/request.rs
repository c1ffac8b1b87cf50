//! What a caller asks of the executor: one run, validated, with every limit resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::{LimitKind, Limits};

/// One run to carry out.
#[derive(Debug)]
pub struct Request {
    /// `run_` and 32 hexadecimal digits, see [`new_run_id`](super::run_id::new_run_id).
    pub run_id: String,
    /// `host`, the name of an installed image, or the path of a bundle directory.
    pub image: String,
    pub program: Program,
    pub inputs: Vec<Input>,
    pub skills: Vec<Skill>,
    pub stdin: Stdin,
    /// From the profile and then `--env`: set over the fixed environment of the sandbox and the image's own.
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
    pub seccomp: SeccompChoice,
    /// Where harvested files go; made when missing.
    pub output_dir: PathBuf,
    /// Limits that may stay unenforced on this host.
    pub allow_unenforced: BTreeSet<LimitKind>,
    /// True: the program's output passes through to our stdout and stderr as it comes. False: it is kept for the report only.
    pub pass_through: bool,
    /// Things the report must say of the request ("timeout clamped from 600 s to 120 s").
    pub notes: Vec<String>,
}

/// The program of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Program {
    /// Text for an interpreter: becomes `/work/entry.py` or `/work/entry.sh`.
    Script { lang: Lang, code: Vec<u8>, args: Vec<OsString> },
    /// A command of the image, looked up in the sandbox's PATH.
    Command(Vec<OsString>),
    /// `process.args` of the image.
    ImageDefault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lang {
    Python,
    Bash,
}

impl Lang {
    /// The word of the command line and the report.
    pub fn name(self) -> &'static str {
        match self {
            Lang::Python => "python",
            Lang::Bash => "bash",
        }
    }

    /// The name of the program file under `/work`.
    pub fn entry(self) -> &'static str {
        match self {
            Lang::Python => "entry.py",
            Lang::Bash => "entry.sh",
        }
    }
}

/// A file for `/inputs`.
#[derive(Debug, PartialEq)]
pub struct Input {
    pub path: PathBuf,
    /// The name it is shown under; the file's own name when absent.
    pub name: Option<String>,
}

/// A directory for `/skill/<id>`.
#[derive(Debug, PartialEq)]
pub struct Skill {
    pub dir: PathBuf,
    /// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`
    pub id: String,
}

#[derive(Debug)]
pub enum Stdin {
    /// End of file at once.
    Null,
    /// Bytes of this file, through a pipe: the sandbox never holds the host's descriptor.
    File(File),
}

/// Which system-call filter: the text of an OCI seccomp JSON and what to call it in the report.
#[derive(Debug, Clone)]
pub struct SeccompChoice {
    pub name: String,
    pub json: String,
}
