//! Promise: `creel bench` tells all that a reader needs to believe its numbers, names whom it left out, and leaves nothing. No test looks
//! at how long anything took; relations within one run are looked at.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Ctx, Ran, finish, footprint::Footprint, spawn, wait_end, wait_until};
use serde_json::Value;

/// `creel bench args…` with a temporary directory of the test's own.
fn command(ctx: &Ctx, args: &[&str]) -> Command {
    let mut command = ctx.creel();
    command.arg("bench").args(args).env("TMPDIR", temp(ctx));
    command
}

fn temp(ctx: &Ctx) -> std::path::PathBuf {
    let dir = ctx.root().join("tmp");
    fs::create_dir_all(&dir).unwrap();
    // The ids that peers map to come through here.
    for open in [&dir, &ctx.root().to_path_buf()] {
        fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    dir
}

fn bench(ctx: &Ctx, args: &[&str]) -> Ran {
    let ran = finish(spawn(&mut command(ctx, args)));
    assert_clean(ctx);
    ran
}

fn json(ctx: &Ctx, args: &[&str]) -> Value {
    let mut words = args.to_vec();
    words.push("--json");
    let ran = bench(ctx, &words).expect_code(0);
    assert_eq!(ran.err(), "", "nothing on stderr without --verbose");
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.out()))
}

#[track_caller]
fn assert_clean(ctx: &Ctx) {
    let left: Vec<_> = fs::read_dir(temp(ctx)).unwrap().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    ctx.assert_state_clean();
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[track_caller]
fn assert_summary(summary: &Value) {
    let of = |name: &str| number(&summary[name]);
    let rising = ["min", "median", "p95", "p99", "max"].map(of);
    assert!(rising.is_sorted() && rising[0] > 0.0, "{summary}");
    assert!(of("mean") >= of("min") && of("mean") <= of("max"), "{summary}");
}

#[track_caller]
fn assert_interval(interval: &Value) {
    let of = |name: &str| number(&interval[name]);
    assert!(of("low") <= of("median") && of("median") <= of("high") && of("low") > 0.0, "{interval}");
    assert!((0.0..=1.0).contains(&of("confidence")) && of("n") >= 1.0, "{interval}");
}

#[track_caller]
fn assert_facts(found: &Value) {
    let facts = &found["facts"];
    for name in ["creel", "kernel", "arch", "cpu", "cgroup", "image", "page_cache"] {
        assert!(facts[name].as_str().is_some_and(|s| !s.is_empty()), "{name}: {facts}");
    }
    for name in ["cpus", "memory_mib"] {
        assert!(number(&facts[name]) >= 1.0, "{name}: {facts}");
    }
    assert!(number(&facts["load_before"]) >= 0.0 && number(&facts["load_after"]) >= 0.0);
    assert_eq!(found["creel_bench"], 1);
    assert!(found["clock"].as_str().unwrap().contains("until its exit was reaped and its output"));
    assert!(!found["how"].as_array().unwrap().is_empty());
}

#[test]
fn cold_has_every_sample_and_what_follows_from_them() {
    let Some(ctx) = Ctx::new() else { return };
    let found = json(
        &ctx,
        &["cold", "--image", "host", "--rounds", "3", "--burst", "3", "--work", "true,python", "--seed", "7"],
    );
    assert_facts(&found);
    assert_eq!(found["measured"], "cold");
    assert_eq!((&found["settings"]["seed"], &found["settings"]["warm_up"]), (&7.into(), &3.into()));
    let series = found["series"].as_array().unwrap();
    // Two contestants, two pieces of work, three modes.
    assert_eq!(series.len(), 12);
    for one in series {
        let name = one["contestant"].as_str().unwrap();
        let samples = one["samples"].as_array().unwrap();
        let burst = one["mode"] != "sequential";
        assert_eq!(samples.len(), if burst { 9 } else { 3 }, "{one}");
        assert_eq!(one["summary"]["n"], samples.len());
        assert_summary(&one["summary"]);
        let most = samples.iter().map(|s| number(&s["ms"])).fold(0.0, f64::max);
        assert_eq!(most, number(&one["summary"]["max"]));
        assert_interval(&one["ratio_to_bare"]);
        assert_interval(&one["ratio_to_creel"]);
        let same = &one[if name == "bare" { "ratio_to_bare" } else { "ratio_to_creel" }];
        assert_eq!((number(&same["low"]), number(&same["high"])), (1.0, 1.0));
    }
    // A sandbox is the bare command and more: in one run, the smallest of each.
    let min = |name: &str| {
        let of = series.iter().filter(|s| s["contestant"] == name && s["work"] == "true");
        of.map(|s| number(&s["summary"]["min"])).fold(f64::INFINITY, f64::min)
    };
    assert!(min("creel") > min("bare"));
    for timing in found["timings"].as_array().unwrap() {
        assert!(
            number(&timing["launch"]) > 0.0 && number(&timing["total"]) <= number(&timing["wall"]),
            "{timing}"
        );
    }
    let creel = found["contestants"].as_array().unwrap().iter().find(|c| c["name"] == "creel").unwrap();
    assert_eq!(creel["command"].as_array().unwrap().last().unwrap(), "/usr/bin/true");
}

#[test]
fn peers_that_are_not_there_are_named() {
    let Some(ctx) = Ctx::new() else { return };
    let args =
        ["cold", "--image", "host", "--peers", "--rounds", "1", "--mode", "sequential", "--work", "true"];
    let found = json(&ctx, &args);
    let names = |list: &str| -> Vec<&str> {
        found[list].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect()
    };
    let absent = names("absent");
    let measured: Vec<&str> =
        found["series"].as_array().unwrap().iter().map(|s| s["contestant"].as_str().unwrap()).collect();
    for peer in ["bubblewrap", "nsjail", "crun", "runc", "runsc", "podman", "docker"] {
        assert!(
            measured.contains(&peer) != absent.contains(&peer),
            "{peer}: either or: {measured:?} {absent:?}"
        );
    }
    for one in found["absent"].as_array().unwrap() {
        assert!(!one["reason"].as_str().unwrap().is_empty(), "{one}");
    }
    let installed = |path: &str| Path::new(path).exists();
    assert_eq!(installed("/usr/bin/bwrap"), measured.contains(&"bubblewrap"), "{found:#}");
    assert!(measured.contains(&"bare") && measured.contains(&"creel"));
}

/// A program of the right name that can't do the work.
#[test]
fn a_peer_that_fails_is_named_with_its_own_words() {
    let Some(ctx) = Ctx::new() else { return };
    let fake = ctx.root().join("bin");
    fs::create_dir(&fake).unwrap();
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'bubblewrap 9' && exit\necho 'bwrap: 没有 namespaces: denied' >&2\nexit 1\n";
    fs::write(fake.join("bwrap"), script).unwrap();
    fs::set_permissions(fake.join("bwrap"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let args = [
        "cold",
        "--image",
        "host",
        "--peers",
        "--rounds",
        "1",
        "--mode",
        "sequential",
        "--work",
        "true",
        "--json",
    ];
    let mut command = command(&ctx, &args);
    command.env("PATH", format!("{}:/usr/bin:/bin", fake.display()));
    let ran = finish(spawn(&mut command)).expect_code(0);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let absent = found["absent"].as_array().unwrap();
    let bubblewrap = absent.iter().find(|a| a["name"] == "bubblewrap").unwrap();
    assert_eq!(bubblewrap["reason"], "exit code 1: bwrap: 没有 namespaces: denied");
    assert_eq!(bubblewrap["work"], "true");
    assert_clean(&ctx);
}

#[test]
fn the_page_is_whole_and_needs_nothing_from_elsewhere() {
    let Some(ctx) = Ctx::new() else { return };
    let page = ctx.root().join("报告.html");
    fs::write(&page, "x".repeat(1 << 20)).unwrap();
    let args =
        ["cold", "--image", "host", "--rounds", "3", "--work", "true", "--html", page.to_str().unwrap()];
    let ran = bench(&ctx, &args).expect_code(0);
    for word in
        ["creel bench cold", "true, sequential", "true, staggered", "true, burst", "p95", "The clock runs"]
    {
        assert!(ran.out().contains(word), "{word} is missing in:\n{}", ran.out());
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>"));
    for foreign in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!text.contains(foreign), "{foreign} is in the page");
    }
    // Three modes, each as strips and as a curve; a dot for each sample.
    assert_eq!(text.matches("<svg").count(), 6);
    assert!(text.matches("<circle").count() >= 2 * 3);
    assert_eq!(text.matches("<polyline").count(), 3 * 2);
    assert_well_formed(&text);
}

/// Every element is closed, in order: the page is XML too.
fn assert_well_formed(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').unwrap();
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty(), "<{tag}>");
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> does not close what is open");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn throughput_counts_runs_at_each_level() {
    let Some(ctx) = Ctx::new() else { return };
    let found =
        json(&ctx, &["throughput", "--image", "host", "--rounds", "1", "--window", "1", "--work", "true"]);
    assert_facts(&found);
    let rates = found["rates"].as_array().unwrap();
    let cores = number(&found["facts"]["cpus"]) as u64;
    for name in ["bare", "creel"] {
        let mut levels: Vec<u64> = vec![1, cores, 2 * cores];
        levels.dedup();
        let of = rates.iter().filter(|r| r["contestant"] == name);
        assert_eq!(of.clone().map(|r| r["at_once"].as_u64().unwrap()).collect::<Vec<_>>(), levels);
        for rate in of {
            assert!(rate["runs"].as_u64().unwrap() >= 1, "{rate}");
            assert_eq!(rate["windows"].as_array().unwrap().len(), 1);
            assert_summary(&rate["summary"]);
        }
    }
    assert!(found["series"].as_array().unwrap().is_empty() && found["density"].is_null());
}

#[test]
fn density_sees_four_processes_of_each_and_ends_them() {
    let Some(ctx) = Ctx::new() else { return };
    let found = json(&ctx, &["density", "--image", "host", "--count", "3"]);
    assert_facts(&found);
    let density = &found["density"];
    assert_eq!(
        (&density["count"], &density["processes"], &density["ended_well"]),
        (&3.into(), &12.into(), &3.into())
    );
    let parts = ["creel", "launcher", "init", "payload"].map(|p| number(&density["pss_kib"][p]));
    assert!(parts.iter().all(|kib| *kib > 0.0), "{density}");
    let each = number(&density["pss_kib_each"]);
    assert!((parts.iter().sum::<f64>() - 3.0 * each).abs() < 0.01, "{density}");
    assert!(density["available_fell_kib"].is_i64(), "{density}");
}

/// The directories that a benchmark by this process has in the cgroup hierarchies.
fn groups(pid: u32) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let points = mounts.lines().filter(|l| l.contains(" cgroup")).filter_map(|l| l.split(' ').nth(1));
    let ours = points.map(|p| format!("{p}/creel-bench-{pid}"));
    ours.filter(|p| Path::new(p).exists()).collect()
}

#[track_caller]
fn interrupted(args: &[&str], at: &str, signal: rustix::process::Signal) {
    let Some(ctx) = Ctx::new() else { return };
    let mut words = args.to_vec();
    words.extend(["--image", "host", "--verbose"]);
    let mut child = command(&ctx, &words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let begun = lines.by_ref().find(|line| line.contains(at));
    assert!(begun.is_some(), "it never came to {at}");
    // Something of it runs; of the bare command there is one process only.
    let pid = child.id();
    let mut live = Footprint::default();
    let works = || {
        live = Footprint::of(pid);
        live.processes() >= 2
    };
    let runs = wait_until(works, Duration::from_secs(60));
    // Told to stop in any case: a test that fails leaves nothing either.
    common::kill(pid, signal);
    let status = wait_end(&mut child);
    assert!(runs, "nothing of it ran within a minute");
    assert_eq!(status.code(), Some(130));
    let last: Vec<String> = lines.collect();
    assert_eq!(last.last().unwrap(), "creel: stopped; all that was started has been ended", "{last:?}");
    live.assert_gone();
    assert_clean(&ctx);
    assert_eq!(groups(pid), Vec::<String>::new());
}

#[test]
fn ctrl_c_in_rounds_leaves_nothing() {
    let args = ["cold", "--peers", "--rounds", "100000", "--mode", "burst", "--work", "python"];
    interrupted(&args, "python, burst", rustix::process::Signal::INT);
}

#[test]
fn sigterm_in_a_window_leaves_nothing() {
    // One that is never over by itself.
    let args = ["throughput", "--peers", "--window", "600"];
    interrupted(&args, "python, 1 at once", rustix::process::Signal::TERM);
}

#[test]
fn ctrl_c_while_sandboxes_wait_leaves_nothing() {
    interrupted(&["density", "--count", "400"], "starting", rustix::process::Signal::INT);
}

#[test]
fn what_can_not_be_measured_is_refused_with_one_line() {
    let Some(ctx) = Ctx::new() else { return };
    for (words, part) in [
        (
            &["小"][..],
            "'小' is no measurement; there are: cold, warm, throughput, density (see creel bench --help)",
        ),
        (&[], "no measurement given"),
        (&["cold", "--rounds", "0"], "--rounds: '0' is refused; accepted: a whole number from 1 to"),
        (&["cold", "--rounds", "-3"], "--rounds: '-3' is refused"),
        (&["cold", "--burst", "1"], "--burst: '1' is refused; accepted: a whole number from 2"),
        (&["cold", "--work", "true,perl"], "--work: no 'perl'; accepted: true, python, pandas"),
        (&["cold", "--mode", ""], "--mode: no ''; accepted: sequential, staggered, burst"),
        (&["throughput", "--mode", "burst"], "--mode belongs to cold and warm"),
        (&["density", "--peers"], "--peers: density is measured of creel alone"),
        (&["cold", "--image", "nosuch"], "no image 'nosuch'"),
        (&["cold", "--image", "/nonexistent"], "/nonexistent"),
        (&["cold", "--allow-unenforced", "disk"], "--allow-unenforced: no 'disk'"),
        (&["cold", "--html", "/nonexistent/x.html"], "--html: '/nonexistent/x.html' can't be written"),
        (&["cold", "--html", "a.html", "--image", "nosuch"], "no image 'nosuch'"),
        (&["cold", "cold"], "unexpected argument 'cold' (see creel bench --help)"),
    ] {
        let ran = bench(&ctx, words).expect_code(126);
        assert!(ran.out().is_empty() && ran.err().lines().count() == 1, "{words:?}: {}", ran.err());
        assert!(ran.err().starts_with("creel: ") && ran.err().contains(part), "{words:?}: {}", ran.err());
        assert!(!ctx.cwd().join("a.html").exists());
    }
}

/// All peers that are here run an installed image, whose store is its owner's alone, and change nothing in it.
#[test]
fn peers_run_an_installed_image() {
    let Some(ctx) = Ctx::new() else { return };
    common::images::give(&ctx);
    let args =
        ["cold", "--image", "minimal", "--peers", "--rounds", "1", "--mode", "burst", "--work", "python"];
    let found = json(&ctx, &args);
    assert!(found["facts"]["digest"].as_str().unwrap().starts_with("sha256:"));
    let measured: Vec<&str> =
        found["series"].as_array().unwrap().iter().map(|s| s["contestant"].as_str().unwrap()).collect();
    for (name, program) in [
        ("bare", "/"),
        ("creel", "/"),
        ("bubblewrap", "/usr/bin/bwrap"),
        ("crun", "/usr/bin/crun"),
        ("runc", "/usr/sbin/runc"),
    ] {
        assert!(measured.contains(&name) || !Path::new(program).exists(), "{name}: {:#}", found["absent"]);
    }
}
