//! A process that the spawner forked for one job: it plans, as `creel run` does in its own process, and becomes the launcher.

use std::os::fd::{AsFd, OwnedFd};

use super::job::{Answer, Attached, Job, Planned, What};
use super::prepare::{Given, Host, InputsFrom, Purpose, prepare};
use super::request::Request;
use super::run::Stop;
use super::state::Entry;
use crate::sandbox::spec::{Slot, Spec};
use crate::sandbox::{channel, launcher, zygote};
use crate::sys::process::exit_now;

/// Carries the job out; `packet` and `fds` as the spawner received them.
pub fn main(host: &Host, packet: &[u8], fds: Vec<OwnedFd>) -> ! {
    let mut fds = fds.into_iter();
    // Who sent no control socket can't be told anything.
    let Some(control) = fds.next() else { exit_now(0) };
    match plan(host, packet, fds) {
        Ok((planned, ready)) => {
            if Answer::Planned(planned).send(control.as_fd()).is_err() {
                // The daemon is gone: nothing was made but the run's entry.
                let _ = ready.entry.remove(ready.spec.place.as_fd(), ready.spec.held[0].as_fd());
                exit_now(0)
            }
            launch(ready, control)
        }
        Err(stop) => {
            let _ = Answer::Stopped(stop).send(control.as_fd());
            exit_now(0)
        }
    }
}

/// Memory of a zygote, in bytes: its modules, and a quarter of a MiB for each of some thousand forks.
const ZYGOTE_MEMORY: u64 = 4 << 30;

/// What makes a zygote of a sandbox: its end of the socket that forks are asked for by, and the modules.
type Template = (OwnedFd, Vec<String>);

/// What is launched.
struct Ready {
    spec: Spec,
    entry: Entry,
    zygote: Option<Template>,
}

fn launch(ready: Ready, control: OwnedFd) -> ! {
    let Ready { spec, entry, zygote } = ready;
    // Everything it uses comes with the spec: other descriptors are closed by then.
    let finish = move |spec: &Spec, control: &OwnedFd, gone: bool| {
        // The daemon closes its end when it has harvested. Whatever it still asks for is done already.
        while channel::receive(control.as_fd(), channel::SHORT).is_ok_and(|(data, _)| !data.is_empty()) {}
        // A line in the ledger is how the sweep finds what could not be removed.
        gone && spec
            .held
            .first()
            .is_some_and(|ledger| entry.remove(spec.place.as_fd(), ledger.as_fd()).is_ok())
    };
    match zygote {
        Some((requests, preload)) => zygote::run_here(spec, control, requests, preload, finish),
        None => launcher::run_here(spec, control, finish),
    }
}

fn plan(host: &Host, packet: &[u8], mut fds: std::vec::IntoIter<OwnedFd>) -> Result<(Planned, Ready), Stop> {
    let (job, code, attached) = Job::unpack(packet, &mut fds)
        .ok_or_else(|| Stop::host("sandbox.job", "the spawner received a job that is not whole"))?;
    let what = job.what.clone();
    let mut request = job.into_request(code);
    let purpose = match what {
        What::Run { .. } => Purpose::Run,
        What::Started { .. } | What::Forked => Purpose::Slot,
        What::Zygote { .. } => Purpose::Zygote,
    };
    let prepared = prepare(&mut request, host, purpose)?;
    let planned = Planned {
        enforced: prepared.enforced.clone(),
        limits: request.limits.clone(),
        notes: prepared.swept.iter().chain(&request.notes).cloned().collect(),
        owner: prepared.lease.ids.user(),
        program: prepared.program.clone(),
        path_env: prepared.image.path_env.clone(),
        env: prepared.image.env.clone(),
    };
    let (given, zygote) = given(what, attached)?;
    let (mut spec, run, _) = prepared.spec(&mut request, host, given)?;
    if zygote.is_some() {
        // No program of a user's runs there. What its forks share with it stays charged to it, and a quota would hold them up.
        spec.cgroup_limits.memory = spec.cgroup_limits.memory.map(|bytes| bytes.max(ZYGOTE_MEMORY));
        spec.cgroup_limits.cpu_millis = None;
    }
    Ok((planned, Ready { spec, entry: run.hand_over(), zygote }))
}

/// What the sandbox gets from outside, and what makes a zygote of it.
fn given(what: What, attached: Attached) -> Result<(Given, Option<Template>), Stop> {
    let Attached { output, stdin, inputs, skills, zygote } = attached;
    // Unpacking has seen to it that it is there.
    let socket = || zygote.ok_or_else(|| Stop::host("sandbox.job", "a job came without its socket"));
    let inputs = inputs.map_or(InputsFrom::Nothing, InputsFrom::Directory);
    let (slot, zygote) = match what {
        What::Run { .. } => (None, None),
        What::Started { preload } => (Some(Slot::Started { preload }), None),
        What::Forked => (Some(Slot::Forked { zygote: socket()? }), None),
        What::Zygote { preload } => (None, Some((socket()?, preload))),
    };
    Ok((Given { stdin, output, skills, inputs, slot }, zygote))
}

/// The code of a request that is a script, taken out of it: it travels beside the job.
pub fn take_code(request: &mut Request) -> Vec<u8> {
    match &mut request.program {
        super::request::Program::Script { code, .. } => std::mem::take(code),
        _ => Vec::new(),
    }
}
