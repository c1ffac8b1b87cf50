//! From the options of `creel run` to one request, every limit resolved and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use super::paths::{directory, input, output_dir, skills, stdin, text, usage};
use super::program;
use super::refusal::Refusal;
use super::run_args::RunArgs;
use crate::executor::request::Request;
use crate::executor::run_id::new_run_id;
use crate::image::{ImageError, Place, default_name, find};
use crate::limits::{LimitKind, Limits};
use crate::profile::{self, ENV_NAME, fit, is_env_name};
use crate::text::{io_reason, quoted};
use crate::units::{self, UnitError, show_seconds};

/// Bytes of all `--env` together: they share the kernel's space with the arguments.
const ENV_MAX: usize = 256 << 10;

/// Makes a request of the options. Reads the program (which may be standard input) and looks at files, but changes nothing.
///
/// # Errors
/// A [`Refusal`] for anything that can't be carried out as asked.
pub fn resolve(mut args: RunArgs) -> Result<Request, Refusal> {
    let image = image(args.image.as_deref())?;
    let mut profile = profile(args.profile.as_deref())?;
    let mut notes = Vec::new();
    limits(&args, &mut profile.limits, profile.timeout_max, &profile.name, &mut notes)?;
    net(args.net.as_deref())?;
    let mut env = profile.env;
    env_flags(&args.env, &mut env)?;
    let allow_unenforced = allow_unenforced(&args.allow_unenforced)?;
    let inputs = args.input.iter().map(|arg| input(arg)).collect::<Result<Vec<_>, _>>()?;
    let skills = skills(&args.skill)?;
    let output_dir = output_dir(args.output.as_deref())?;
    if args.script.as_deref() == Some(OsStr::new("-")) && args.stdin.as_deref() == Some(OsStr::new("-")) {
        let message = "standard input can't be both the program (-) and the program's input (--stdin -)";
        return Err(usage(message).hint("put one of them into a file"));
    }
    let stdin = stdin(args.stdin.as_deref())?;
    let program = program::resolve(&mut args, &image)?;
    let run_id = new_run_id()
        .map_err(|e| Refusal::new("host.random", format!("no random bytes: {}", io_reason(&e))))?;
    Ok(Request {
        run_id,
        image,
        program,
        inputs,
        skills,
        stdin,
        env,
        limits: profile.limits,
        seccomp: profile.seccomp,
        output_dir,
        allow_unenforced,
        pass_through: !args.json,
        notes,
    })
}

fn image(name: Option<&OsStr>) -> Result<String, Refusal> {
    let fault = |error: ImageError| {
        let code = if error.is_host_fault() { "host.image" } else { error.code() };
        Refusal::new(code, error.to_string())
    };
    let Some(name) = name else {
        return default_name().map_err(fault);
    };
    let name = text("--image", name)?;
    // What is in it is the image module's business.
    let not_found = |message| Refusal::new("image.not_found", message);
    match find(name) {
        Ok(Place::Directory) => {
            directory("--image", Path::new(name)).map(|_| name.to_owned()).map_err(not_found)
        }
        Ok(Place::Host | Place::Installed(_)) => Ok(name.to_owned()),
        Err(ImageError::NoSuchImage { .. }) if !name.is_empty() && Path::new(name).is_dir() => {
            let hint = format!("a bundle directory is given with a slash: ./{name}");
            Err(not_found(format!("no image {}", quoted(name))).hint(hint))
        }
        Err(error) => Err(fault(error)),
    }
}

fn profile(name: Option<&OsStr>) -> Result<profile::Profile, Refusal> {
    let name = match name {
        Some(name) => text("--profile", name)?,
        None => profile::DEFAULT,
    };
    profile::load(name).map_err(|error| Refusal::new("profile.invalid", error.to_string()))
}

/// Applies the flags to the limits of the profile, then the rules that tie limits to each other.
fn limits(
    args: &RunArgs,
    limits: &mut Limits,
    timeout_max: Duration,
    profile: &str,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    fn read<T>(
        option: &str,
        value: Option<&OsString>,
        target: &mut T,
        read: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Result<(), Refusal> {
        let Some(value) = value else { return Ok(()) };
        let value = text(option, value)?;
        if value.starts_with("--") {
            return Err(usage(format!("{option} needs a value, and {} follows it", quoted(value))));
        }
        *target =
            read(value).map_err(|error| Refusal::new("limits.invalid", format!("{option}: {error}")))?;
        Ok(())
    }
    let pids = |text: &str| units::count(text, units::PIDS_MAX);
    let mut pids_wanted = u64::from(limits.pids);
    read("--timeout", args.timeout.as_ref(), &mut limits.timeout, units::seconds)?;
    read("--memory", args.memory.as_ref(), &mut limits.memory, |t| units::size(t, units::MEMORY_MIN))?;
    read("--cpus", args.cpus.as_ref(), &mut limits.cpu_millis, units::cpus)?;
    read("--pids", args.pids.as_ref(), &mut pids_wanted, pids)?;
    read("--tmp", args.tmp.as_ref(), &mut limits.tmp, |t| units::size(t, units::TMPFS_MIN))?;
    read("--output-max", args.output_max.as_ref(), &mut limits.output, |t| units::size(t, 1))?;
    // At most PIDS_MAX, which fits.
    limits.pids = u32::try_from(pids_wanted).unwrap_or(u32::MAX);
    if limits.timeout > timeout_max {
        notes.push(format!(
            "timeout clamped from {} s to {} s, the maximum of profile {profile}",
            show_seconds(limits.timeout),
            show_seconds(timeout_max)
        ));
        limits.timeout = timeout_max;
    }
    let note = fit::fit_tmpfs(limits, args.tmp.is_some())
        .map_err(|error| Refusal::new("limits.conflict", error.to_string()))?;
    notes.extend(note);
    Ok(())
}

fn net(value: Option<&OsStr>) -> Result<(), Refusal> {
    match value {
        None => Ok(()),
        Some(value) if value == "none" => Ok(()),
        // An empty list must never come to mean "everything".
        Some(value) if value.is_empty() => Err(usage("--net: the list is empty; accepted: none")),
        Some(value) => Err(usage(format!(
            "--net: {}: allow-lists for the network are not in this version; accepted: none",
            quoted(value)
        ))),
    }
}

fn env_flags(flags: &[OsString], env: &mut BTreeMap<String, String>) -> Result<(), Refusal> {
    let mut total = 0;
    for flag in flags {
        let assignment = text("--env", flag)?;
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(usage(format!("--env: {} has no '='", quoted(flag))).hint("write --env NAME=VALUE"));
        };
        if !is_env_name(name) {
            return Err(usage(format!(
                "--env: {} is no name for a variable; accepted: {ENV_NAME}",
                quoted(name)
            )));
        }
        total += assignment.len();
        if total > ENV_MAX {
            return Err(usage("--env: more than 256 KiB together").hint("give large data with --input"));
        }
        if assignment.len() >= 128 << 10 {
            return Err(
                usage(format!("--env: {name} is longer than 128 KiB")).hint("give large data with --input")
            );
        }
        env.insert(name.to_owned(), value.to_owned());
    }
    Ok(())
}

fn allow_unenforced(values: &[OsString]) -> Result<BTreeSet<LimitKind>, Refusal> {
    let mut kinds = BTreeSet::new();
    for value in values {
        for name in text("--allow-unenforced", value)?.split(',') {
            let kind =
                [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu].into_iter().find(|k| k.name() == name);
            kinds.insert(kind.ok_or_else(|| {
                usage(format!("--allow-unenforced: no limit {}; accepted: memory, pids, cpu", quoted(name)))
            })?);
        }
    }
    Ok(kinds)
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
