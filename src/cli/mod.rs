//! The command line: a table of commands, one file for each.

#![forbid(unsafe_code)]

mod bench;
mod doctor;
mod gc;
mod image;
mod paths;
mod program;
pub mod refusal;
mod resolve;
mod run;
pub mod run_args;
mod start;
#[cfg(test)]
mod testing;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use run_args::RunArgs;

const EXAMPLES: &str = "\
Examples:
  creel run analyse.py --input sales.csv
  creel run -c 'print(6 * 7)'";

/// Runs code that a language model wrote in a fresh sandbox: no Docker, no KVM, no daemon
#[derive(Debug, Parser)]
#[command(name = "creel", version, disable_help_subcommand = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a Python or bash program, or any command, in a fresh sandbox
    Run(Box<RunArgs>),
    /// Say what this host can enforce, and how to mend what it lacks
    #[command(after_help = doctor::AFTER)]
    Doctor {
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Install, list, export and remove images
    #[command(disable_help_subcommand = true)]
    Image {
        #[command(subcommand)]
        command: image::Command,
    },
    /// Measure cold and warm starts, throughput and density on this host, beside other sandboxes
    #[command(after_help = bench::AFTER)]
    Bench(Box<bench::Args>),
    /// Remove what runs left behind that were ended from outside
    Gc,
}

/// The whole program: parses the process's arguments, carries the command out, and gives its exit code.
pub fn main() -> ExitCode {
    crate::sandbox::init::become_if_asked();
    let args: Vec<OsString> = std::env::args_os().collect();
    match Cli::try_parse_from(&args) {
        Ok(Cli { command: Command::Run(args) }) => run::main(*args),
        Ok(Cli { command: Command::Doctor { json } }) => doctor::main(json),
        Ok(Cli { command: Command::Image { command } }) => image::main(command),
        Ok(Cli { command: Command::Bench(args) }) => bench::main(&args),
        Ok(Cli { command: Command::Gc }) => gc::main(),
        Err(error) => usage::finish(&error, &args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_table_of_options_is_sound() {
        super::Cli::command().debug_assert();
    }
}
