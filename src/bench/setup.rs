//! What `warm` and `density --slots` run, and what their sandboxes are made of.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::clock::HANG;
use super::{BenchError, Plan};
use crate::executor::request::{Lang, Program, Request, SeccompChoice, Stdin};
use crate::executor::run_id::new_run_id;
use crate::executor::service::{PoolConfig, usual_modules};
use crate::limits::{LimitKind, Limits};

/// Thousandths of a CPU: the most that a zygote allows.
pub const CPU_MILLIS: u32 = 1000;
/// Nothing gets old while it is measured.
const NEVER: Duration = Duration::from_secs(24 * 3600);
/// A kind of start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Zygote,
    Warm,
    Cold,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Zygote, Kind::Warm, Kind::Cold];

    /// The word of the report's `start`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Zygote => "zygote",
            Kind::Warm => "warm",
            Kind::Cold => "cold",
        }
    }

    /// What it is, for people.
    pub fn note(self) -> &'static str {
        match self {
            Kind::Zygote => {
                "in this process's executor: a slot that was forked from a Python with the modules imported"
            }
            Kind::Warm => {
                "in this process's executor: a slot with a Python of its own that has imported the modules"
            }
            Kind::Cold => "in this process's executor: a cold start",
        }
    }
}

/// What all executors here have in common.
#[derive(Debug)]
pub struct Setup {
    pub image: String,
    pub limits: Limits,
    pub seccomp: SeccompChoice,
    pub allow_unenforced: BTreeSet<LimitKind>,
    pub preload: Vec<String>,
    /// Slots that wait in each pool.
    pub size: usize,
    /// How many of them have their memory made ready.
    pub hot: usize,
    /// Slots of a pool that are made at once.
    pub refills: usize,
    /// Runs at once.
    pub running: usize,
    /// Where outputs would go.
    pub output_dir: PathBuf,
}

/// In which a slot is forked even on a busy machine, and a fraction of a cold start with pandas.
const PATIENCE: Duration = Duration::from_millis(200);

impl Setup {
    /// The default profile with the whole CPU that a zygote allows, so that a cold import is not measured at half of one.
    ///
    /// # Errors
    /// A profile that can't be read.
    pub fn of(plan: &Plan, image: String, output_dir: PathBuf) -> Result<Setup, BenchError> {
        let profile = crate::profile::load("default").map_err(|e| BenchError::Host(e.to_string()))?;
        let mut limits = profile.limits;
        limits.cpu_millis = CPU_MILLIS;
        limits.timeout = HANG;
        let allowed = |kind: &LimitKind| plan.allow_unenforced.iter().any(|name| name == kind.name());
        let cpus = super::facts::cpus();
        Ok(Setup {
            limits,
            seccomp: profile.seccomp,
            allow_unenforced: [LimitKind::Memory, LimitKind::Pids, LimitKind::Cpu]
                .into_iter()
                .filter(allowed)
                .collect(),
            preload: usual_modules(&image),
            size: plan.slots.unwrap_or_else(|| Setup::size(plan.burst)),
            // Whoever counts memory counts that of slots as they are made.
            hot: if plan.slots.is_some() { 0 } else { Setup::size(plan.burst) },
            refills: cpus,
            running: plan.burst.max(2 * cpus),
            output_dir,
            image,
        })
    }

    /// Slots of a pool that a burst finds full.
    pub fn size(burst: usize) -> usize {
        burst.max(4 * super::facts::cpus())
    }

    /// The pools of an executor for this kind of start.
    pub fn pools(&self, kind: Kind) -> Vec<PoolConfig> {
        if kind == Kind::Cold {
            return Vec::new();
        }
        vec![PoolConfig {
            image: self.image.clone(),
            limits: self.limits.clone(),
            seccomp: self.seccomp.clone(),
            env: Default::default(),
            allow_unenforced: self.allow_unenforced.clone(),
            preload: self.preload.clone(),
            zygote: kind == Kind::Zygote,
            per_tenant: false,
            size: self.size,
            hot: self.hot,
            patience: PATIENCE,
            max_age: NEVER,
            zygote_forks: u64::MAX,
            zygote_age: NEVER,
        }]
    }

    /// A run of a program, with an id of its own.
    ///
    /// # Errors
    /// No random bytes.
    pub fn request(&self, program: &Program) -> std::io::Result<Request> {
        Ok(Request {
            run_id: new_run_id()?,
            image: self.image.clone(),
            program: program.clone(),
            inputs: Vec::new(),
            skills: Vec::new(),
            stdin: Stdin::Null,
            env: Default::default(),
            limits: self.limits.clone(),
            seccomp: self.seccomp.clone(),
            output_dir: self.output_dir.clone(),
            allow_unenforced: self.allow_unenforced.clone(),
            pass_through: false,
            notes: Vec::new(),
        })
    }
}

/// A Python script.
pub fn script(code: &str) -> Program {
    Program::Script { lang: Lang::Python, code: code.as_bytes().to_vec(), args: Vec::new() }
}
