//! How a daemon's executor is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::executor::request::{Lang, Program, Request, SeccompChoice, Stdin};
use crate::limits::{LimitKind, Limits};

/// A zygote imported its modules for one thread: what may use more CPU than one is started without it.
const ZYGOTE_CPU_MAX: u32 = 1000;
/// The profile that never shares an address layout between runs (SECURITY.md).
const STRICT: &str = "strict";

/// Images with these, and what is usually imported ahead for them.
const DATA_IMAGES: [&str; 2] = ["data", "office"];
const DATA_MODULES: [&str; 5] = ["numpy", "pandas", "matplotlib.pyplot", "openpyxl", "docx"];

/// The modules that are imported ahead for an image, by its name with or without a tag, when nobody says which.
pub fn usual_modules(image: &str) -> Vec<String> {
    let name = image.split_once(':').map_or(image, |(name, _)| name);
    if DATA_IMAGES.contains(&name) { DATA_MODULES.map(str::to_owned).to_vec() } else { Vec::new() }
}

/// The executor of a daemon.
#[derive(Debug, Clone)]
pub struct Config {
    /// Runs at once, at least 1.
    pub running: usize,
    /// Runs that may wait; 0: whoever can't run at once is refused.
    pub queue: usize,
    /// Slots of one pool that are made at once, and of all pools together, at least 1.
    pub refills: usize,
    pub pools: Vec<PoolConfig>,
}

/// Sandboxes that are made ahead for requests of one kind.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub image: String,
    /// All but the time-out, which each request brings.
    pub limits: Limits,
    pub seccomp: SeccompChoice,
    /// The profile's. What else a request sets is set when it is there, if no Python reads it earlier.
    pub env: BTreeMap<String, String>,
    pub allow_unenforced: BTreeSet<LimitKind>,
    /// Modules that are imported before a request is there.
    pub preload: Vec<String>,
    /// Whether slots are forked from one Python that has imported them.
    pub zygote: bool,
    /// Whether each tenant has slots (and a zygote) of its own, made from its first request on.
    pub per_tenant: bool,
    /// Slots that wait, for each tenant if `per_tenant`.
    pub size: usize,
    /// How many of them, those that are taken next, have their memory made ready: they have done once what most programs do (about 5 MB each with
    /// pandas), and answer in half the time.
    pub hot: usize,
    /// How long a run that finds no slot waits for the next one, if one can be expected, before it starts cold: a fork of a zygote is ready in some
    /// milliseconds, and a cold start with the same imports takes many times as long.
    pub patience: Duration,
    /// A slot that has waited longer is replaced.
    pub max_age: Duration,
    /// A zygote is replaced after so many forks, at least 1.
    pub zygote_forks: u64,
    /// A zygote that is older is replaced.
    pub zygote_age: Duration,
}

/// A configuration that can't be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{what} is 0: set it to 1 or more")]
    Zero { what: &'static str },
    #[error(
        "the pool for image {image} has {cpu_millis} thousandths of a CPU, and a zygote allows at most {ZYGOTE_CPU_MAX}, because its modules were imported for one thread: lower cpus, or leave zygote out"
    )]
    ZygoteCpus { image: String, cpu_millis: u32 },
    #[error(
        "the pool for image {image} has the seccomp profile strict, whose runs never share an address layout, as those from a zygote do: leave zygote out"
    )]
    ZygoteStrict { image: String },
    #[error("the pool for image {image}: {module:?} is no name of a Python module")]
    Module { image: String, module: String },
}

impl Config {
    /// # Errors
    /// [`ConfigError`]: the first thing in it that can't be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let zero = |n: u64, what| if n == 0 { Err(ConfigError::Zero { what }) } else { Ok(()) };
        zero(self.running as u64, "the number of runs at once")?;
        zero(self.refills as u64, "the number of slots that are made at once")?;
        for pool in &self.pools {
            zero(pool.zygote_forks, "the number of forks of a zygote")?;
            pool.check()?;
        }
        Ok(())
    }
}

impl PoolConfig {
    /// # Errors
    /// [`ConfigError`]: a zygote where there must be none, or a module that is none.
    pub fn check(&self) -> Result<(), ConfigError> {
        let image = || self.image.clone();
        if self.zygote && self.limits.cpu_millis > ZYGOTE_CPU_MAX {
            return Err(ConfigError::ZygoteCpus { image: image(), cpu_millis: self.limits.cpu_millis });
        }
        if self.zygote && self.seccomp.name == STRICT {
            return Err(ConfigError::ZygoteStrict { image: image() });
        }
        match self.preload.iter().find(|m| !is_module(m)) {
            Some(module) => Err(ConfigError::Module { image: image(), module: module.clone() }),
            None => Ok(()),
        }
    }

    /// What a slot is planned for: a Python script that is not known yet.
    pub(super) fn request(&self) -> Request {
        Request {
            run_id: String::new(),
            image: self.image.clone(),
            program: Program::Script { lang: Lang::Python, code: Vec::new(), args: Vec::new() },
            inputs: Vec::new(),
            skills: Vec::new(),
            stdin: Stdin::Null,
            env: self.env.clone(),
            limits: self.limits.clone(),
            seccomp: self.seccomp.clone(),
            output_dir: Default::default(),
            allow_unenforced: self.allow_unenforced.clone(),
            pass_through: false,
            notes: Vec::new(),
        }
    }
}

/// Whether `import` takes it: identifiers with dots between them.
pub fn is_module(name: &str) -> bool {
    let identifier = |part: &str| {
        part.chars().next().is_some_and(|c| c == '_' || c.is_alphabetic())
            && part.chars().all(|c| c == '_' || c.is_alphanumeric())
    };
    name.split('.').all(identifier)
}

#[cfg(test)]
pub(super) fn example() -> PoolConfig {
    let profile = crate::profile::load("default").unwrap();
    PoolConfig {
        image: "host".into(),
        limits: profile.limits,
        seccomp: profile.seccomp,
        env: profile.env,
        allow_unenforced: BTreeSet::new(),
        preload: vec!["json".into()],
        zygote: false,
        per_tenant: false,
        size: 2,
        hot: 0,
        patience: Duration::ZERO,
        max_age: Duration::from_secs(600),
        zygote_forks: 100,
        zygote_age: Duration::from_secs(600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zygote_is_refused_where_it_must_not_be() {
        let mut pool = PoolConfig { zygote: true, ..example() };
        assert_eq!(pool.check(), Ok(()));
        pool.limits.cpu_millis = 1500;
        assert!(matches!(pool.check(), Err(ConfigError::ZygoteCpus { cpu_millis: 1500, .. })));
        pool.zygote = false;
        assert_eq!(pool.check(), Ok(()));
        pool = PoolConfig { zygote: true, ..example() };
        pool.seccomp = crate::profile::load("strict").unwrap().seccomp;
        let error = pool.check().unwrap_err();
        assert!(error.to_string().contains("address layout"), "{error}");
    }

    #[test]
    fn modules_are_names() {
        for good in ["numpy", "matplotlib.pyplot", "_x1", "数据"] {
            assert!(is_module(good), "{good}");
        }
        for bad in ["", ".", "a.", "a b", "os;x", "1a", "a-b", "a\n"] {
            assert!(!is_module(bad), "{bad:?}");
            let pool = PoolConfig { preload: vec![bad.into()], ..example() };
            assert!(matches!(pool.check(), Err(ConfigError::Module { .. })), "{bad:?}");
        }
    }

    #[test]
    fn nothing_at_all_is_no_configuration() {
        let config = Config { running: 0, queue: 1, refills: 1, pools: vec![] };
        assert!(config.check().unwrap_err().to_string().contains("runs at once"));
        let config = Config { running: 1, refills: 0, ..config };
        assert!(config.check().is_err());
        assert_eq!(Config { refills: 1, ..config }.check(), Ok(()));
    }
}
