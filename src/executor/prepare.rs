//! From a request to the spec of a sandbox: what comes before every launcher, in the process of `creel run` as in a worker.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use super::ids::{self, Lease, lease};
use super::plan::{cgroup_limits, command, enforced, extra_mounts, lower};
use super::request::{Program, Request};
use super::run::Stop;
use super::state::{Run, State, StateError};
use crate::image::{self, Image};
use crate::limits::LimitKind;
use crate::sandbox::cgroup::{self, Found};
use crate::sandbox::disk::DiskHold;
use crate::sandbox::host::Lack;
use crate::sandbox::role::Role;
use crate::sandbox::run_dirs::ON_DISK;
use crate::sandbox::spec::{Command, Ids, Inputs, Shown, Slot, Spec};
use crate::sys;

/// Leftovers of crashed runs that one start looks at.
const SWEEP: usize = 64;

/// What this host has, looked at once.
#[derive(Debug, Clone)]
pub struct Host {
    pub cgroups: Found,
    pub landlock_abi: i32,
}

impl Host {
    pub fn probe() -> Host {
        Host { cgroups: cgroup::probe(), landlock_abi: sys::landlock::abi() }
    }
}

/// What the sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Run,
    /// Made ahead of its run.
    Slot,
    /// To be forked.
    Zygote,
}

/// A request with all that it needs of the host, short of what must be cleaned up again.
#[derive(Debug)]
pub struct Prepared {
    pub image: Image,
    command: Command,
    /// What is executed, for messages.
    pub program: String,
    pub state: State,
    pub lease: Lease,
    disk: DiskHold,
    /// For the report: what holds each limit.
    pub enforced: BTreeMap<String, String>,
    /// For the report: what was cleaned up after others.
    pub swept: Vec<String>,
}

/// Where `/inputs` comes from.
#[derive(Debug)]
pub enum InputsFrom {
    Nothing,
    /// A directory in that of the run, which is filled before the order to go.
    OwnDirectory,
    /// A directory that somebody else keeps.
    Directory(OwnedFd),
}

/// What a sandbox gets from outside.
#[derive(Debug)]
pub struct Given {
    pub stdin: Option<OwnedFd>,
    /// Standard output and error; empty for what is made ahead.
    pub output: Vec<OwnedFd>,
    /// A directory for each skill of the request.
    pub skills: Vec<OwnedFd>,
    pub inputs: InputsFrom,
    pub slot: Option<Slot>,
}

/// Looks at the image and the host, and takes a host id. Lowers the request's limits to those of the image.
///
/// # Errors
/// A [`Stop`] for what the host lacks or the request asks in vain.
pub fn prepare(request: &mut Request, host: &Host, purpose: Purpose) -> Result<Prepared, Stop> {
    let Host { cgroups, landlock_abi } = host;
    let lack = Lack::limits(cgroups, |k| request.allow_unenforced.contains(&k));
    if let Some(lack) = lack.or_else(|| Lack::landlock(*landlock_abi)) {
        return Err(lack.into());
    }
    let skills: Vec<&str> = request.skills.iter().map(|s| s.id.as_str()).collect();
    let mut image = image::open(&request.image, &skills).map_err(|e| {
        let stop = if e.is_host_fault() { Stop::host } else { Stop::rejected };
        stop(e.code(), e.to_string())
    })?;
    request.notes.append(&mut image.notes);
    lower(request, &image)?;
    let command = command(request, &image)?;
    let program = command.argv[0].to_string_lossy().into_owned();
    let state = State::open().map_err(state_error)?;
    let swept = if purpose == Purpose::Run { swept(&state, cgroups) } else { Vec::new() };
    let mut lease =
        lease().map_err(|e| Stop::host("host.uid", format!("cannot take a host id from /run/creel: {e}")))?;
    if purpose == Purpose::Zygote {
        lease.ids = template(lease.ids)?;
    }
    let disk = match purpose {
        // Nothing is written there before the fork.
        Purpose::Zygote => DiskHold::Tmpfs,
        Purpose::Run | Purpose::Slot => {
            let memory_enforced = cgroups.missing(LimitKind::Memory).is_none();
            DiskHold::choose(&request.limits, memory_enforced, state.disk(), lease.ids)
        }
    };
    let enforced = enforced(request, cgroups, *landlock_abi, &lease.ids, disk);
    Ok(Prepared { image, command, program, state, lease, disk, enforced, swept })
}

fn swept(state: &State, cgroups: &Found) -> Vec<String> {
    let swept = state.sweep(cgroups, SWEEP);
    let cleaned = (swept.removed > 0)
        .then(|| format!("cleaned up after earlier runs that were killed: {}", swept.removed));
    cleaned.into_iter().chain(swept.failed).collect()
}

/// The ids of a zygote that runs as the leased one.
fn template(ids: Ids) -> Result<Ids, Stop> {
    match ids {
        Ids::Own { user, root } => Ok(Ids::Template { user, root }),
        _ => Err(Stop::rejected(
            "run.start_refused",
            "a zygote needs a range of host ids, and so root: as an ordinary user, start cold or warm",
        )),
    }
}

impl Prepared {
    /// Enters the run into the ledger, makes what it needs on the disk, and says all that the launcher must know. From here on there is something
    /// to clean up.
    ///
    /// # Errors
    /// A [`Stop`]; nothing is left then.
    pub fn spec(self, request: &mut Request, host: &Host, given: Given) -> Result<(Spec, Run, State), Stop> {
        let Prepared { mut image, command, state, lease, disk, .. } = self;
        own_pipes(&lease, given.output.iter().chain(&given.stdin)).map_err(|e| {
            let lack = Lack::host_ids(ids::ROOT_ID, ids::COUNT + 1);
            lack.map_or_else(|| io_error("give the streams to the sandbox")(e), Stop::from)
        })?;
        let (mut shown, scratch) = extra_mounts(&request.limits, &mut image);
        let skill = |(skill, source): (&super::request::Skill, OwnedFd)| Shown {
            source,
            target: format!("/skill/{}", skill.id),
        };
        shown.extend(request.skills.iter().zip(given.skills).map(skill));
        let mut run = state.new_run(&request.run_id, &host.cgroups).map_err(state_error)?;
        let inputs = match given.inputs {
            InputsFrom::Nothing => Inputs::Few(vec![("manifest.json".into(), b"[]".into())]),
            InputsFrom::OwnDirectory => Inputs::Staged(run.inputs().map_err(state_error)?),
            InputsFrom::Directory(dir) => Inputs::Staged(dir),
        };
        if disk != DiskHold::Tmpfs {
            run.make(&ON_DISK).map_err(state_error)?;
        }
        let duplicate = io_error("duplicate a descriptor");
        let spec = Spec {
            run_id: request.run_id.clone(),
            role: Role::Payload,
            root: image.root,
            command,
            limits: request.limits.clone(),
            cgroup_limits: cgroup_limits(request, &host.cgroups),
            cgroup: host.cgroups.clone(),
            landlock_abi: host.landlock_abi,
            ids: lease.ids,
            disk,
            inputs,
            run_dir: run.dir.as_ref().map(OwnedFd::try_clone).transpose().map_err(duplicate)?,
            place: run.runs.try_clone().map_err(duplicate)?,
            entry: match &mut request.program {
                // What is made ahead has a program of its own.
                Program::Script { lang, code, .. } if given.slot.is_none() => {
                    Some((lang.entry().to_owned(), std::mem::take(code)))
                }
                _ => None,
            },
            slot: given.slot,
            shown,
            scratch,
            stdin: given.stdin,
            output: given.output,
            // The ledger comes first: see worker.rs.
            held: [run.ledger.try_clone().map_err(duplicate)?]
                .into_iter()
                .chain(lease.lock)
                .chain(image.held)
                .collect(),
        };
        Ok((spec, run, state))
    }
}

/// So that a payload can open its `/dev/stdout`: a pipe belongs to its maker else.
fn own_pipes<'a>(lease: &Lease, pipes: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    match lease.ids.owner() {
        Some(user) => give_pipes(user, pipes),
        None => Ok(()),
    }
}

/// Gives pipes to a host id.
fn give_pipes<'a>(user: u32, mut pipes: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, fchown};
    pipes.try_for_each(|pipe| Ok(fchown(pipe, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?))
}

pub fn state_error(e: StateError) -> Stop {
    Stop::host("host.state", e.to_string())
}

/// `host.io`: cannot `what`.
pub fn io_error(what: &'static str) -> impl Fn(io::Error) -> Stop + Copy {
    move |e| Stop::host("host.io", format!("cannot {what}: {e}"))
}
