//! How the runs of a test binary start. The tests of tests/sandbox/ are in three of them: `cold` runs as people do, without `--start`; `warm` and
//! `zygote` add it to every `creel run` of a Python script. Nothing else can be delivered into a sandbox that was made ahead: bash scripts and
//! commands start cold in all three.

use std::path::Path;

/// The kind of start, by the name of the test binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Cold,
    Warm,
    Zygote,
}

/// What the binary `zygote` imports ahead: much of the standard library, and among it all that keeps random states, names, caches of the environment
/// or of the time zone, and locks.
pub const PRELOAD: &str = "json,decimal,email.message,random,uuid,tempfile,secrets,ssl,hashlib,asyncio,subprocess,threading,\
    multiprocessing,concurrent.futures,sqlite3,logging,datetime,zoneinfo,locale,inspect,warnings,pickle,dataclasses,mmap,ctypes,signal,\
    traceback,linecache,urllib.parse,socket,csv,re,statistics";

/// The mode of this binary. `CREEL_TEST_START` overrules it, to try something by hand.
pub fn mode() -> Mode {
    let word = std::env::var("CREEL_TEST_START").unwrap_or_else(|_| env!("CARGO_CRATE_NAME").to_owned());
    match word.as_str() {
        "warm" => Mode::Warm,
        "zygote" => Mode::Zygote,
        _ => Mode::Cold,
    }
}

impl Mode {
    /// As the report says it.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Cold => "cold",
            Mode::Warm => "warm",
            Mode::Zygote => "zygote",
        }
    }

    /// The options that make a run of a Python script start so.
    pub fn options(self) -> Vec<&'static str> {
        match self {
            Mode::Cold => Vec::new(),
            Mode::Warm => vec!["--start", "warm"],
            Mode::Zygote => vec!["--start", "zygote", "--preload", PRELOAD],
        }
    }

    /// The same for a run with the arguments `args` (after `creel run`) in the directory `cwd`: nothing where there is no Python script, and where
    /// `args` say how to start.
    pub fn options_for<'a>(self, args: impl IntoIterator<Item = &'a str>, cwd: &Path) -> Vec<&'static str> {
        if is_python(&args.into_iter().collect::<Vec<_>>(), cwd) { self.options() } else { Vec::new() }
    }
}

/// Options of `creel run` without a value; all others that begin with a dash have one.
const FLAGS: [&str; 1] = ["--json"];

/// Whether `creel run args…` runs a Python script, and does not say itself how it starts. By the same rules as creel's.
fn is_python(args: &[&str], cwd: &Path) -> bool {
    let (mut lang, mut program, mut rest) = (None, None, args.iter());
    while let Some(&arg) = rest.next() {
        match arg {
            "--" => break,
            "-c" => {
                program = Some("-");
                rest.next();
            }
            "--start" => return false,
            "--lang" => lang = rest.next().copied(),
            flag if FLAGS.contains(&flag) => {}
            option if option.starts_with("--") => {
                if !option.contains('=') {
                    rest.next();
                }
            }
            script => program = Some(script),
        }
    }
    let Some(program) = program else { return false };
    match lang {
        Some(lang) => lang == "python",
        None if program.ends_with(".py") => true,
        None if program.ends_with(".sh") || program.ends_with(".bash") => false,
        None => {
            let path = cwd.join(program);
            // (A FIFO would be waited for.)
            let text = if path.is_file() { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
            let first = text.split(|b| *b == b'\n').next().unwrap_or_default();
            !(first.starts_with(b"#!") && first.windows(4).any(|w| w == b"bash"))
        }
    }
}
