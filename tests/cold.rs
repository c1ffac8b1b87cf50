//! The promises of a sandbox, as `creel run` keeps them: one module of tests/sandbox/ for each. `warm` and `zygote` have the same tests.

/// A test of which nothing can start but cold: a bash script, or a command of the image.
macro_rules! cold_only {
    (fn $name:ident() $body:block) => {
        #[test]
        fn $name() $body
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
#[path = "sandbox/standard_library.rs"]
mod standard_library;
#[path = "sandbox/streams.rs"]
mod streams;
