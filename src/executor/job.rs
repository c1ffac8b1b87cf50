//! What the daemon asks a worker to do, through the spawner, and the worker's first answer.
//!
//! A job is one packet: how its text comes (`i`: it follows; `m`: it is in a memory file, see [`Text`]), the length of the run id, the run id, and
//! the text: the [`Job`] as JSON with its length before it, and then the program's code. With it come, in this order: the launcher's end of its
//! control socket, the memory file, and [`Attached`]. Everything that can be large goes into the memory file: code, arguments, environment.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};

use super::request::{Program, Request, SeccompChoice, Skill, Stdin};
use super::run::Stop;
use crate::limits::{LimitKind, Limits};
use crate::sandbox::channel;

/// Bytes of text that go into the packet itself.
const INLINE: usize = channel::LONG - 1024;
/// Bytes of a text in a memory file: code and arguments at their largest, the latter as JSON.
const TEXT_MAX: u64 = 64 << 20;

/// What a worker makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A sandbox for one run, at once. Attached: standard output and error, standard input when `stdin`, the directory of staged inputs
    /// when `inputs`, a directory for each skill.
    Run { stdin: bool, inputs: bool },
    /// A sandbox made ahead, with a Python of its own that has imported these modules. Nothing attached.
    Started { preload: Vec<String> },
    /// A sandbox made ahead, whose Python is forked from a zygote. Attached: the socket to the zygote.
    Forked,
    /// The zygote. Attached: its end of the socket that forks are asked for by.
    Zygote { preload: Vec<String> },
}

/// One job. Limits and environment are those of the request, before the image's come in.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub what: What,
    /// The run's, or of what is made ahead its own.
    pub run_id: String,
    pub image: String,
    /// Without its code, which stands behind the JSON.
    pub program: Program,
    /// Their ids; for `Started` and `Forked` none.
    pub skills: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
    /// The filter's name; the filter itself comes with the order to go.
    pub seccomp: String,
    pub allow_unenforced: BTreeSet<LimitKind>,
}

/// The descriptors that go with a job, see [`What`].
#[derive(Debug, Default)]
pub struct Attached {
    pub output: Vec<OwnedFd>,
    pub stdin: Option<OwnedFd>,
    pub inputs: Option<OwnedFd>,
    pub skills: Vec<OwnedFd>,
    pub zygote: Option<OwnedFd>,
}

/// The first packet of a worker to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// From now on it is a launcher and sends its events.
    Planned(Planned),
    /// It could not plan, and has ended.
    Stopped(Stop),
}

/// What the report needs to know of a plan, and what a delivery to a slot does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    pub enforced: BTreeMap<String, String>,
    /// With those of the image.
    pub limits: Limits,
    pub notes: Vec<String>,
    /// The program's uid on the host.
    pub owner: u32,
    /// What is executed.
    pub program: String,
    /// The image's PATH and environment.
    pub path_env: String,
    pub env: Vec<(String, String)>,
}

impl Job {
    /// The job of `request`, whose code is taken. Everything but the image, the limits, the environment and the filter's name is left out of what
    /// is made ahead.
    pub fn new(what: What, run_id: &str, request: &Request) -> Job {
        let run = matches!(what, What::Run { .. });
        let program = match &request.program {
            Program::Script { lang, args, .. } => Program::Script {
                lang: *lang,
                code: Vec::new(),
                args: if run { args.clone() } else { Vec::new() },
            },
            other => other.clone(),
        };
        let skills = if run { request.skills.iter().map(|s| s.id.clone()).collect() } else { Vec::new() };
        Job {
            what,
            run_id: run_id.to_owned(),
            image: request.image.clone(),
            program,
            skills,
            env: request.env.clone(),
            limits: request.limits.clone(),
            seccomp: request.seccomp.name.clone(),
            allow_unenforced: request.allow_unenforced.clone(),
        }
    }

    /// The request that the worker plans for. What lies with the daemon (inputs, directories of skills, the filter's text) is not in it.
    pub fn into_request(self, code: Vec<u8>) -> Request {
        let program = match self.program {
            Program::Script { lang, args, .. } => Program::Script { lang, code, args },
            other => other,
        };
        Request {
            run_id: self.run_id,
            image: self.image,
            program,
            inputs: Vec::new(),
            skills: self.skills.into_iter().map(|id| Skill { dir: Default::default(), id }).collect(),
            stdin: Stdin::Null,
            env: self.env,
            limits: self.limits,
            seccomp: SeccompChoice { name: self.seccomp, json: String::new() },
            output_dir: Default::default(),
            allow_unenforced: self.allow_unenforced,
            pass_through: false,
            notes: Vec::new(),
        }
    }

    /// The packet and its descriptors. `control`: the launcher's end.
    pub fn pack(
        &self,
        code: &[u8],
        control: OwnedFd,
        attached: Attached,
    ) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let json = serde_json::to_vec(self)?;
        let mut bytes = (json.len() as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(code);
        let text = Text::of(bytes)?;
        let id_len = u8::try_from(self.run_id.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut packet = vec![text.kind(), id_len];
        packet.extend_from_slice(self.run_id.as_bytes());
        let mut fds = vec![control];
        text.append(&mut packet, &mut fds);
        let Attached { output, stdin, inputs, skills, zygote } = attached;
        fds.extend(output.into_iter().chain(stdin).chain(inputs).chain(skills).chain(zygote));
        Ok((packet, fds))
    }

    /// [`pack`](Job::pack) back again: the job, its code, what is attached. The control end was taken out of `fds`. `None` when it is none.
    pub fn unpack(packet: &[u8], fds: &mut std::vec::IntoIter<OwnedFd>) -> Option<(Job, Vec<u8>, Attached)> {
        let (kind, rest) = packet.split_first()?;
        let (id_len, rest) = rest.split_first()?;
        let (_, text) = rest.split_at_checked(usize::from(*id_len))?;
        let bytes = Text::read(*kind, text, fds)?;
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (json, code) = rest.split_at_checked(u32::from_ne_bytes(*len) as usize)?;
        let job: Job = serde_json::from_slice(json).ok()?;
        let mut attached = Attached::default();
        match job.what {
            What::Run { stdin, inputs } => {
                attached.output = vec![fds.next()?, fds.next()?];
                if stdin {
                    attached.stdin = Some(fds.next()?);
                }
                if inputs {
                    attached.inputs = Some(fds.next()?);
                }
                attached.skills = fds.by_ref().take(job.skills.len()).collect();
                if attached.skills.len() < job.skills.len() {
                    return None;
                }
            }
            What::Started { .. } => {}
            What::Forked | What::Zygote { .. } => attached.zygote = Some(fds.next()?),
        }
        let code = code.to_vec();
        Some((job, code, attached))
    }

    /// The run id of a packet, which the spawner needs to know and nothing else of it.
    pub fn run_id_of(packet: &[u8]) -> Option<&str> {
        let (len, rest) = packet.get(1..)?.split_first()?;
        std::str::from_utf8(rest.get(..usize::from(*len))?).ok()
    }
}

impl Answer {
    /// Sends it to the daemon.
    pub fn send(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        let text = Text::of(serde_json::to_vec(self)?)?;
        let (mut packet, mut fds) = (vec![text.kind()], Vec::new());
        text.append(&mut packet, &mut fds);
        channel::send(control, &packet, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>())
    }

    /// Of a packet; `None` when it is none.
    pub fn of(packet: &[u8], fds: Vec<OwnedFd>) -> Option<Answer> {
        let (kind, text) = packet.split_first()?;
        serde_json::from_slice(&Text::read(*kind, text, &mut fds.into_iter())?).ok()
    }
}

/// Bytes that go into a packet where they fit, else into a memory file that nobody can change any more.
enum Text {
    Inline(Vec<u8>),
    File(OwnedFd),
}

impl Text {
    fn of(bytes: Vec<u8>) -> io::Result<Text> {
        if bytes.len() <= INLINE { Ok(Text::Inline(bytes)) } else { Ok(Text::File(memory_file(&bytes)?)) }
    }

    fn kind(&self) -> u8 {
        match self {
            Text::Inline(_) => b'i',
            Text::File(_) => b'm',
        }
    }

    fn append(self, packet: &mut Vec<u8>, fds: &mut Vec<OwnedFd>) {
        match self {
            Text::Inline(bytes) => packet.extend_from_slice(&bytes),
            Text::File(file) => fds.push(file),
        }
    }

    fn read(kind: u8, text: &[u8], fds: &mut std::vec::IntoIter<OwnedFd>) -> Option<Vec<u8>> {
        match kind {
            b'i' => Some(text.to_vec()),
            b'm' => {
                let mut bytes = Vec::new();
                let file = std::fs::File::from(fds.next()?);
                io::Read::read_to_end(&mut io::Read::take(file, TEXT_MAX), &mut bytes).ok()?;
                Some(bytes)
            }
            _ => None,
        }
    }
}

/// A sealed memory file with these bytes, to be read from its beginning.
pub fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("creel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut at = 0;
    while at < bytes.len() {
        at += rustix::io::pwrite(&fd, &bytes[at..], at as u64)?;
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
