//! The options of `creel run`, as written. [`resolve`] makes a request of them.
//!
//! Everything is taken as an `OsString`, and read by our own code: paths and program arguments need not be UTF-8, and an error is one
//! line that names the option and the value.

use std::ffi::OsString;

use clap::Args;

pub use super::resolve::resolve;

const USAGE: &str = "creel run [OPTIONS] [SCRIPT | -c CODE | -] [-- ARGS...]
       creel run [OPTIONS] -- COMMAND [ARGS...]";

const AFTER: &str = "\
In the sandbox: /inputs (read-only, with manifest.json), /work (the current directory), /outputs (what is left
there is kept), /skill/<ID>, /tmp. No network.

Image: creel image ls names the installed ones. Without --image it is the one that creel image default names: the
first that was installed, or host.

Start: --start takes the way of a daemon, to see that a program behaves the same there: cold, warm (a Python waits
in the sandbox and is given the program) or zygote (one forked from a Python that has imported modules). --preload
says which; by default numpy, pandas, matplotlib.pyplot, openpyxl and docx for the images data and office, else none.

Exit code: the program's own; 128+n if signal n ended it; 124 time-out; 137 out of memory; 125 creel or the host
failed; 126 refused (usage, bad input, no such image, over the output limit); 130 cancelled.

Examples:
  creel run analyse.py --input sales.csv --output results -- --year 2024
  creel run --timeout 5 --memory 64m -c 'print(6 * 7)'";

/// Options and operands of `creel run`.
#[derive(Debug, Default, Args)]
#[command(override_usage = USAGE, after_help = AFTER)]
pub struct RunArgs {
    /// The program: a file, or - for standard input
    pub script: Option<OsString>,

    /// The program itself, as text
    #[arg(short = 'c', value_name = "CODE", allow_hyphen_values = true, conflicts_with = "script")]
    pub code: Option<OsString>,

    /// Arguments of the program; without a program: a command of the image and its arguments
    #[arg(last = true, value_name = "ARGS")]
    pub rest: Vec<OsString>,

    /// An installed image, host (this host's /usr) or a bundle (./dir) [default: see below]
    #[arg(long, value_name = "NAME")]
    pub image: Option<OsString>,

    /// python or bash [default: by suffix or #! line, else python]
    #[arg(long, value_name = "LANG")]
    pub lang: Option<OsString>,

    /// A file to put read-only under /inputs, shown as NAME; repeatable
    #[arg(long, value_name = "PATH[=NAME]")]
    pub input: Vec<OsString>,

    /// Where produced files go [default: ./outputs]
    #[arg(long, value_name = "DIR")]
    pub output: Option<OsString>,

    /// A directory to mount read-only at /skill/ID; repeatable
    #[arg(long, value_name = "DIR[=ID]")]
    pub skill: Vec<OsString>,

    /// The program's standard input [default: nothing, end of file at once]
    #[arg(long, value_name = "FILE|-")]
    pub stdin: Option<OsString>,

    /// Wall-clock seconds; at most the profile's maximum [default: 30]
    #[arg(long, value_name = "SEC", allow_hyphen_values = true)]
    pub timeout: Option<OsString>,

    /// Memory of the whole sandbox, /tmp included [default: 512m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<OsString>,

    /// CPUs, fractions allowed [default: 0.5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cpus: Option<OsString>,

    /// Processes and threads at once [default: 128]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub pids: Option<OsString>,

    /// Size of /tmp [default: 128m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub tmp: Option<OsString>,

    /// Bytes of all files in /outputs [default: 50m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub output_max: Option<OsString>,

    /// A variable for the program; repeatable
    #[arg(long, value_name = "K=V")]
    pub env: Vec<OsString>,

    /// Network: only none in this version
    #[arg(long, value_name = "none")]
    pub net: Option<OsString>,

    /// Limits and policies: default, strict, office, or ./file.toml [default: default]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<OsString>,

    /// Go on where this host can't enforce it: memory, pids, cpu (with commas)
    #[arg(long, value_name = "LIMIT")]
    pub allow_unenforced: Vec<OsString>,

    /// By way of a daemon's executor: cold, warm or zygote, see below
    #[arg(long, value_name = "HOW")]
    pub start: Option<OsString>,

    /// Imported ahead with --start warm or zygote (with commas), see below
    #[arg(long, value_name = "MODULE")]
    pub preload: Vec<OsString>,

    /// Print one JSON report instead of passing the program's output through
    #[arg(long)]
    pub json: bool,
}
