//! For unit tests: a command line of `creel run` as words, and what becomes of it.

use std::ffi::OsStr;

use clap::Parser;

use super::refusal::Refusal;
use super::run_args::{RunArgs, resolve};
use crate::executor::request::Request;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: RunArgs,
}

pub fn with(words: &[&OsStr]) -> Result<Request, Refusal> {
    let words = [OsStr::new("run")].into_iter().chain(words.iter().copied());
    resolve(Line::try_parse_from(words).map_err(|e| Refusal::new("usage.invalid", e.to_string()))?.args)
}

pub fn run(words: &[&str]) -> Result<Request, Refusal> {
    with(&words.iter().map(OsStr::new).collect::<Vec<_>>())
}

pub fn line(words: &[&str]) -> String {
    let refusal = run(words).unwrap_err();
    assert_eq!(refusal.exit_code(), 126);
    assert!(refusal.code.contains('.'), "{}", refusal.code);
    let line = refusal.to_string();
    assert!(!line.contains('\n') && line.len() < 600, "{line}");
    line.strip_prefix("creel: ").unwrap().to_owned()
}
