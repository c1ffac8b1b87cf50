//! From a request and its image to what the launcher is told.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use super::environment;
use super::request::{Lang, Program, Request, Skill};
use super::run::Stop;
use crate::image::{BundleMount, Image};
use crate::limits::{LimitKind, Limits};
use crate::profile::fit::fit_tmpfs;
use crate::sandbox::cgroup::{CgroupLimits, Found};
use crate::sandbox::disk::DiskHold;
use crate::sandbox::spec::{Command, Ids, NOFILE, Scratch, Shown};
use crate::units::MEMORY_MIN;

/// The limits that this host's cgroups can hold; what they can't, the caller has allowed to stay open.
pub fn cgroup_limits(request: &Request, cgroups: &Found) -> CgroupLimits {
    let holds = |k| cgroups.missing(k).is_none();
    CgroupLimits {
        memory: holds(LimitKind::Memory).then_some(request.limits.memory),
        pids: holds(LimitKind::Pids).then_some(request.limits.pids),
        cpu_millis: holds(LimitKind::Cpu).then_some(request.limits.cpu_millis),
    }
}

/// An image's own limits can lower those of the request, never raise them.
pub fn lower(request: &mut Request, image: &Image) -> Result<(), Stop> {
    let l = &mut request.limits;
    let before = l.memory;
    if let Some(memory) = image.limits.memory.filter(|&m| m < MEMORY_MIN) {
        return Err(Stop::rejected(
            "image.limit_refused",
            format!(
                "the image's memory limit of {memory} bytes is below the least that a program starts with, {MEMORY_MIN}"
            ),
        ));
    }
    l.memory = image.limits.memory.map_or(l.memory, |m| m.min(l.memory));
    l.pids = image.limits.pids.map_or(l.pids, |p| p.min(l.pids));
    l.cpu_millis = image.limits.cpu_millis.map_or(l.cpu_millis, |c| c.min(l.cpu_millis));
    if l.memory < before
        && let Ok(Some(note)) = fit_tmpfs(l, false)
    {
        request.notes.push(note);
    }
    Ok(())
}

/// What is executed, where, with which environment.
pub fn command(request: &Request, image: &Image) -> Result<Command, Stop> {
    let text = |bytes: Vec<u8>| {
        CString::new(bytes).map_err(|_| Stop::rejected("run.invalid", "an argument contains a NUL byte"))
    };
    let argv: Vec<Vec<u8>> = match &request.program {
        Program::Script { lang, args, .. } => {
            let program = match lang {
                Lang::Python => "python3",
                Lang::Bash => "bash",
            };
            let entry = format!("/work/{}", lang.entry());
            let fixed = [program.as_bytes().to_vec(), entry.into_bytes()];
            fixed.into_iter().chain(args.iter().map(|a| a.as_bytes().to_vec())).collect()
        }
        Program::Command(args) => args.iter().map(|a| a.as_bytes().to_vec()).collect(),
        Program::ImageDefault => image.args.iter().map(|a| a.as_bytes().to_vec()).collect(),
    };
    if argv.first().is_none_or(Vec::is_empty) {
        return Err(Stop::rejected(
            "run.no_program",
            "the image names no program (process.args): give a script, -c CODE or -- COMMAND",
        ));
    }
    let env = environment::build(&image.path_env, &image.env, &request.env, request.limits.cpu_millis);
    let search =
        env.iter().find(|(k, _)| k == "PATH").map(|(_, v)| v.split(':').map(str::to_owned).collect());
    let cwd = match &request.program {
        Program::Script { .. } => "/work",
        _ => &image.cwd,
    };
    Ok(Command {
        argv: argv.into_iter().map(text).collect::<Result<_, _>>()?,
        env: env.into_iter().map(|(k, v)| text(format!("{k}={v}").into_bytes())).collect::<Result<_, _>>()?,
        cwd: text(cwd.into())?,
        search: search.unwrap_or_default(),
        nofile: image.limits.nofile.map_or(NOFILE, |n| n.min(NOFILE)),
    })
}

/// The mounts of a bundle.
pub fn extra_mounts(limits: &Limits, image: &mut Image) -> (Vec<Shown>, Vec<Scratch>) {
    let (mut shown, mut scratch) = (Vec::new(), Vec::new());
    for mount in image.mounts.drain(..) {
        match mount {
            BundleMount::Tmpfs { target, size } => {
                scratch.push(Scratch { target, size: size.min(limits.tmp) })
            }
            BundleMount::Bind { source, target } => shown.push(Shown { source, target }),
        }
    }
    (shown, scratch)
}

/// Opens the directories of skills, in their order.
pub fn open_skills(skills: &[Skill]) -> Result<Vec<OwnedFd>, Stop> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |skill: &Skill| {
        rustix::fs::open(&skill.dir, flags, Mode::empty()).map_err(|e| {
            Stop::rejected(
                "skill.unreadable",
                format!("cannot open the skill directory {}: {}", skill.dir.display(), io::Error::from(e)),
            )
        })
    };
    skills.iter().map(open).collect()
}

/// What holds each limit, for the report.
pub fn enforced(
    request: &Request,
    cgroups: &Found,
    abi: i32,
    ids: &Ids,
    disk: DiskHold,
) -> BTreeMap<String, String> {
    let user = match ids {
        Ids::Own { user, .. } => format!("own host uid {user}"),
        Ids::Range { first } | Ids::Template { root: first, .. } => {
            format!("own host uids from {first} on")
        }
        Ids::Caller { uid, .. } => format!("the caller's uid {uid}"),
    };
    let limits = [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu].map(|kind| {
        let holder = if cgroups.missing(kind).is_none() { cgroups.holder() } else { "unenforced" };
        (kind.name(), holder.to_owned())
    });
    let others = [
        ("seccomp", request.seccomp.name.clone()),
        ("landlock", format!("abi {abi}")),
        ("network", "none (own namespace, loopback only)".into()),
        ("user", user),
        ("root", "read-only".into()),
        ("disk", disk.name().into()),
        ("walltime", "launcher".into()),
    ];
    limits.into_iter().chain(others).map(|(what, by)| (what.to_owned(), by)).collect()
}
