//! Ctrl-C, TERM and HUP while an image comes in or goes out: one line, exit code 130, nothing left behind.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Ctx, Ran, finish, kill, spawn, wait_until};
use images::{Layer, Tar, layout, tree};
use rustix::process::Signal;

#[path = "common/mod.rs"]
mod common;
#[path = "images/mod.rs"]
mod images;

const LIMIT: Duration = Duration::from_secs(60);

/// `creel image …`, started by a program that ignores `deaf` signals and no other.
fn started(ctx: &Ctx, deaf: &str, args: &[&str]) -> Child {
    let mut command = ctx.within(Command::new("env"));
    command.arg("--default-signal");
    if !deaf.is_empty() {
        command.arg(format!("--ignore-signal={deaf}"));
    }
    command.args([env!("CARGO_BIN_EXE_creel"), "image"]).args(args).stdin(Stdio::piped());
    spawn(&mut command)
}

fn image(ctx: &Ctx, args: &[&str]) -> Ran {
    finish(spawn(ctx.creel().arg("image").args(args)))
}

fn working(ctx: &Ctx) -> bool {
    fs::read_dir(ctx.state().join("images/tmp")).is_ok_and(|d| d.count() > 0)
}

#[test]
fn an_import_that_stalls() {
    let Some(ctx) = Ctx::new() else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = started(&ctx, "", &["import", "-", "--name", "x"]);
        let pipe = child.stdin.take().unwrap();
        assert!(wait_until(|| working(&ctx), LIMIT));
        kill(child.id(), signal);
        let ran = finish(child).expect_code(130);
        assert_eq!((ran.err(), ran.out()), ("creel: cancelled\n".to_owned(), String::new()));
        assert!(!working(&ctx), "{signal:?}");
        drop(pipe);
    }
}

#[test]
fn a_hang_up_that_the_caller_ignores_ends_nothing() {
    use std::io::Write;
    let Some(ctx) = Ctx::new() else { return };
    let mut child = started(&ctx, "HUP", &["import", "-", "--name", "x"]);
    let mut pipe = child.stdin.take().unwrap();
    assert!(wait_until(|| working(&ctx), LIMIT));
    kill(child.id(), Signal::HUP);
    pipe.write_all(&Tar::new().file("usr/数", "1").end()).unwrap();
    drop(pipe);
    assert!(finish(child).expect_code(0).out().starts_with("x:latest  "));
}

#[test]
fn a_pull_that_stalls_says_that_it_goes_on() {
    let Some(ctx) = Ctx::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reference = format!("localhost:{}/x:v1", listener.local_addr().unwrap().port());
    let child = started(&ctx, "", &["pull", &reference]);
    let connection = listener.accept().unwrap();
    kill(child.id(), Signal::TERM);
    let ran = finish(child).expect_code(130);
    let err = ran.err();
    assert!(
        err.starts_with("creel: cancelled; ") && err.contains("kept") && err.lines().count() == 1,
        "{err}"
    );
    drop(connection);
}

#[test]
fn an_export_that_nobody_reads() {
    let Some(ctx) = Ctx::new() else { return };
    let layer = Layer::tar(Tar::new().file("big", vec![7; 4 << 20]));
    let source = layout(&ctx.cwd().join("l"), "x:v1", &[layer]);
    image(&ctx, &["import", source.dir.to_str().unwrap()]).expect_code(0);
    // The destination is a pipe that is full: the tar beside it is never begun, and what waits is the work.
    let mut child = started(&ctx, "", &["export", "x:v1", "-"]);
    let unread = child.stdout.take().unwrap();
    assert!(wait_until(|| working(&ctx), LIMIT));
    let before = tree(&ctx.cwd());
    kill(child.id(), Signal::INT);
    let ran = finish(child).expect_code(130);
    assert_eq!(ran.err(), "creel: cancelled\n");
    assert!(!working(&ctx));
    assert_eq!(tree(&ctx.cwd()), before);
    drop(unread);
}
