//! `creel bench`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::paths::{text, usage};
use super::refusal::{HOST_FAULT, Refusal};
use crate::bench::cold::Mode;
use crate::bench::progress::Progress;
use crate::bench::stop::Stop;
use crate::bench::{BenchError, Plan, WARM_WORKS, What, facts, html, image, report, run, slots};
use crate::image::{Place, default_name, find};
use crate::sys;
use crate::text::{io_reason, quoted};

/// The image that `warm` and `--slots` take when it is there.
const DATA: &str = "data";

/// What `--help` says besides the options.
pub const AFTER: &str = "\
What to measure:
  cold        the time of one run: one after the other, staggered, and many at once
  warm        the time of a run in a sandbox that was made ahead, beside cold starts of the same, and runs per second
  throughput  runs per second at one, cores and 2 x cores at once
  density     the memory of sandboxes that sleep; with --slots, of those made ahead that wait for a program

The clock runs from just before the program is started (creel run, a peer, or the bare command) until its exit was reaped
and its output read to the end. All take turns in an order that changes each round; who can't take part is named with
the reason. Of warm, the clock runs from the submission of a run to this process's own executor until its report is returned;
runs that were meant to find a sandbox made ahead and did not are counted apart. Ctrl-C ends it and leaves nothing.

Examples:
  creel bench cold --peers --html cold.html
  creel bench cold --image data --work pandas --rounds 100
  creel bench warm --image data --html warm.html
  creel bench density --image data --slots 1000

Exit code: 0; 125 creel or the host failed; 126 refused (usage, no such image); 130 stopped.";

/// Options of `creel bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// cold, warm, throughput or density
    pub what: Option<OsString>,

    /// Measure the peers found on this host too: bubblewrap, nsjail, crun, runc, runsc, podman, docker
    #[arg(long)]
    pub peers: bool,

    /// An installed image, host, or ./bundle [default: the one that creel run takes; of warm and --slots, data where it is installed]
    #[arg(long, value_name = "NAME")]
    pub image: Option<OsString>,

    /// Counted rounds; of throughput, windows [default: 30; throughput: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub rounds: Option<OsString>,

    /// Rounds that are run first and dropped [default: 5, at most as many as counted]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub warm_up: Option<OsString>,

    /// Of cold and warm: sequential, staggered, burst (with commas) [default: all]
    #[arg(long, value_name = "MODES")]
    pub mode: Option<OsString>,

    /// true, python, pandas; of warm: pandas, pass, python (with commas) [default: all the image can do; throughput: python]
    #[arg(long, value_name = "NAMES")]
    pub work: Option<OsString>,

    /// Starts at once in a burst, and in a staggered train [default: 2 x cores]
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub burst: Option<OsString>,

    /// Milliseconds between the starts of a staggered train [default: 20]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub stagger: Option<OsString>,

    /// Of throughput and warm: seconds of a window [default: 2; warm: 5]
    #[arg(long, value_name = "SEC", allow_hyphen_values = true)]
    pub window: Option<OsString>,

    /// Of density: sandboxes [default: 50]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub count: Option<OsString>,

    /// Of density: sandboxes made ahead that wait for a program, instead of ones that sleep [default: 500]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "500", allow_hyphen_values = true)]
    pub slots: Option<OsString>,

    /// Repeats the orders of a run that printed it [default: another one each time]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<OsString>,

    /// As in creel run: memory, pids, cpu (with commas)
    #[arg(long, value_name = "LIMIT")]
    pub allow_unenforced: Vec<OsString>,

    /// Print one JSON object with all samples instead of text
    #[arg(long)]
    pub json: bool,

    /// Write one self-contained page with the distributions drawn
    #[arg(long, value_name = "FILE")]
    pub html: Option<OsString>,

    /// Say line by line what is being done, instead of a progress bar
    #[arg(long)]
    pub verbose: bool,
}

/// Carries the command out.
pub fn main(args: &Args) -> ExitCode {
    if sys::fds::ensure_std().and_then(|()| sys::fds::cloexec_from_3()).is_err() {
        eprintln!("creel: cannot put the standard streams in order: is /dev/null there?");
        return ExitCode::from(HOST_FAULT);
    }
    match measure(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => refusal.report(),
    }
}

fn measure(args: &Args) -> Result<(), Refusal> {
    let plan = plan(args)?;
    // Found out now, not after minutes.
    let page = args.html.as_deref().map(|path| {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(Path::new(path));
        let refuse = |e| usage(format!("--html: {} can't be written: {}", quoted(path), io_reason(&e)));
        file.map_err(refuse)
    });
    let page = page.transpose()?;
    let stop = Stop::on_signals();
    let stop = stop.map_err(|e| Refusal::new("host.signals", format!("no signals: {}", io_reason(&e))))?;
    let done = run(plan, stop, Progress::new(args.verbose));
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(error) => {
            // A page that never got a word on it.
            if let (Some(file), Some(path)) = (page, &args.html)
                && file.metadata().is_ok_and(|m| m.len() == 0 && m.is_file())
            {
                let _ = std::fs::remove_file(path);
            }
            return Err(error.into());
        }
    };
    if let (Some(mut file), Some(path)) = (page, &args.html) {
        // A device or pipe has no length to set.
        let _ = file.set_len(0);
        file.write_all(html::page(&outcome).as_bytes()).map_err(|e| {
            Refusal::new("host.output", format!("--html: cannot write {}: {}", quoted(path), io_reason(&e)))
        })?;
    }
    let text = if args.json {
        let text = serde_json::to_string_pretty(&outcome);
        text.map_err(|e| Refusal::new("host.output", format!("cannot write the result: {e}")))? + "\n"
    } else {
        report::text(&outcome)
    };
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            let message = format!("cannot write to standard output: {}", io_reason(&e));
            Err(Refusal::new("host.output", message))
        }
        _ => Ok(()),
    }
}

/// Checks the options.
fn plan(args: &Args) -> Result<Plan, Refusal> {
    let what = what(args.what.as_deref())?;
    let ahead = what == What::Warm || args.slots.is_some();
    let image = match args.image.as_deref() {
        Some(name) => text("--image", name)?.to_owned(),
        // The image that warm starts are for.
        None if ahead && matches!(find(DATA), Ok(Place::Installed(_))) => DATA.to_owned(),
        None => default_name().map_err(BenchError::from)?,
    };
    if what == What::Warm && args.peers {
        return Err(usage("--peers: warm is measured of creel alone, beside its own cold starts"));
    }
    if what != What::Density && args.slots.is_some() {
        return Err(usage("--slots belongs to density"));
    }
    if args.slots.is_some() && args.count.is_some() {
        return Err(usage(
            "--count is of sandboxes that sleep, --slots of those that wait for a program: take one",
        ));
    }
    if what == What::Density && (args.peers || args.work.is_some()) {
        let option = if args.peers { "--peers" } else { "--work" };
        return Err(usage(format!("{option}: density is measured of creel alone, which waits in sleep")));
    }
    if !matches!(what, What::Cold | What::Warm) && args.mode.is_some() {
        return Err(usage("--mode belongs to cold and warm"));
    }
    let rounds = number(
        "--rounds",
        &args.rounds,
        1,
        100_000,
        if matches!(what, What::Cold | What::Warm) { 30 } else { 3 },
    )?;
    let seed = match &args.seed {
        Some(_) => number("--seed", &args.seed, 0, u64::MAX, 0)?,
        None => random(),
    };
    let known = if what == What::Warm { &WARM_WORKS } else { &image::WORKS };
    let works = list("--work", args.work.as_deref(), known)?;
    let works = works.unwrap_or_else(|| match what {
        What::Throughput => vec!["python"],
        _ => known.to_vec(),
    });
    let names = Mode::ALL.map(Mode::name);
    let modes = list("--mode", args.mode.as_deref(), &names)?;
    let modes = modes.map_or(Mode::ALL.to_vec(), |wanted| {
        Mode::ALL.into_iter().filter(|m| wanted.contains(&m.name())).collect()
    });
    let mut allow = Vec::new();
    for value in &args.allow_unenforced {
        let kinds = list("--allow-unenforced", Some(value), &["memory", "pids", "cpu"])?;
        allow.extend(kinds.into_iter().flatten().map(str::to_owned));
    }
    let small = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
    let cores = facts::cpus() as u64;
    Ok(Plan {
        what,
        image,
        peers: args.peers,
        works: works.into_iter().map(str::to_owned).collect(),
        modes,
        rounds: small(rounds),
        warm_up: small(number("--warm-up", &args.warm_up, 0, 100_000, rounds.min(5))?),
        seed,
        burst: usize::try_from(number("--burst", &args.burst, 2, 512, 2 * cores)?).unwrap_or(2),
        stagger: Duration::from_millis(number("--stagger", &args.stagger, 1, 60_000, 20)?),
        window: Duration::from_secs(number(
            "--window",
            &args.window,
            1,
            3600,
            if what == What::Warm { 5 } else { 2 },
        )?),
        count: small(number("--count", &args.count, 1, 100_000, 50)?),
        slots: match &args.slots {
            Some(_) => usize::try_from(number("--slots", &args.slots, 1, 100_000, slots::COUNT)?).ok(),
            None => None,
        },
        pause: Duration::from_millis(10),
        allow_unenforced: allow,
    })
}

fn what(name: Option<&OsStr>) -> Result<What, Refusal> {
    const KNOWN: &str = "cold, warm, throughput, density";
    let see = |message: String| usage(message).hint("see creel bench --help");
    let Some(name) = name else {
        return Err(see(format!("no measurement given; there are: {KNOWN}")));
    };
    match name.to_str() {
        Some("cold") => Ok(What::Cold),
        Some("warm") => Ok(What::Warm),
        Some("throughput") => Ok(What::Throughput),
        Some("density") => Ok(What::Density),
        _ => Err(see(format!("{} is no measurement; there are: {KNOWN}", quoted(name)))),
    }
}

fn number(option: &str, value: &Option<OsString>, min: u64, max: u64, default: u64) -> Result<u64, Refusal> {
    let Some(value) = value else {
        return Ok(default);
    };
    let number = text(option, value)?.parse::<u64>().ok().filter(|n| (min..=max).contains(n));
    number.ok_or_else(|| {
        usage(format!("{option}: {} is refused; accepted: a whole number from {min} to {max}", quoted(value)))
    })
}

/// Names with commas, each once, in the order of `known`.
fn list(
    option: &str,
    value: Option<&OsStr>,
    known: &[&'static str],
) -> Result<Option<Vec<&'static str>>, Refusal> {
    let Some(value) = value else {
        return Ok(None);
    };
    let mut wanted = Vec::new();
    for name in text(option, value)?.split(',') {
        match known.iter().find(|k| **k == name) {
            Some(name) => wanted.push(*name),
            None => {
                return Err(usage(format!("{option}: no {}; accepted: {}", quoted(name), known.join(", "))));
            }
        }
    }
    Ok(Some(known.iter().copied().filter(|k| wanted.contains(k)).collect()))
}

/// A seed; which one does not matter, so that a host without random bytes is no obstacle.
fn random() -> u64 {
    let mut bytes = [0; 4];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from(u32::from_le_bytes(bytes))
}

impl From<BenchError> for Refusal {
    fn from(error: BenchError) -> Refusal {
        Refusal::new(error.code(), error.to_string())
    }
}
