//! Promise: `minimal` does real jobs, judged from outside. (`make image-test` does the same, and more, with `data` and `office`.)

mod common;

use std::path::Path;
use std::process::Command;

use common::{finish, images, spawn};

#[test]
fn minimal() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: images are built by root, and the tests run as an ordinary user");
        return;
    }
    let proofs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proofs/prove.py");
    let mut command = Command::new("python3");
    command.args(["-B"]).arg(proofs).arg("minimal");
    command
        .env("CREEL", env!("CARGO_BIN_EXE_creel"))
        .env("CREEL_STATE_DIR", images::state())
        .env_remove("IMAGES");
    let ran = finish(spawn(&mut command)).expect_code(0);
    let last = ran.out().lines().last().unwrap_or_default().to_owned();
    let passed: u32 = last.split(' ').next().unwrap_or_default().parse().unwrap_or(0);
    assert!(passed >= 4 && last.ends_with(" 0 failed"), "{}", ran.out());
}
