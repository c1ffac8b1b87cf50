//! Promise: `--json` prints the report of the contract, every field of it and with the right type.

use crate::common::mode::mode;
use crate::common::{Ctx, Report};
use serde_json::Value;

type Check = fn(&Value) -> bool;

const FIELDS: &[(&str, Check)] = &[
    ("run_id", Value::is_string),
    ("image", Value::is_string),
    ("lang", is_text_or_null),
    ("start", Value::is_string),
    ("exit_code", is_int_or_null),
    ("signal", is_int_or_null),
    ("error_category", Value::is_string),
    ("error", |v| v.is_null() || v["code"].is_string() && v["message"].is_string()),
    ("walltime_ms", Value::is_number),
    ("cpu_ms", Value::is_number),
    ("memory_peak_bytes", Value::is_u64),
    ("pids_peak", Value::is_u64),
    ("oom_kills", Value::is_u64),
    ("stdout", Value::is_string),
    ("stderr", Value::is_string),
    ("stdout_bytes", Value::is_u64),
    ("stderr_bytes", Value::is_u64),
    ("stdout_truncated", Value::is_boolean),
    ("stderr_truncated", Value::is_boolean),
    ("produced", Value::is_array),
    ("skipped", Value::is_array),
    ("partial", Value::is_boolean),
    ("enforced", Value::is_object),
    ("limits", Value::is_object),
    ("notes", Value::is_array),
    ("timings_ms", Value::is_object),
];

fn is_text_or_null(v: &Value) -> bool {
    v.is_string() || v.is_null()
}

fn is_int_or_null(v: &Value) -> bool {
    v.is_i64() || v.is_null()
}

#[track_caller]
fn assert_complete(report: &Report) {
    let wrong: Vec<&str> = FIELDS.iter().filter(|(f, is)| !is(&report.json[f])).map(|(f, _)| *f).collect();
    assert!(wrong.is_empty(), "missing, or of a wrong type: {wrong:?}\n{report}");
    let known = |k: &str| FIELDS.iter().any(|(f, _)| *f == k);
    let unknown: Vec<&String> = report.json.as_object().unwrap().keys().filter(|k| !known(k)).collect();
    assert!(unknown.is_empty(), "not in the contract: {unknown:?}");
    for phase in ["queue", "stage", "launch", "run", "harvest", "clean", "total"] {
        let time = report.json["timings_ms"][phase].as_f64();
        assert!(time.is_some_and(|t| t >= 0.0), "timings_ms.{phase}: {report}");
    }
    for part in ["memory", "pids", "cpu", "seccomp", "landlock", "network", "user"] {
        assert!(report.json["enforced"][part].is_string(), "enforced.{part}: {report}");
    }
}

#[test]
fn every_field_of_a_good_run() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("a.py", "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('/outputs/x.txt', 'w').write('12345')\n");
    let report = ctx.json(&["a.py"]).expect_ok();
    assert_complete(&report);
    let json = &report.json;
    let id = json["run_id"].as_str().unwrap().strip_prefix("run_").unwrap();
    assert!(id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
    assert_eq!(
        (&json["image"], &json["lang"], &json["start"]),
        (&"host".into(), &"python".into(), &mode().word().into())
    );
    assert_eq!((&json["stdout"], &json["stderr"]), (&"out\n".into(), &"err\n".into()));
    assert_eq!((&json["stdout_bytes"], &json["stderr_bytes"]), (&4.into(), &4.into()));
    assert!(json["error"].is_null() && json["signal"].is_null(), "{report}");
    assert_eq!(json["produced"][0]["path"], "x.txt");
    assert_eq!(json["partial"], false);
    assert!(report.number("walltime_ms") > 0.0 && report.number("cpu_ms") > 0.0, "{report}");
    // An interpreter takes a few megabytes and no more than the limit; the payload is one task.
    let peak = report.number("memory_peak_bytes");
    assert!((1e6..=512.0 * 1024.0 * 1024.0).contains(&peak), "{report}");
    assert!((1.0..=4.0).contains(&report.number("pids_peak")), "{report}");
    let total = json["timings_ms"]["total"].as_f64().unwrap();
    assert!(total >= json["timings_ms"]["run"].as_f64().unwrap(), "{report}");
}

#[test]
fn every_field_of_the_other_endings() {
    let Some(ctx) = Ctx::new() else { return };
    let endings = [
        ("script_error", ctx.json(&["-c", "raise SystemExit(3)"])),
        ("timeout", ctx.json(&["--timeout", "1", "-c", "while True: pass"])),
        ("oom", ctx.json(&["--memory", "64m", "-c", "x = bytearray(300 << 20)"])),
        ("rejected", ctx.json(&["--output-max", "1k", "-c", "open('/outputs/x', 'w').write('x' * 5000)"])),
    ];
    for (category, report) in endings {
        assert_eq!(report.category(), category, "{report}");
        assert_complete(&report);
        assert_eq!(report.json["error"].is_null(), category == "script_error", "{report}");
    }
}

#[test]
fn defaults_of_the_contract() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.json(&["-c", "pass"]).expect_ok();
    let limits = &report.json["limits"];
    let mib = |n: u64| Value::from(n << 20);
    assert_eq!(limits["timeout_s"].as_f64(), Some(30.0), "{report}");
    assert_eq!(limits["memory"], mib(512), "{report}");
    assert_eq!(limits["cpu_millis"], 500, "{report}");
    assert_eq!(limits["pids"], 128, "{report}");
    assert_eq!((&limits["tmp"], &limits["shm"], &limits["run"]), (&mib(128), &mib(64), &mib(16)), "{report}");
    assert_eq!((&limits["work"], &limits["output"]), (&mib(256), &mib(50)), "{report}");
    assert_eq!((&limits["output_files"], &limits["output_depth"]), (&1000.into(), &32.into()), "{report}");
    assert!(report.json["notes"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn flags_override_and_a_long_timeout_is_clamped_with_a_note() {
    let Some(ctx) = Ctx::new() else { return };
    let flags = ["--memory", "256m", "--cpus", "0.7", "--pids", "64", "--tmp", "32m", "--output-max", "2m"];
    let report = ctx.json(&[&flags[..], &["--timeout", "600", "-c", "pass"]].concat()).expect_ok();
    let limits = &report.json["limits"];
    assert_eq!((&limits["memory"], &limits["cpu_millis"]), (&(256u64 << 20).into(), &700.into()), "{report}");
    assert_eq!((&limits["pids"], &limits["tmp"]), (&64.into(), &(32u64 << 20).into()), "{report}");
    assert_eq!(limits["output"], 2u64 << 20, "{report}");
    assert_eq!(limits["timeout_s"].as_f64(), Some(120.0), "{report}");
    let notes = report.json["notes"].to_string();
    assert!(notes.contains("120") && notes.contains("600"), "{report}");
    let ran = ctx.run(&["--timeout", "600", "-c", "pass"]).expect_code(0);
    assert!(ran.err().contains("120"), "said on stderr too: {}", ran.err());
}

#[test]
fn what_held_is_named() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.json(&["-c", "pass"]).expect_ok();
    let enforced = report.json["enforced"].as_object().unwrap();
    for part in ["memory", "pids", "cpu"] {
        assert!(enforced[part].as_str().unwrap().starts_with("cgroup"), "{part}: {report}");
    }
    assert!(enforced["landlock"].as_str().unwrap().starts_with("abi "), "{report}");
    assert!(!enforced.values().any(|v| v == "unenforced"), "{report}");
    // What holds /work and /outputs: quota, tmpfs or watcher.
    assert!(enforced["disk"].is_string(), "{report}");
}

#[test]
fn run_ids_are_never_the_same() {
    let Some(ctx) = Ctx::new() else { return };
    let ids: Vec<String> = (0..5).map(|_| ctx.json(&["-c", "pass"]).json["run_id"].to_string()).collect();
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
}
