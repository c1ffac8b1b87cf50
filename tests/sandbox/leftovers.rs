//! Promise: whatever happens to a run, nothing of it is left behind (at the latest after the next start or `creel gc`),
//! and a run whose end is not known is never reported as a success.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::footprint::{self, Footprint, assert_no_marker, children, with_marker};
use crate::common::mode::{Mode, mode};
use crate::common::{Ctx, HANG, Report, finish, kill, read_line, spawn, wait_until};
use rustix::process::Signal;

/// Starts `creel run options… -c code` and returns it once its program printed a line.
fn start_until_ready(ctx: &Ctx, options: &[&str], code: &str) -> Child {
    let code = format!("print('ready', flush=True)\n{}", crate::common::dedent(code));
    let mut command = ctx.run_command(&[options, &["--stdin", "-", "-c", &code]].concat());
    let mut child = spawn(command.stdin(Stdio::piped()));
    assert_eq!(read_line(child.stdout.as_mut().unwrap()), "ready");
    child
}

#[track_caller]
fn assert_real(footprint: &Footprint) {
    // creel, (launcher,) init, payload; cgroups of ours. Otherwise these tests would look at nothing.
    assert!(footprint.processes() >= 3 && footprint.has_cgroups(), "{footprint:#?}");
}

/// A Python program that becomes a shell: `shell`, with `marker` on its command line.
fn shell(shell: &str, marker: &str) -> String {
    format!("import os\nos.execvp('bash', ['bash', '-c', {shell:?}, '{marker}'])")
}

/// Moments from before the first clone to the running program, spread by a golden-ratio walk, not by chance.
fn moment(n: u32) -> Duration {
    // What is made ahead takes that much longer in a `creel run` of its own.
    let longest = if mode() == Mode::Cold { 80 } else { 400 };
    Duration::from_micros(u64::from(n * 61_803 % 100_000) * longest / 100)
}

/// The process below `creel` whose title begins so.
fn titled(creel: u32, title: &str) -> Option<u32> {
    footprint::tree(creel).into_iter().find(|p| footprint::command_line(*p).starts_with(title))
}

fn gc(ctx: &Ctx) {
    finish(spawn(ctx.creel().arg("gc"))).expect_code(0);
}

#[test]
fn after_a_good_run() {
    let Some(ctx) = Ctx::new() else { return };
    let mut child = start_until_ready(&ctx, &[], "import sys\nsys.stdin.read()\nopen('/outputs/x', 'w')");
    let footprint = Footprint::of(child.id());
    assert_real(&footprint);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    finish(child).expect_code(0);
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn after_a_timeout_and_a_refused_harvest() {
    let Some(ctx) = Ctx::new() else { return };
    let busy = r#"
        import os, time
        for n in range(10):
            if os.fork() == 0:
                os.setsid()
                time.sleep(1000)
        open('/work/big', 'wb').write(bytes(10 << 20))
        time.sleep(1000)
    "#;
    let child = start_until_ready(&ctx, &["--timeout", "2"], busy);
    let footprint = Footprint::of(child.id());
    assert_real(&footprint);
    finish(child).expect_code(124);
    footprint.assert_gone();

    let mut child = start_until_ready(
        &ctx,
        &["--output-max", "1k"],
        "input()\nopen('/outputs/x', 'wb').write(bytes(9999))",
    );
    let footprint = Footprint::of(child.id());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    finish(child).expect_code(126);
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn after_an_oom() {
    let Some(ctx) = Ctx::new() else { return };
    let mut child = start_until_ready(&ctx, &["--memory", "64m"], "input()\nx = bytearray(300 << 20)");
    let footprint = Footprint::of(child.id());
    assert_real(&footprint);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    finish(child).expect_code(137);
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn after_a_cancel() {
    let Some(ctx) = Ctx::new() else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let child = start_until_ready(&ctx, &["--timeout", "100"], "import time\ntime.sleep(1000)");
        let footprint = Footprint::of(child.id());
        assert_real(&footprint);
        kill(child.id(), signal);
        let ran = finish(child);
        if signal != Signal::HUP {
            ran.expect_code(130);
        }
        footprint.assert_gone();
        ctx.assert_state_clean();
    }
}

#[test]
fn ctrl_c_at_the_terminal_reaches_the_whole_group() {
    let Some(ctx) = Ctx::new() else { return };
    // Ctrl-C signals every process of the foreground group, the launcher too: still one clean cancel.
    let mut command =
        ctx.run_command(&["--timeout", "100", "-c", "import time\nprint('ready')\ntime.sleep(1000)"]);
    let mut child = spawn(std::os::unix::process::CommandExt::process_group(&mut command, 0));
    assert_eq!(read_line(child.stdout.as_mut().unwrap()), "ready");
    let footprint = Footprint::of(child.id());
    let group = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).ok();
    finish(child).expect_code(130);
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn kill_9_of_creel_while_the_program_runs() {
    let Some(ctx) = Ctx::new() else { return };
    let code =
        "import os, time\nif os.fork() == 0: os.setsid()\nopen('/work/f', 'w').write('x')\ntime.sleep(1000)";
    let child = start_until_ready(&ctx, &["--timeout", "100"], code);
    let footprint = Footprint::of(child.id());
    assert_real(&footprint);
    kill(child.id(), Signal::KILL);
    finish(child);
    // The processes go by themselves; the rest at the latest with the next start.
    footprint.assert_processes_gone();
    ctx.json(&["-c", "print('next')"]).expect_ok();
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn kill_9_of_creel_at_any_moment() {
    let Some(ctx) = Ctx::new() else { return };
    let marker = crate::common::marker("any-moment");
    for n in 0..25u32 {
        let code = shell("echo x > /outputs/x; sleep 1000; :", &marker);
        let mut child = spawn(&mut ctx.run_command(&["--timeout", "100", "-c", &code]));
        // The moment is the point of this test: there is nothing to wait for.
        std::thread::sleep(moment(n));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_no_marker(&marker);
    // A launcher may still be on its way out, and its run is alive until then.
    let empty = || std::fs::read(ctx.state().join("ledger")).unwrap_or_default().iter().all(|&b| b == 0);
    crate::common::wait_until(
        || {
            gc(&ctx);
            empty()
        },
        Duration::from_secs(30),
    );
    ctx.assert_state_clean();
    assert!(ctx.outputs().is_empty());
    ctx.json(&["-c", "print('fine')"]).expect_ok();
}

#[test]
fn cancel_at_any_moment() {
    let Some(ctx) = Ctx::new() else { return };
    let marker = crate::common::marker("cancel-any");
    for n in 0..15u32 {
        let code = shell("sleep 1000; :", &marker);
        let child = spawn(&mut ctx.run_command(&["--json", "--timeout", "100", "-c", &code]));
        // As above. A signal before creel's first line finds the default action: dead by the signal, nothing begun.
        std::thread::sleep(moment(n));
        kill(child.id(), Signal::INT);
        let ran = finish(child);
        match ran.code {
            None => assert!(ran.stdout.is_empty(), "{}", ran.out()),
            Some(_) => {
                Report::of(ran).expect("cancelled", 130, None);
            }
        }
        ctx.assert_state_clean();
    }
    assert_no_marker(&marker);
}

/// Starts a program that stays, kills the process that `pick` chooses below creel and returns the report.
fn report_after_killing(ctx: &Ctx, pick: impl Fn(u32) -> Option<u32>) -> (Report, Footprint) {
    let marker = crate::common::marker("broken");
    let stay = "echo x > /outputs/x; exec -a stays sleep 1000";
    let code = shell(stay, &marker);
    let child = spawn(&mut ctx.run_command(&["--json", "--timeout", "100", "-c", &code]));
    let stays = |pid: &u32| footprint::command_line(*pid).starts_with("stays 1000");
    assert!(wait_until(|| footprint::tree(child.id()).iter().any(stays), HANG), "the program did not start");
    let footprint = Footprint::of(child.id());
    assert_real(&footprint);
    kill(pick(child.id()).expect("no such process below creel"), Signal::KILL);
    let report = Report::of(finish(child));
    assert!(with_marker(&marker).is_empty() || wait_until(|| with_marker(&marker).is_empty(), HANG));
    (report, footprint)
}

#[track_caller]
fn assert_lost(report: &Report, ctx: &Ctx) {
    assert_eq!((report.category(), report.code), ("sandbox_error", 125), "{report}");
    assert!(report.exit_code().is_none(), "{report}");
    assert!(report.json["error"]["code"].is_string(), "{report}");
    assert!(report.produced().is_empty() && ctx.outputs().is_empty(), "{report}");
}

#[test]
fn kill_9_of_the_launcher() {
    let Some(ctx) = Ctx::new() else { return };
    let (report, footprint) = report_after_killing(&ctx, |creel| titled(creel, "creel-launcher "));
    assert_lost(&report, &ctx);
    footprint.assert_processes_gone();
    gc(&ctx);
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn kill_9_of_init() {
    let Some(ctx) = Ctx::new() else { return };
    // PID 1 of the sandbox: the parent of the program.
    let (report, footprint) = report_after_killing(&ctx, |creel| {
        let tree = footprint::tree(creel);
        tree.into_iter()
            .find(|p| children(*p).iter().any(|c| footprint::command_line(*c).starts_with("stays 1000")))
    });
    assert_lost(&report, &ctx);
    footprint.assert_processes_gone();
    gc(&ctx);
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn a_program_killed_from_outside_is_its_own_end() {
    let Some(ctx) = Ctx::new() else { return };
    let (report, footprint) = report_after_killing(&ctx, |creel| {
        footprint::tree(creel).into_iter().find(|p| footprint::command_line(*p).starts_with("stays 1000"))
    });
    assert_eq!(
        (report.category(), report.code, report.exit_code()),
        ("script_error", 137, Some(137)),
        "{report}"
    );
    assert_eq!(report.json["oom_kills"], 0, "{report}");
    footprint.assert_gone();
    ctx.assert_state_clean();
}

#[test]
fn gc_leaves_live_runs_alone() {
    let Some(ctx) = Ctx::new() else { return };
    let mut child = start_until_ready(
        &ctx,
        &["--timeout", "100"],
        "input()\nopen('/outputs/x', 'w').write('alive')\nprint('end')",
    );
    for _ in 0..3 {
        gc(&ctx);
        ctx.json(&["-c", "pass"]).expect_ok();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(finish(child).expect_code(0).out(), "end\n");
    assert_eq!(ctx.outputs()["x"], b"alive");
    ctx.assert_state_clean();
}
