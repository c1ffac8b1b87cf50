//! Requests of the storm, and the pools that they fit.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use creel::executor::request::{Input, Lang, Program, Request, Skill, Stdin};
use creel::executor::run_id::new_run_id;
use creel::executor::service::PoolConfig;
use creel::limits::Limits;

use crate::kinds::Given;
use crate::plan::{Mode, Planned};

/// Slots of each of the two pools.
const SLOTS: usize = 4;

/// Run number `n`; its files are in `root`.
pub fn request(root: &Path, image: &str, n: u64, planned: &Planned) -> Request {
    let kind = planned.kind;
    let profile = creel::profile::load("default").unwrap();
    let lang = if kind.bash { Lang::Bash } else { Lang::Python };
    let code = kind.code.replace("{N}", &n.to_string()).into_bytes();
    let (mut inputs, mut skills, mut stdin) = (Vec::new(), Vec::new(), Stdin::Null);
    match kind.given {
        Given::Nothing => {}
        Given::Stdin => stdin = Stdin::File(File::open(root.join("stdin")).unwrap()),
        Given::Files => {
            inputs.push(Input { path: root.join("表 一.csv"), name: None });
            skills.push(Skill { dir: root.join("技能"), id: "draw".into() });
        }
    }
    Request {
        run_id: new_run_id().unwrap(),
        image: image.to_owned(),
        program: Program::Script { lang, code, args: Vec::new() },
        inputs,
        skills,
        stdin,
        env: profile.env,
        limits: Limits { timeout: Duration::from_millis(kind.timeout), ..limits(planned.mode) },
        seccomp: profile.seccomp,
        output_dir: root.join(format!("out-{n}")),
        allow_unenforced: Default::default(),
        pass_through: false,
        notes: Vec::new(),
    }
}

/// Small, so that hostile programs reach them soon. How many outputs are allowed is what tells a run's pool.
fn limits(mode: Mode) -> Limits {
    let mut limits = creel::profile::load("default").unwrap().limits;
    limits.memory = 192 << 20;
    limits.cpu_millis = 1000;
    limits.pids = 64;
    (limits.tmp, limits.shm, limits.run) = (32 << 20, 16 << 20, 8 << 20);
    (limits.work, limits.output) = (32 << 20, 4 << 20);
    limits.output_files = match mode {
        Mode::Zygote => 1000,
        Mode::Warm => 999,
        Mode::Cold => 998,
    };
    limits
}

/// The pool for runs of this mode.
pub fn pool(image: &str, preload: &[String], mode: Mode) -> PoolConfig {
    let profile = creel::profile::load("default").unwrap();
    PoolConfig {
        image: image.to_owned(),
        limits: limits(mode),
        seccomp: profile.seccomp,
        env: profile.env,
        allow_unenforced: Default::default(),
        preload: preload.to_vec(),
        zygote: mode == Mode::Zygote,
        per_tenant: false,
        size: SLOTS,
        hot: 1,
        patience: Duration::ZERO,
        // Short, so that both are replaced again and again.
        max_age: Duration::from_secs(10),
        zygote_forks: 40,
        zygote_age: Duration::from_secs(20),
    }
}
