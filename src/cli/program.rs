//! What to run: a script from a file, the command line or standard input, a command, or the image's own.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::refusal::Refusal;
use super::run_args::RunArgs;
use crate::executor::request::{Lang, Program};
use crate::regular;
use crate::text::{io_reason, quoted};

/// Bytes of a program.
pub const PROGRAM_MAX: u64 = 8 << 20;
/// Bytes of one argument: the kernel's `MAX_ARG_STRLEN`, which counts the closing NUL.
const ARGUMENT_MAX: usize = 128 << 10;
/// Bytes of all arguments: half of what the kernel takes with a stack of 8 MiB, so that the environment has room.
const ARGUMENTS_MAX: usize = 1 << 20;
const READ_HINT: &str = "give a file, - for standard input, or -c CODE";

/// Finds the program, reads it, and checks its arguments. `image` is the image's name.
///
/// # Errors
/// No program, one that can't be read or is over 8 MiB, an unknown language, bad arguments.
pub fn resolve(args: &mut RunArgs, image: &str) -> Result<Program, Refusal> {
    let rest = std::mem::take(&mut args.rest);
    check_arguments(&rest)?;
    let lang = args.lang.as_deref().map(lang_named).transpose()?;
    let (code, by_suffix) = match (args.code.take(), args.script.take()) {
        (Some(code), _) => (bounded(code.into_vec(), "-c")?, None),
        (None, Some(path)) if path == "-" => (from_stdin()?, None),
        (None, Some(path)) => (from_file(Path::new(&path))?, lang_of_name(Path::new(&path))),
        (None, None) => return without_script(args, rest, image),
    };
    let lang = lang.or(by_suffix).or_else(|| lang_of_first_line(&code)).unwrap_or(Lang::Python);
    Ok(Program::Script { lang, code, args: rest })
}

fn without_script(args: &RunArgs, rest: Vec<OsString>, image: &str) -> Result<Program, Refusal> {
    if args.lang.is_some() {
        let message = "--lang goes with a script, and there is none";
        return Err(Refusal::new("usage.invalid", message).hint(READ_HINT));
    }
    match rest.first() {
        Some(command) if command.is_empty() => {
            Err(Refusal::new("usage.invalid", "the command after -- is an empty string"))
        }
        Some(_) => Ok(Program::Command(rest)),
        None if args.image.is_some() && image != "host" => Ok(Program::ImageDefault),
        None => {
            Err(Refusal::new("usage.invalid", "no program given").hint(format!("{READ_HINT}, or -- COMMAND")))
        }
    }
}

fn from_file(path: &Path) -> Result<Vec<u8>, Refusal> {
    let (file, metadata) = regular::open(path).map_err(|reason| {
        Refusal::new("program.unreadable", format!("script {} {reason}", quoted(path))).hint(READ_HINT)
    })?;
    if metadata.len() > PROGRAM_MAX {
        return Err(too_large(&quoted(path)));
    }
    let mut code = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(PROGRAM_MAX + 1).read_to_end(&mut code).map_err(|error| {
        let message = format!("script {} can't be read: {}", quoted(path), io_reason(&error));
        Refusal::new("program.unreadable", message)
    })?;
    bounded(code, &quoted(path))
}

fn from_stdin() -> Result<Vec<u8>, Refusal> {
    let mut code = Vec::new();
    std::io::stdin().lock().take(PROGRAM_MAX + 1).read_to_end(&mut code).map_err(|error| {
        let message = format!("standard input can't be read: {}", io_reason(&error));
        Refusal::new("program.unreadable", message)
    })?;
    bounded(code, "standard input")
}

fn bounded(code: Vec<u8>, place: &str) -> Result<Vec<u8>, Refusal> {
    if code.len() as u64 > PROGRAM_MAX { Err(too_large(place)) } else { Ok(code) }
}

fn too_large(place: &str) -> Refusal {
    Refusal::new("program.too_large", format!("program over 8 MB: {place}"))
        .hint("put its data into a file and give that with --input")
}

fn lang_named(name: &OsStr) -> Result<Lang, Refusal> {
    match name.to_str() {
        Some("python") => Ok(Lang::Python),
        Some("bash") => Ok(Lang::Bash),
        _ => {
            let message = format!("--lang: unknown language {}; accepted: python, bash", quoted(name));
            Err(Refusal::new("usage.invalid", message))
        }
    }
}

fn lang_of_name(path: &Path) -> Option<Lang> {
    match path.extension()?.to_str()? {
        "py" | "pyw" => Some(Lang::Python),
        "sh" | "bash" => Some(Lang::Bash),
        _ => None,
    }
}

/// The language that a `#!` line names.
fn lang_of_first_line(code: &[u8]) -> Option<Lang> {
    let line = code.strip_prefix(b"#!")?;
    // The kernel reads no more of it either.
    let line = &line[..line.len().min(254)];
    let line = line.split(|b| *b == b'\n').next()?;
    line.split(|b| matches!(b, b'/' | b' ' | b'\t' | b'\r')).find_map(|word| match word {
        b"sh" | b"bash" | b"dash" => Some(Lang::Bash),
        _ if word.starts_with(b"python") => Some(Lang::Python),
        _ => None,
    })
}

fn check_arguments(arguments: &[OsString]) -> Result<(), Refusal> {
    let mut total = 0;
    for (index, argument) in arguments.iter().enumerate() {
        let number = index + 1;
        if argument.as_bytes().contains(&0) {
            let message = format!("argument {number} of the program contains a NUL: {}", quoted(argument));
            return Err(Refusal::new("usage.invalid", message));
        }
        if argument.len() >= ARGUMENT_MAX {
            let message =
                format!("argument {number} of the program is {} bytes; at most 128 KiB", argument.len());
            return Err(
                Refusal::new("usage.invalid", message).hint("give it as a file with --input or --stdin")
            );
        }
        // The kernel counts the pointer too.
        total += argument.len() + 1 + size_of::<usize>();
    }
    if total > ARGUMENTS_MAX {
        let message = format!("the arguments of the program are {total} bytes together; at most 1 MiB");
        return Err(
            Refusal::new("usage.invalid", message).hint("give them as a file with --input or --stdin")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_of_first_lines() {
        for (line, want) in [
            ("#!/bin/sh\n", Some(Lang::Bash)),
            ("#!/usr/bin/env bash", Some(Lang::Bash)),
            ("#!/usr/bin/env -S python3.12 -u\n", Some(Lang::Python)),
            ("#! /usr/local/bin/python\r\n", Some(Lang::Python)),
            ("#!/usr/bin/perl\n# bash\n", None),
            ("#!/usr/bin/fish\n", None),
            ("# python\n", None),
            ("#!", None),
            ("", None),
        ] {
            assert_eq!(lang_of_first_line(line.as_bytes()), want, "{line:?}");
        }
    }

    #[test]
    fn arguments_are_bounded() {
        assert!(check_arguments(&["数据".into(), OsString::from_vec(vec![0xff])]).is_ok());
        let message = |arguments: &[OsString]| check_arguments(arguments).unwrap_err().message;
        assert_eq!(
            message(&["a".into(), "b\0c".into()]),
            "argument 2 of the program contains a NUL: 'b\\u{0}c'"
        );
        assert!(message(&["x".repeat(ARGUMENT_MAX).into()]).ends_with("131072 bytes; at most 128 KiB"));
        assert!(message(&vec![OsString::from("x".repeat(1 << 16)); 17]).contains("together; at most 1 MiB"));
    }
}
