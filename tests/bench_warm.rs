//! Promise: `creel bench warm` and `density --slots` tell all that a reader needs, say of every run whether it found what it was meant to find, and leave
//! nothing. No test looks at how long anything took; relations within one run are looked at.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Ctx, Ran, finish, footprint::Footprint, spawn, wait_end, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// `creel bench args…` with a temporary directory of the test's own.
fn command(ctx: &Ctx, args: &[&str]) -> Command {
    let temp = ctx.root().join("tmp");
    fs::create_dir_all(&temp).unwrap();
    // The bare command's ids come through here.
    for open in [&temp, &ctx.root().to_path_buf()] {
        fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = ctx.creel();
    command.arg("bench").args(args).env("TMPDIR", temp);
    command
}

fn bench(ctx: &Ctx, args: &[&str]) -> Ran {
    let ran = finish(spawn(&mut command(ctx, args)));
    assert_clean(ctx);
    ran
}

fn json(ctx: &Ctx, args: &[&str]) -> Value {
    let ran = bench(ctx, &[args, &["--json"]].concat()).expect_code(0);
    assert_eq!(ran.err(), "", "nothing on stderr without --verbose");
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.out()))
}

#[track_caller]
fn assert_clean(ctx: &Ctx) {
    let left: Vec<_> = fs::read_dir(ctx.root().join("tmp")).unwrap().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    ctx.assert_state_clean();
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The series of one entrant.
fn series<'a>(found: &'a Value, work: &str, mode: &str, who: &str) -> &'a Value {
    let all = found["series"].as_array().unwrap();
    let is = |s: &&Value| s["work"] == work && s["mode"] == mode && s["contestant"] == who;
    all.iter().find(is).unwrap_or_else(|| panic!("{work}, {mode}, {who} is missing: {found:#}"))
}

#[test]
fn warm_has_every_sample_and_says_how_each_run_started() {
    let Some(ctx) = Ctx::new() else { return };
    let found = json(
        &ctx,
        &["warm", "--image", "host", "--rounds", "2", "--burst", "3", "--work", "pass,python", "--seed", "7"],
    );
    assert_eq!(found["measured"], "warm");
    assert!(found["clock"].as_str().unwrap().contains("submitted to the executor"));
    let settings = &found["settings"];
    assert_eq!(
        (&settings["seed"], &settings["warm_up"], &settings["cpus"]),
        (&7.into(), &2.into(), &1.into())
    );
    assert!(number(&settings["slots"]) >= 3.0 && settings["preload"].as_array().unwrap().is_empty());
    for (mode, n) in [("sequential", 20), ("staggered", 21), ("burst", 21)] {
        for who in ["zygote", "cold"] {
            let one = series(&found, "pass-script", mode, who);
            let samples = one["samples"].as_array().unwrap();
            // What missed is no sample, and none is lost.
            assert_eq!(samples.len() as u64 + one["missed"].as_u64().unwrap(), n, "{one}");
            assert_eq!(one["summary"]["n"], samples.len());
            let of = |name: &str| number(&one["summary"][name]);
            assert!(["min", "median", "p95", "p99", "max"].map(of).is_sorted() && of("min") > 0.0, "{one}");
        }
    }
    let cold = series(&found, "pass-script", "sequential", "cold");
    assert_eq!((&cold["missed"], &cold["cold_to_this"]["median"]), (&0.into(), &1.0.into()));
    // A pool that is full before each run is never missed, and saves the start of a Python.
    let zygote = series(&found, "pass-script", "sequential", "zygote");
    assert_eq!(zygote["missed"], 0);
    assert!(number(&zygote["cold_to_this"]["median"]) > 1.0, "{}", zygote["cold_to_this"]);
    for who in ["cold", "bare", "creel"] {
        assert_eq!(series(&found, "python", "sequential", who)["summary"]["n"], 4);
    }
    let least = |who| number(&series(&found, "python", "sequential", who)["summary"]["min"]);
    assert!(least("cold") > least("bare"));
    for timing in found["timings"].as_array().unwrap() {
        assert!(["zygote", "cold", "creel"].contains(&timing["contestant"].as_str().unwrap()), "{timing}");
        assert!(number(&timing["total"]) <= number(&timing["wall"]), "{timing}");
    }
    let who: Vec<&str> =
        found["contestants"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(who, ["zygote", "warm", "cold", "bare", "creel"]);
    // Not asked for.
    assert!(found["rates"].as_array().unwrap().is_empty());
}

/// A host with pandas measures it; one without says so. Either is told.
#[test]
fn pandas_is_measured_or_named() {
    let Some(ctx) = Ctx::new() else { return };
    let args = ["warm", "--image", "host", "--rounds", "1", "--mode", "sequential", "--work", "pandas,pass"];
    let page = ctx.root().join("报告.html");
    let words = [&args[..], &["--window", "1", "--html", page.to_str().unwrap()]].concat();
    let found = json(&ctx, &words);
    let absent = found["absent"].as_array().unwrap();
    let missing = absent.iter().find(|a| a["work"] == "pandas-script");
    match missing {
        Some(why) => {
            assert!(why["reason"].as_str().unwrap().contains("pandas"), "{why}");
            assert!(found["rates"].as_array().unwrap().is_empty());
        }
        None => {
            assert_eq!(series(&found, "pandas-script", "sequential", "warm")["missed"], 0);
            for rate in found["rates"].as_array().unwrap() {
                let (runs, hits) = (rate["runs"].as_u64().unwrap(), rate["hits"].as_u64().unwrap());
                assert!(hits <= runs && (rate["contestant"] != "cold" || hits == runs), "{rate}");
            }
        }
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>"));
    assert!(text.contains("creel bench warm") && text.contains("cold ÷ this") && text.contains("<svg"));
}

#[test]
fn slots_are_weighed_and_every_one_works() {
    let Some(ctx) = Ctx::new() else { return };
    let found = json(&ctx, &["density", "--image", "host", "--slots", "5"]);
    let slots = &found["slots"];
    for (field, value) in [("wanted", 5), ("held", 5), ("delivered", 5), ("worked", 5), ("processes", 15)] {
        assert_eq!(slots[field], value, "{field}: {slots}");
    }
    assert!(slots["stopped"].is_null() && found["density"].is_null());
    let parts = ["launcher", "init", "python"].map(|part| number(&slots["pss_kib"][part]));
    assert!(parts.iter().all(|kib| *kib > 0.0), "{slots}");
    assert!((parts.iter().sum::<f64>() - 5.0 * number(&slots["pss_kib_each"])).abs() < 0.01, "{slots}");
    for part in ["spawner", "zygote", "zygote's launcher", "this process"] {
        assert!(number(&slots["once_kib"][part]) > 0.0, "{part}: {slots}");
    }
    assert!(slots["available_fell_kib"].is_i64() && slots["kernel_kib"]["Slab"].is_i64(), "{slots}");
}

#[test]
fn what_can_not_be_measured_is_refused_with_one_line() {
    let Some(ctx) = Ctx::new() else { return };
    for (words, part) in [
        (&["warm", "--peers"][..], "--peers: warm is measured of creel alone"),
        (&["warm", "--work", "true"], "--work: no 'true'; accepted: pandas, pass, python"),
        (&["warm", "--slots", "3"], "--slots belongs to density"),
        (&["density", "--slots", "零"], "--slots: '零' is refused; accepted: a whole number from 1 to"),
        (&["density", "--slots", "0"], "--slots: '0' is refused"),
        (&["density", "--slots", "3", "--count", "3"], "--count is of sandboxes that sleep"),
        (&["density", "--slots", "3", "--peers"], "--peers: density is measured of creel alone"),
        (&["density", "--mode", "burst"], "--mode belongs to cold and warm"),
        (&["warm", "--image", "nosuch"], "no image 'nosuch'"),
    ] {
        let ran = bench(&ctx, words).expect_code(126);
        assert!(ran.out().is_empty() && ran.err().lines().count() == 1, "{words:?}: {}", ran.err());
        assert!(ran.err().starts_with("creel: ") && ran.err().contains(part), "{words:?}: {}", ran.err());
    }
}

#[track_caller]
fn interrupted(args: &[&str], at: &str, processes: usize, signal: Signal) {
    let Some(ctx) = Ctx::new() else { return };
    let words = [args, &["--image", "host", "--verbose"]].concat();
    let mut child = command(&ctx, &words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let begun = lines.by_ref().find(|line| line.contains(at));
    assert!(begun.is_some(), "it never came to {at}");
    let pid = child.id();
    let mut live = Footprint::default();
    let works = || {
        live = Footprint::of(pid);
        live.processes() >= processes
    };
    let there = wait_until(works, Duration::from_secs(60));
    // Told to stop in any case: a test that fails leaves nothing either.
    common::kill(pid, signal);
    let status = wait_end(&mut child);
    assert!(there, "its sandboxes were not there within a minute");
    assert_eq!(status.code(), Some(130));
    let last: Vec<String> = lines.collect();
    assert_eq!(last.last().unwrap(), "creel: stopped; all that was started has been ended", "{last:?}");
    live.assert_gone();
    assert_clean(&ctx);
}

#[test]
fn ctrl_c_while_it_measures_leaves_nothing() {
    // Itself, three spawners, a zygote with its launcher, and slots.
    interrupted(&["warm", "--rounds", "10000", "--work", "pass"], "pass-script", 12, Signal::INT);
}

#[test]
fn sigterm_while_slots_are_made_leaves_nothing() {
    interrupted(&["density", "--slots", "3000"], "starting", 20, Signal::TERM);
}
