//! Promise: whatever programs do and whoever dies, a daemon's executor tells of each run what was true of it, and leaves nothing behind.
//!
//! A bounded storm: clients run good and hostile programs in cold, warm and zygote sandboxes, some are cancelled, and launchers, inits, waiting Pythons
//! and zygotes are killed at random. `CREEL_SOAK_RUNS` (300 when nothing is said) or `CREEL_SOAK_MINUTES` bounds it, `CREEL_SOAK_SEED` repeats its
//! choices, `CREEL_SOAK_IMAGE` and `CREEL_SOAK_PRELOAD` (with commas) say what the sandboxes are made of (`host`, and modules of the standard library).
//!
//! A runner of its own: the storm is a process that forks the spawner first, while it has one thread.

#[path = "../common/mod.rs"]
mod common;

mod host;
mod kinds;
mod plan;
mod request;
mod storm;
mod strike;
mod verdict;

use std::process::{Command, ExitCode};

use common::Ctx;

/// The only test.
const NAME: &str = "storm";
/// Says to a process that it is the storm, and where its directory is.
const ROOT: &str = "CREEL_SOAK_ROOT";

fn main() -> ExitCode {
    creel::sandbox::init::become_if_asked();
    let args: Vec<String> = std::env::args().collect();
    if let Some(root) = std::env::var_os(ROOT) {
        return storm::main(root.into());
    }
    let flag = |name: &str| args.iter().any(|a| a == name);
    if flag("--list") {
        if !flag("--ignored") {
            println!("{NAME}: test");
        }
        return ExitCode::SUCCESS;
    }
    let mut wanted = args.iter().skip(1).filter(|a| !a.starts_with("--")).peekable();
    if wanted.peek().is_some() && !wanted.any(|w| NAME.contains(w.as_str())) {
        return ExitCode::SUCCESS;
    }
    let Some(ctx) = Ctx::new() else { return ExitCode::SUCCESS };
    let mut storm = ctx.within(Command::new(std::env::current_exe().unwrap()));
    let status = storm.env(ROOT, ctx.root()).status().unwrap();
    if !status.success() {
        println!("test {NAME} ... FAILED ({status})");
        return ExitCode::from(101);
    }
    ctx.assert_state_clean();
    println!("test {NAME} ... ok");
    ExitCode::SUCCESS
}
