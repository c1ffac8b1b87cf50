//! One step of a build, in a sandbox of the executor's kind with the policy of a builder.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Gid, Uid, fchown};

use crate::executor::ids::{FIRST_BUILD_ID, Lease};
use crate::executor::pump::{Ended, Pump};
use crate::executor::run_id::new_run_id;
use crate::executor::state::State;
use crate::executor::streams::Output;
use crate::limits::{LimitKind, Limits};
use crate::sandbox::cgroup::{self, CgroupLimits};
use crate::sandbox::disk::DiskHold;
use crate::sandbox::go::filter_bytes;
use crate::sandbox::host::Lack;
use crate::sandbox::outcome::End;
use crate::sandbox::role::Role;
use crate::sandbox::root::{Entry, EntryKind, RootPlan, Upper};
use crate::sandbox::spec::{Command, Inputs, Shown, Spec};
use crate::sandbox::{launcher, seccomp};
use crate::sys;

use super::BuildError;

/// Memory of a step, its tmpfs included.
const MEMORY: u64 = 6 << 30;
/// Open files of a process: npm holds thousands.
const NOFILE: u64 = 16_384;
/// A step that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// What one step needs.
pub struct Step<'a> {
    /// For messages.
    pub name: &'a str,
    /// The root as built so far.
    pub lower: OwnedFd,
    /// Where changes go; both directories belong to the first id of the lease.
    pub upper: Upper,
    /// A bash script, run in `/work`.
    pub script: &'a str,
    pub args: Vec<String>,
    /// Files under `/inputs`, a few MB in all.
    pub inputs: Vec<(String, Vec<u8>)>,
    /// Read-only files and directories of the host, each at a path of its own directly under `/build`, or over a file of the image.
    pub shown: Vec<Shown>,
    pub env: Vec<(String, String)>,
    pub network: bool,
    /// Passes the step's output through to our standard error.
    pub verbose: bool,
}

/// Runs `step` and gives its `/outputs`, a tmpfs that lives as long as the descriptor.
///
/// The calling process must be single-threaded, and root.
///
/// # Errors
/// [`BuildError::Step`] when the script failed, with the end of what it printed; others when the host can't run it.
pub fn run(step: Step<'_>, lease: &Lease) -> Result<OwnedFd, BuildError> {
    let host = |what: &'static str| {
        let step = step.name.to_owned();
        move |source: io::Error| BuildError::Sandbox { step, what: format!("cannot {what}: {source}") }
    };
    let lacks = |lack: Lack| BuildError::Host { code: lack.code(), message: lack.to_string() };
    let signals = sys::signal::block_and_watch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(host("watch signals"))?;
    let cgroups = cgroup::probe();
    let landlock_abi = sys::landlock::abi();
    if let Some(lack) =
        Lack::limits(&cgroups, |k| k == LimitKind::Cpu).or_else(|| Lack::landlock(landlock_abi))
    {
        return Err(lacks(lack));
    }
    let state = State::open().map_err(|e| BuildError::Host { code: "host.state", message: e.to_string() })?;
    state.sweep(&cgroups, 64);

    let sink = || step.verbose.then(rustix::stdio::stderr);
    let (mut stdout, out) = Output::new(sink()).map_err(host("make a pipe"))?;
    let (mut stderr, err) = Output::new(sink()).map_err(host("make a pipe"))?;
    stdout.keep_tail();
    stderr.keep_tail();
    let owner = lease.ids.owner().unwrap_or(FIRST_BUILD_ID);
    for pipe in [&out, &err] {
        fchown(pipe, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|e| host("give the streams to the sandbox")(e.into()))?;
    }

    let run_id = new_run_id().map_err(host("get random bytes"))?;
    let run = state
        .new_run(&run_id, &cgroups)
        .map_err(|e| BuildError::Host { code: "host.state", message: e.to_string() })?;
    let duplicate = |fd: &OwnedFd| fd.try_clone().map_err(host("duplicate a descriptor"));
    let lock = lease.lock.as_ref().map(duplicate).transpose()?;
    let spec = Spec {
        run_id: run_id.clone(),
        role: Role::Builder { network: step.network },
        root: RootPlan {
            entries: entries(&step.shown),
            layers: vec![duplicate(&step.lower)?],
            upper: Some(Upper {
                files: duplicate(&step.upper.files)?,
                scratch: duplicate(&step.upper.scratch)?,
            }),
            ..RootPlan::default()
        },
        command: command(&step),
        limits: limits(),
        cgroup_limits: CgroupLimits { memory: Some(MEMORY), pids: Some(limits().pids), cpu_millis: None },
        cgroup: cgroups.clone(),
        landlock_abi,
        ids: lease.ids,
        disk: DiskHold::Tmpfs,
        inputs: Inputs::Few(step.inputs.clone()),
        slot: None,
        run_dir: None,
        place: duplicate(&run.runs)?,
        entry: Some(("step.sh".to_owned(), step.script.as_bytes().to_vec())),
        shown: step
            .shown
            .iter()
            .map(|s| Ok(Shown { source: duplicate(&s.source)?, target: s.target.clone() }))
            .collect::<Result<_, BuildError>>()?,
        scratch: Vec::new(),
        stdin: None,
        output: vec![out, err],
        held: lock.into_iter().chain([duplicate(&run.ledger)?]).collect(),
    };
    let pump = Pump::new(signals, None, stdout, stderr).map_err(host("adopt orphans"))?;
    let launcher = launcher::start(spec).map_err(host("fork the launcher"))?;
    let filter = filter(step.name);
    let go = filter.as_ref().ok().map(Vec::as_slice);
    let mut ended = pump.until_the_end(&launcher, go, &cgroups, &run_id);
    ended.reap(launcher.pid);
    if ended.launcher_status != Some(0) && cgroup::reclaim(&cgroups, &run_id).is_err() {
        // The next start finds it in the ledger.
        run.leave();
    } else {
        let _ = run.remove();
    }
    filter?;
    judge(step.name, ended)
}

/// The filter of the default profile as it is shipped: what it leaves open to a program with capabilities, installing packages needs.
fn filter(step: &str) -> Result<Vec<u8>, BuildError> {
    let filter = seccomp::compile(include_str!("../../profiles/seccomp/default.json"), "build")
        .map_err(|e| BuildError::Sandbox { step: step.to_owned(), what: e.to_string() })?;
    Ok(filter_bytes(filter.instructions()))
}

fn judge(step: &str, mut ended: Ended) -> Result<OwnedFd, BuildError> {
    let name = step.to_owned();
    let printed = [ended.stdout.0.trim_end(), ended.stderr.0.trim_end()].join("\n");
    let Some(outcome) = &ended.outcome else {
        return Err(BuildError::Sandbox { step: name, what: "the launcher died".into() });
    };
    let failed = |how: String| BuildError::Step { step: name.clone(), how, tail: tail(&printed) };
    match &outcome.end {
        End::Exited => match outcome.status {
            Some(0) => ended
                .outputs
                .take()
                .ok_or(BuildError::Sandbox { step: name, what: "the outputs were not passed on".into() }),
            Some(status) if libc::WIFEXITED(status) => {
                Err(failed(format!("exit code {}", libc::WEXITSTATUS(status))))
            }
            Some(status) => Err(failed(format!("ended by signal {}", libc::WTERMSIG(status)))),
            None => Err(failed("init sent no wait status".into())),
        },
        End::Timeout => Err(failed(format!("took longer than {} s", TIMEOUT.as_secs()))),
        End::Oom => Err(failed(format!("needed more than {} MiB of memory", MEMORY >> 20))),
        End::Cancelled => Err(BuildError::Cancelled),
        End::DiskLimit(what) => Err(failed(what.clone())),
        End::NotExecuted { .. } => Err(failed("the image has no bash, which runs the steps".into())),
        End::SetUp { step: what, errno } => {
            if let Some(lack) = Lack::of_step(what, *errno) {
                return Err(BuildError::Host { code: lack.code(), message: lack.to_string() });
            }
            let why = io::Error::from_raw_os_error(*errno);
            Err(BuildError::Sandbox { step: name, what: format!("cannot {what}: {why}") })
        }
        End::Lost(why) => Err(failed(format!("{why}: how it ended is not known"))),
    }
}

/// The last lines of what a step printed.
fn tail(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// Mount points only: what the image has in `/etc` stays the image's, so that a step can change it.
fn entries(shown: &[Shown]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = crate::image::OWN_MOUNTS
        .iter()
        .chain(&["/build", "/etc"])
        .map(|path| Entry { path: (*path).to_owned(), kind: EntryKind::Dir })
        .collect();
    for Shown { source, target } in shown {
        let is_dir =
            rustix::fs::fstat(source).is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode).is_dir());
        let kind = if is_dir { EntryKind::Dir } else { EntryKind::File(Vec::new()) };
        entries.push(Entry { path: target.clone(), kind });
    }
    entries
}

fn command(step: &Step<'_>) -> Command {
    // A NUL can be in none of them: they come from a TOML file that was checked, or from our own texts.
    let text = |s: String| CString::new(s.replace('\0', "")).unwrap_or_default();
    let argv = ["bash", "/work/step.sh"].map(str::to_owned).into_iter().chain(step.args.iter().cloned());
    let fixed = [
        ("PATH", crate::image::DEFAULT_PATH),
        ("HOME", "/work"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("DEBIAN_FRONTEND", "noninteractive"),
    ];
    let fixed = fixed.map(|(k, v)| format!("{k}={v}"));
    let env = fixed.into_iter().chain(step.env.iter().map(|(k, v)| format!("{k}={v}")));
    Command {
        argv: argv.map(text).collect(),
        env: env.map(text).collect(),
        cwd: c"/work".to_owned(),
        search: crate::image::DEFAULT_PATH.split(':').map(str::to_owned).collect(),
        nofile: NOFILE,
    }
}

fn limits() -> Limits {
    Limits {
        timeout: TIMEOUT,
        memory: MEMORY,
        cpu_millis: 0,
        pids: 4096,
        tmp: 2 << 30,
        shm: 64 << 20,
        run: 16 << 20,
        work: 1 << 30,
        work_files: 200_000,
        output: 512 << 20,
        output_files: 64,
        output_depth: 4,
    }
}
