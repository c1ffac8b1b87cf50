//! The tests of tests/sandbox/ once more, each Python script delivered to a Python that was started before (`creel run --start warm`).

// What only the tests left out use.
#![allow(dead_code, unused_imports)]

/// Stands in the list as ignored, and has nothing to run: there is no Python script in it, and nothing else can be made ahead.
macro_rules! cold_only {
    (fn $name:ident() $body:block) => {
        mod $name {
            #[test]
            #[ignore = "no Python script: nothing of it can be made ahead"]
            fn not_applicable() {}
        }
    };
}

mod common;

#[path = "sandbox/cli_contract.rs"]
mod cli_contract;
#[path = "sandbox/differential.rs"]
mod differential;
#[path = "sandbox/disk_limits.rs"]
mod disk_limits;
#[path = "sandbox/escape_sample.rs"]
mod escape_sample;
#[path = "sandbox/found_by_users.rs"]
mod found_by_users;
#[path = "sandbox/inputs.rs"]
mod inputs;
#[path = "sandbox/inside.rs"]
mod inside;
#[path = "sandbox/leftovers.rs"]
mod leftovers;
#[path = "sandbox/limits.rs"]
mod limits;
#[path = "sandbox/outputs.rs"]
mod outputs;
#[path = "sandbox/parallel.rs"]
mod parallel;
#[path = "sandbox/report.rs"]
mod report;
#[path = "sandbox/rootless.rs"]
mod rootless;
#[path = "sandbox/slot.rs"]
mod slot;
#[path = "sandbox/standard_library.rs"]
mod standard_library;
#[path = "sandbox/streams.rs"]
mod streams;
