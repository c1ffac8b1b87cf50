//! `creel bench`: how fast and how small, measured on this host, beside the peers that it has.
//!
//! The same stop-watch for all ([`clock`]); contestants take turns in an order that changes each round; who can't take part is named with
//! the reason. Runs in a process of its own that may have threads; what it starts it ends by pid, and what it makes it takes away, also
//! after Ctrl-C.

#![forbid(unsafe_code)]

pub mod clock;
pub mod cold;
pub mod daemon;
pub mod density;
pub mod facts;
pub mod html;
pub mod image;
pub mod outcome;
pub mod peers;
pub mod place;
pub mod procs;
pub mod progress;
pub mod report;
pub mod room;
pub mod setup;
pub mod shuffle;
pub mod slots;
pub mod stats;
pub mod stop;
mod svg;
pub mod throughput;
pub mod train;
pub mod warm;
pub mod warm_rate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cold::{Mode, Once};
use daemon::{Daemons, Spawners};
use facts::Facts;
use image::{Subject, Work};
use outcome::{Absent, Entry, Outcome, Settings};
use peers::{Contestant, Creel, Setting};
use progress::Progress;
use room::{Plan as RoomPlan, Room};
use setup::{Kind, Setup};
use stop::Stop;

use crate::image::ImageError;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Cold,
    Warm,
    Throughput,
    Density,
}

/// What `warm` does, by name.
pub const WARM_WORKS: [&str; 3] = ["pandas", "pass", "python"];

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Plan {
    pub what: What,
    pub image: String,
    /// Whether peers take part.
    pub peers: bool,
    /// Names of [`image::WORKS`]; of warm, of [`WARM_WORKS`].
    pub works: Vec<String>,
    pub modes: Vec<Mode>,
    pub rounds: u32,
    pub warm_up: u32,
    pub seed: u64,
    pub burst: usize,
    pub stagger: Duration,
    pub window: Duration,
    pub count: u32,
    /// Of density: slots that wait, instead of sandboxes that sleep.
    pub slots: Option<usize>,
    /// Rest before each start.
    pub pause: Duration,
    pub allow_unenforced: Vec<String>,
}

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("creel failed: {0}")]
    Creel(String),
    #[error("{0}")]
    Host(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("stopped; all that was started has been ended")]
    Stopped,
}

impl BenchError {
    /// `area.reason`; the area `host` means that the caller is not at fault.
    pub fn code(&self) -> &'static str {
        match self {
            BenchError::Creel(_) => "host.bench_run",
            BenchError::Host(_) => "host.bench",
            BenchError::Refused(_) => "bench.refused",
            BenchError::Image(e) if e.is_host_fault() => "host.image",
            BenchError::Image(e) => e.code(),
            BenchError::Stopped => "bench.run_cancelled",
        }
    }
}

/// One benchmark at work.
pub struct Bench {
    plan: Plan,
    // Dropped in this order: the rooms and imported images go before the directories that they are in.
    contestants: Vec<Contestant>,
    setting: Setting,
    absent: Vec<Absent>,
    stop: Arc<Stop>,
    progress: Progress,
    /// By creel's own report.
    unenforced: BTreeSet<String>,
}

/// Carries a plan out.
///
/// # Errors
/// [`BenchError`]; nothing of it is left then either.
pub fn run(plan: Plan, stop: Stop, progress: Progress) -> Result<Outcome, BenchError> {
    let subject = Subject::open(&plan.image)?;
    // Before this process has threads.
    let spawners = match (plan.what, plan.slots) {
        (What::Warm, _) => Some(Spawners::start(&Kind::ALL)?),
        (What::Density, Some(_)) => Some(Spawners::start(&[Kind::Zygote])?),
        _ => None,
    };
    let mut facts = Facts::gather(&subject, plan.page_cache());
    let scratch = place::Scratch::new();
    let scratch = scratch.map_err(|e| BenchError::Host(format!("cannot make a temporary directory: {e}")))?;
    let setting = Setting {
        scratch,
        group: place::Group::new(),
        subject,
        cpus: plan.cpus(facts.cpus),
        allow_unenforced: plan.allow_unenforced.clone(),
    };
    let host = Arc::new(Room::make(RoomPlan::default()).map_err(BenchError::Host)?);
    let creel = Creel::new(&setting).map_err(BenchError::Host)?;
    let contestants = vec![creel.clone().contestant(&host)];
    let mut bench = Bench {
        plan,
        setting,
        contestants,
        absent: Vec::new(),
        stop: Arc::new(stop),
        progress,
        unenforced: BTreeSet::new(),
    };
    if bench.plan.what != What::Density {
        bench.gather(&host)?;
    }
    let (mut series, mut timings, mut rates, mut density, mut slots) = Default::default();
    let mut preload = Vec::new();
    if let Some(spawners) = spawners {
        let output_dir = bench.setting.scratch.path().join("outputs");
        let setup = Setup::of(&bench.plan, creel.image().to_owned(), output_dir)?;
        preload.clone_from(&setup.preload);
        match bench.plan.slots {
            Some(_) => slots = Some(slots::measure(&mut bench, spawners, setup)?),
            None => {
                let daemons = Daemons::start(spawners, setup)?;
                let found = warm::measure(&mut bench, &daemons, &creel)?;
                (series, timings, rates) = (found.series, found.timings, found.rates);
            }
        }
    }
    match bench.plan.what {
        What::Cold => (series, timings) = cold::measure(&mut bench)?,
        What::Throughput => rates = throughput::measure(&mut bench)?,
        What::Density if slots.is_none() => density = Some(density::measure(&mut bench, &creel)?),
        What::Density | What::Warm => {}
    }
    facts.load_after = facts::load();
    let mut doubts = facts.doubts();
    if !bench.unenforced.is_empty() {
        let names: Vec<&str> = bench.unenforced.iter().map(String::as_str).collect();
        doubts.push(format!("creel did not enforce everything here: {}", names.join(", ")));
    }
    Ok(Outcome {
        creel_bench: 1,
        measured: bench.plan.what.name(),
        clock: if bench.plan.what == What::Warm { daemon::CLOCK } else { clock::CLOCK },
        how: report::how(&bench.plan),
        settings: bench.plan.settings(bench.setting.cpus, preload),
        contestants: bench.entries(),
        doubts,
        facts,
        absent: std::mem::take(&mut bench.absent),
        series,
        timings,
        rates,
        density,
        slots,
    })
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::Cold => "cold",
            What::Warm => "warm",
            What::Throughput => "throughput",
            What::Density => "density",
        }
    }
}

impl Plan {
    /// The CPU limit of everyone who has one.
    fn cpus(&self, all: usize) -> usize {
        if self.what == What::Warm { setup::CPU_MILLIS as usize / 1000 } else { all }
    }

    fn page_cache(&self) -> String {
        match (self.what, self.warm_up) {
            (What::Density, _) if self.slots.is_some() => "warm: the zygote had imported its modules".into(),
            (What::Density, _) => "warm: one sandbox was started and ended before those that count".into(),
            (_, 0) => "as it was found: nothing warmed up on purpose, nothing dropped".into(),
            (_, n) => format!("warm: {n} rounds of the same runs before those that count; nothing dropped"),
        }
    }

    fn settings(&self, cpus: usize, preload: Vec<String>) -> Settings {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Settings {
            rounds: self.rounds,
            warm_up: self.warm_up,
            seed: self.seed,
            pause_ms: ms(self.pause),
            burst: self.burst,
            stagger_ms: ms(self.stagger),
            window_s: self.window.as_secs_f64(),
            count: self.count,
            slots: self.slots.unwrap_or(if self.what == What::Warm { Setup::size(self.burst) } else { 0 }),
            preload,
            memory_bytes: peers::MEMORY,
            pids: peers::PIDS,
            cpus,
        }
    }
}

impl Bench {
    /// Finds everyone but creel.
    fn gather(&mut self, host: &Arc<Room>) -> Result<(), BenchError> {
        self.progress.part("looking for contestants", peers::PEERS.len() as u64);
        match peers::bare(&self.setting) {
            Ok(bare) => self.contestants.insert(0, bare),
            Err(why) => self.leave_out("bare", None, why),
        }
        let wanted: &[&str] = if self.plan.peers { &peers::PEERS } else { &[] };
        for name in wanted {
            if self.stop.is_set() {
                return Err(BenchError::Stopped);
            }
            match peers::find(name, &self.setting, host) {
                Ok(peer) => self.contestants.push(peer),
                Err(why) => self.leave_out(name, None, why),
            }
            self.progress.step();
        }
        Ok(())
    }

    fn leave_out(&mut self, name: &str, work: Option<&'static str>, reason: String) {
        self.absent.push(Absent { name: name.to_owned(), work, reason });
    }

    /// The work that this image can do; what it can't is named.
    fn works(&mut self) -> Result<Vec<Work>, BenchError> {
        let mut works = Vec::new();
        for name in self.plan.works.clone() {
            match Work::of(&name, &self.setting.subject) {
                Ok(work) => works.push(work),
                Err(why) => {
                    let name = image::WORKS.into_iter().find(|w| *w == name);
                    self.leave_out("*", name, why);
                }
            }
        }
        // creel says whether pandas is there.
        let creel = self.contestants.iter().find(|c| c.name == "creel").cloned();
        if let (Some(creel), Some(at)) = (creel, works.iter().position(|w| w.name == "pandas")) {
            match cold::once(self, &creel, &works[at], 1, None) {
                Ok(_) => {}
                Err(Once::Stopped) => return Err(BenchError::Stopped),
                Err(Once::Failed(why)) => {
                    works.remove(at);
                    self.leave_out("*", Some("pandas"), why);
                }
            }
        }
        if works.is_empty() {
            let why: Vec<&str> = self.absent.iter().map(|a| a.reason.as_str()).collect();
            return Err(BenchError::Refused(format!("nothing to measure: {}", why.join("; "))));
        }
        Ok(works)
    }

    /// Those who can do a piece of work: each does it once.
    fn entrants(&mut self, work: &Work) -> Result<Vec<Contestant>, BenchError> {
        let mut entrants = Vec::new();
        self.progress.part(&format!("{}, first runs", work.name), self.contestants.len() as u64);
        for contestant in self.contestants.clone() {
            match cold::once(self, &contestant, work, 1, None) {
                Ok(done) => {
                    self.look(done.first().map(|(_, report)| report));
                    entrants.push(contestant);
                }
                Err(Once::Stopped) => return Err(BenchError::Stopped),
                Err(Once::Failed(why)) if contestant.name == "creel" => {
                    return Err(BenchError::Creel(format!("{}: {why}", work.name)));
                }
                Err(Once::Failed(why)) => {
                    let why = self.talk(&contestant, work).unwrap_or(why);
                    self.leave_out(contestant.name, Some(work.name), why);
                }
            }
            self.progress.step();
        }
        Ok(entrants)
    }

    /// Notes which limits creel's report calls unenforced.
    fn look(&mut self, report: Option<&serde_json::Value>) {
        for (limit, by) in report.and_then(|r| r["enforced"].as_object()).into_iter().flatten() {
            if by == "unenforced" {
                self.unenforced.insert(limit.clone());
            }
        }
    }

    /// What a contestant says that is quiet in the measured runs.
    fn talk(&self, contestant: &Contestant, work: &Work) -> Option<String> {
        let job = contestant.peer.talkative(&work.command)?;
        let done = train::run(contestant, vec![job], None, &self.stop).pop()?.ok()?;
        Some(format!("exit code {}: {}", done.code, peers::explain(&done.output)))
    }

    /// The contestants as they are reported, with a command line.
    fn entries(&self) -> Vec<Entry> {
        let sample = Work::of("true", &self.setting.subject).map(|w| w.command).unwrap_or_default();
        let command = |c: &Contestant| -> Vec<String> {
            let argv = c.peer.job(&sample).map(|job| job.argv).unwrap_or_default();
            argv.iter().map(|a| a.to_string_lossy().into_owned()).collect()
        };
        let entry = |c: &Contestant| Entry {
            name: c.name,
            version: c.version.clone(),
            notes: c.notes.clone(),
            command: command(c),
        };
        let daemon = |kind: Kind| Entry {
            name: kind.name(),
            version: String::new(),
            notes: vec![kind.note().to_owned()],
            command: Vec::new(),
        };
        let kinds: &[Kind] = match (self.plan.what, self.plan.slots) {
            (What::Warm, _) => &Kind::ALL,
            (_, Some(_)) => &[Kind::Zygote],
            _ => &[],
        };
        kinds.iter().map(|kind| daemon(*kind)).chain(self.contestants.iter().map(entry)).collect()
    }
}
