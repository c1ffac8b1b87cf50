//! Promise: `creel run --start` takes the way of a daemon, says no where that can't be, and behaves like a plain run where it can.

mod common;

use common::{Ctx, finish, kill, read_line, spawn};
use rustix::process::Signal;

#[test]
fn cold_by_way_of_the_service_is_like_a_plain_run() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("数据.csv", "甲,1\n");
    let code = "import sys\nprint(open('/inputs/00-数据.csv').read(), sys.stdin.read())\n\
                open('/outputs/果', 'w').write('好')\nprint('错', file=sys.stderr)\nsys.exit(3)";
    let options = ["--input", "数据.csv", "--stdin", "数据.csv", "--env", "A=b", "-c", code];
    let plain = ctx.json(&options);
    let by_way: Vec<&str> = ["--start", "cold"].into_iter().chain(options).collect();
    let other = ctx.json(&by_way).expect("script_error", 3, Some(3));
    for field in [
        "image",
        "lang",
        "start",
        "exit_code",
        "signal",
        "error_category",
        "error",
        "stdout",
        "stderr",
        "stdout_bytes",
        "produced",
        "skipped",
        "partial",
        "limits",
        "notes",
        "oom_kills",
    ] {
        assert_eq!(plain.json[field], other.json[field], "{field}");
    }
    let names =
        |r: &common::Report| r.json["enforced"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&plain), names(&other));
    assert_eq!(ctx.outputs()["果"], "好".as_bytes());
    ctx.assert_state_clean();
}

#[test]
fn ctrl_c_cancels_and_names_the_signal() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import time\nprint('on')\ntime.sleep(100)";
    let mut child = spawn(&mut ctx.run_command(&["--start", "cold", "--timeout", "100", "-c", code]));
    assert_eq!(read_line(child.stdout.as_mut().unwrap()), "on");
    kill(child.id(), Signal::INT);
    let ran = finish(child).expect_code(130);
    assert!(ran.err().contains("cancelled by signal 2 (run.cancelled)"), "{}", ran.err());
    ctx.assert_state_clean();
}

#[test]
fn what_can_not_be_made_ahead_is_refused() {
    let Some(ctx) = Ctx::new() else { return };
    let cases: [(&[&str], &str); 5] = [
        (&["--start", "warm", "--lang", "bash", "-c", "true"], "only Python scripts"),
        (&["--start", "zygote", "--", "true"], "only Python scripts"),
        (&["--start", "zygote", "--cpus", "2", "-c", "1"], "thousandths of a CPU"),
        (&["--start", "zygote", "--profile", "strict", "-c", "1"], "address layout"),
        (&["--start", "hot", "-c", "1"], "accepted: cold, warm, zygote"),
    ];
    for (options, why) in cases {
        let ran = ctx.run(options).expect_code(126);
        assert!(ran.err().contains(why) && ran.out().is_empty(), "{options:?}: {}", ran.err());
    }
    let report = ctx.json(&["--start", "warm", "--", "true"]).expect("rejected", 126, None);
    assert_eq!(report.json["error"]["code"], "run.start_refused");
    // What is wrong with the request itself is said as of a plain run.
    let ran = ctx.run(&["--start", "cold", "--env", "x", "-c", "1"]).expect_code(126);
    assert!(ran.err().contains("has no '='"), "{}", ran.err());
    ctx.assert_state_clean();
}
