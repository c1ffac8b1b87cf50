//! Promise: the executor of a daemon carries out many runs at once, keeps a bounded queue, cancels so that nothing lives on, and leaves nothing
//! behind, whoever dies.
//!
//! A runner of its own: each test is a process of its own that forks the spawner first, while it has one thread.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod cancel;
mod death;
mod many;
mod queue;
mod streams;
mod support;
mod zygote;

use std::process::{Command, ExitCode};

use common::Ctx;
use support::{Test, World};

/// Every test: its name and what it does.
const TESTS: &[(&str, Test)] = &[
    ("many::runs_at_once_do_not_disturb_each_other", many::runs_at_once_do_not_disturb_each_other),
    ("many::two_hundred_runs_leave_descriptors_and_memory_flat", many::two_hundred_runs_leave_it_flat),
    ("many::different_ends_have_the_words_of_creel_run", many::different_ends),
    ("many::a_plan_that_fails_is_reported", many::a_plan_that_fails),
    ("many::a_pool_that_cannot_be_filled_lets_runs_go_cold", many::a_pool_that_cannot_be_filled),
    ("queue::its_bound_holds_and_says_when_to_come_back", queue::its_bound_holds),
    ("queue::first_come_first_served", queue::first_come_first_served),
    ("queue::no_run_twice", queue::no_run_twice),
    ("cancel::while_it_waits", cancel::while_it_waits),
    ("cancel::while_it_starts", cancel::while_it_starts),
    ("cancel::with_children_that_ignore_signals", cancel::with_children_that_ignore_signals),
    ("cancel::shutdown_ends_everything", cancel::shutdown_ends_everything),
    ("streams::output_comes_before_the_end", streams::output_comes_before_the_end),
    ("streams::a_listener_that_sleeps_blocks_nobody", streams::a_listener_that_sleeps_blocks_nobody),
    ("streams::inputs_skills_stdin_and_outputs", streams::inputs_skills_stdin_and_outputs),
    ("ahead::runs_are_hits_in_both_kinds", ahead::runs_are_hits_in_both_kinds),
    ("ahead::a_slot_serves_once_and_is_replaced", ahead::a_slot_serves_once_and_is_replaced),
    ("ahead::a_slot_that_died_is_replaced", ahead::a_slot_that_died_is_replaced),
    ("ahead::a_slot_that_was_tampered_with_is_not_used", ahead::a_slot_that_was_tampered_with_is_not_used),
    ("ahead::a_slot_that_is_too_old_is_replaced", ahead::a_slot_that_is_too_old_is_replaced),
    ("ahead::a_zygote_is_recycled", ahead::a_zygote_is_recycled),
    ("ahead::a_zygote_that_dies_takes_no_run_with_it", ahead::a_zygote_that_dies_takes_no_run_with_it),
    ("ahead::a_tenant_has_a_zygote_of_its_own", ahead::a_tenant_has_a_zygote_of_its_own),
    ("ahead::what_cannot_be_imported_is_told", ahead::what_cannot_be_imported_is_told),
    ("ahead::a_module_with_threads_is_refused", ahead::a_module_with_threads_is_refused),
    ("ahead::other_requests_go_cold", ahead::other_requests_go_cold),
    ("zygote::a_hundred_draw_differently", zygote::a_hundred_draw_differently),
    ("zygote::siblings_are_out_of_reach", zygote::siblings_are_out_of_reach),
    ("death::of_a_launcher", death::of_a_launcher),
    ("death::of_the_spawner", death::of_the_spawner),
    ("death::of_the_daemon", death::of_the_daemon),
];

/// Says to a process of a test which one it is.
const WHICH: &str = "CREEL_SERVICE_TEST";

fn main() -> ExitCode {
    creel::sandbox::init::become_if_asked();
    if let Ok(name) = std::env::var(WHICH) {
        let Some((_, test)) = TESTS.iter().find(|(n, _)| *n == name) else {
            panic!("no test {name}");
        };
        World::enter(test);
        return ExitCode::SUCCESS;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|a| a == name);
    if flag("--list") {
        // None is ignored.
        TESTS.iter().filter(|_| !flag("--ignored")).for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let is_wanted = |name: &str| {
        let fits = |w: &&String| if flag("--exact") { *w == name } else { name.contains(w.as_str()) };
        wanted.is_empty() || wanted.iter().any(fits)
    };
    let mut failed = 0;
    for (name, _) in TESTS.iter().filter(|(name, _)| is_wanted(name)) {
        // A test that hangs is ended by nextest.
        let Some(ctx) = Ctx::new() else { continue };
        let mut test = ctx.within(Command::new(std::env::current_exe().unwrap()));
        let status = test.env(WHICH, name).env(support::ROOT, ctx.root()).status();
        let ok = status.unwrap().success();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok {
            ctx.assert_state_clean();
        }
        failed += usize::from(!ok);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
