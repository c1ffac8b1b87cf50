//! `creel image`: a table of its commands, one file for each.

mod build;
mod cancel;
mod default;
mod export;
mod gc;
mod import;
mod inspect;
mod ls;
mod progress;
mod pull;
mod rm;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

use super::refusal::Refusal;
use crate::executor::state::{State, StateError};
use crate::image::export::ExportError;
use crate::image::import::ImportError;
use crate::image::store::{Store, StoreError, unfinished};
use crate::sys;
use crate::text::io_reason;

/// What `--help` of each command says of its end.
const EXITS: &str =
    "Exit code: 0; 125 creel or the host failed; 126 refused (usage, bad input, no such image, in use).";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build an image from a recipe, without Docker
    #[command(after_help = build::AFTER)]
    Build(build::Args),
    /// Install an image from a registry
    #[command(after_help = pull::AFTER)]
    Pull(pull::Args),
    /// Install images from an OCI layout, a docker save archive, or the tar of a root file system
    #[command(after_help = import::AFTER)]
    Import(import::Args),
    /// Write an image as an OCI layout, a directory or a tar, for other tools
    #[command(after_help = export::AFTER)]
    Export(export::Args),
    /// List the installed images
    #[command(after_help = EXITS)]
    Ls {
        /// Print one JSON array instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Print what is known of an image, as one JSON object
    #[command(after_help = EXITS)]
    Inspect {
        /// A name, or at least six digits of a digest
        name: OsString,
        /// The default
        #[arg(long)]
        json: bool,
    },
    /// Remove names, and what no name reaches any more
    #[command(after_help = EXITS)]
    Rm {
        /// Names, or at least six digits of a digest (then all its names go)
        #[arg(required = true)]
        name: Vec<OsString>,
    },
    /// Free what no name reaches, unfinished downloads, and what killed processes left
    #[command(after_help = EXITS)]
    Gc,
    /// Show or set the image that creel run takes without --image
    #[command(after_help = EXITS)]
    Default {
        /// An installed image, or host
        name: Option<OsString>,
    },
}

/// The names of the commands, for messages.
pub const NAMES: &str = "build, pull, import, export, ls, inspect, rm, gc, default";

/// Carries a command out.
pub fn main(command: Command) -> ExitCode {
    if sys::fds::ensure_std().and_then(|()| sys::fds::cloexec_from_3()).is_err() {
        eprintln!("creel: cannot put the standard streams in order: is /dev/null there?");
        return ExitCode::from(125);
    }
    match &command {
        Command::Pull(_) => {
            cancel::watch("; what was downloaded is kept, the same command goes on from there")
        }
        Command::Import(_) | Command::Export(_) => cancel::watch(""),
        _ => {}
    }
    let done = match command {
        Command::Build(args) => build::main(&args),
        Command::Pull(args) => pull::main(args),
        Command::Import(args) => import::main(args),
        Command::Export(args) => export::main(args),
        Command::Ls { json } => ls::main(json),
        Command::Inspect { name, json: _ } => inspect::main(&name),
        Command::Rm { name } => rm::main(&name),
        Command::Gc => gc::main(),
        Command::Default { name } => default::main(name.as_deref()),
    };
    unfinished::settle();
    match done {
        Ok(text) => print(&text),
        Err(refusal) => refusal.report(),
    }
}

/// An answer that is lost is not a success; one that its reader did not want is.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            let message = format!("cannot write to standard output: {}", io_reason(&e));
            Refusal::new("host.output", message).report()
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The store, made when it is missing.
fn store() -> Result<Store, Refusal> {
    let state = State::location()?;
    // Makes the state directory, and sees to it that it is ours.
    State::open_at(&state)?;
    Ok(Store::open(&state)?)
}

/// The store if there is one.
fn existing() -> Result<Option<Store>, Refusal> {
    Ok(Store::existing(&State::location()?)?)
}

/// The store that must have the image `name`.
fn store_with(name: &str) -> Result<Store, Refusal> {
    let nothing = || StoreError::NotFound { name: name.chars().take(100).collect(), installed: Vec::new() };
    Ok(existing()?.ok_or_else(nothing)?)
}

/// `1.2 MB`
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn refusal(code: &'static str, host: bool, message: String) -> Refusal {
    // The area `host` makes it 125.
    let code = if host { code.replacen("image.", "host.image_", 1) } else { code.to_owned() };
    Refusal::new(&code, message)
}

impl From<StoreError> for Refusal {
    fn from(e: StoreError) -> Refusal {
        refusal(e.code(), e.is_host_fault(), e.to_string())
    }
}

impl From<ImportError> for Refusal {
    fn from(e: ImportError) -> Refusal {
        refusal(e.code(), e.is_host_fault(), e.to_string())
    }
}

impl From<ExportError> for Refusal {
    fn from(e: ExportError) -> Refusal {
        refusal(e.code(), e.is_host_fault(), e.to_string())
    }
}

impl From<StateError> for Refusal {
    fn from(e: StateError) -> Refusal {
        Refusal::new("host.state", e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes() {
        for (bytes, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (145_300_000, "145.3 MB"),
            (999_960_000, "1.0 GB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(size(bytes), want);
        }
    }
}
