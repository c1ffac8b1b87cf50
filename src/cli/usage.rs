//! clap's answers in our form: help on stdout, everything else as one line.

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::refusal::Refusal;
use crate::text::quoted;

/// Commands of the design that this version does not have.
const NOT_BUILT: [&str; 9] = ["serve", "mcp", "ps", "kill", "exec", "skill", "token", "session", "oci"];
/// A value of the caller's is repeated up to here.
const MESSAGE_MAX: usize = 400;

/// Ends the program for what clap stopped at: help and version are a success, the rest is a refusal.
pub fn finish(error: &clap::Error, args: &[std::ffi::OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // `creel --help | head -1` closes the pipe early: not our trouble.
            let _ = write!(std::io::stdout(), "{}", error.render());
            ExitCode::SUCCESS
        }
        _ => refusal(error, args).report(),
    }
}

/// clap's error as a refusal; `args` are those of the process, for naming the right help.
fn refusal(error: &clap::Error, args: &[std::ffi::OsString]) -> Refusal {
    let command = args
        .get(1)
        .and_then(|a| a.to_str())
        .filter(|a| matches!(*a, "run" | "doctor" | "image" | "bench" | "gc"));
    let see = match command {
        Some(command) => format!("see creel {command} --help"),
        None => "see creel --help".to_owned(),
    };
    let known = if command == Some("image") { super::image::NAMES } else { "run, doctor, image, bench, gc" };
    let refuse = |message: String| Refusal::new("usage.invalid", message).hint(&*see);
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            refuse(format!("no command given; there are: {known}"))
        }
        ErrorKind::InvalidSubcommand => match context(ContextKind::InvalidSubcommand) {
            Some(name) if command.is_none() && NOT_BUILT.contains(&name) => {
                refuse(format!("{} is not in this version", quoted(name)))
            }
            Some(name) => refuse(format!("{} is no command; there are: {known}", quoted(name))),
            None => refuse("no such command".to_owned()),
        },
        ErrorKind::UnknownArgument => {
            let name = context(ContextKind::InvalidArg).unwrap_or_default();
            let message = format!("unexpected argument {}", quoted(name));
            match context(ContextKind::SuggestedArg) {
                Some(known) => refuse(format!("{message}; did you mean {known}?")),
                None if command == Some("run") => {
                    refuse(format!("{message}; arguments of the program come after --"))
                }
                None => refuse(message),
            }
        }
        _ => refuse(brief(&error.render().to_string())),
    }
}

/// What clap says before its usage text.
fn brief(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = text.split("\n\nUsage:").next().unwrap_or(text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text).trim_end();
    let text = text.replace("\n\n  tip: ", "; ");
    match text.char_indices().nth(MESSAGE_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
