//! Promise: three hundred runs in parallel, of one state directory, don't disturb each other.

use std::fs::{self, File};
use std::process::Child;

use crate::common::{Ctx, wait_end};

const RUNS: usize = 300;
/// Started without waiting for one another. What is really alive at once, two cores decide.
const AT_ONCE: usize = 100;

struct Started {
    number: usize,
    child: Child,
}

#[test]
fn three_hundred_runs() {
    let Some(ctx) = Ctx::new() else { return };
    let mut failures = Vec::new();
    for batch in 0..RUNS / AT_ONCE {
        let started: Vec<Started> = (0..AT_ONCE).map(|n| start(&ctx, batch * AT_ONCE + n)).collect();
        for mut run in started {
            let status = wait_end(&mut run.child);
            let read =
                |what: &str| fs::read(ctx.root().join(format!("{what}-{}", run.number))).unwrap_or_default();
            let result =
                fs::read_to_string(ctx.root().join(format!("out-{}/result", run.number))).unwrap_or_default();
            let said = String::from_utf8_lossy(&read("stdout")).into_owned();
            let expected = format!("{} [1] 10001\n", run.number);
            if status.code() != Some(0) || said != expected || result != run.number.to_string() {
                let err = String::from_utf8_lossy(&read("stderr")).into_owned();
                failures.push(format!("run {}: {status}, {said:?}, {result:?}, {err}", run.number));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {RUNS} failed:\n{}", failures.len(), failures.join("\n"));
    ctx.assert_state_clean();
}

fn start(ctx: &Ctx, number: usize) -> Started {
    // Its own number to stdout and to a file; no other process in sight; no file of another run in /work or /tmp.
    let code = format!(
        "import os\nothers = [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n\
         assert os.listdir('/work') == ['entry.py'] and not os.listdir('/outputs')\n\
         open('/work/{number}', 'w').close()\nopen('/outputs/result', 'w').write('{number}')\n\
         print({number}, others, os.getuid())\n"
    );
    let file = |what: &str| File::create(ctx.root().join(format!("{what}-{number}"))).unwrap();
    let mut command = ctx.creel();
    let start = ctx.start(&["-c", &code]);
    command
        .arg("run")
        .args(start)
        .args(["--timeout", "120", "--output"])
        .arg(ctx.root().join(format!("out-{number}")));
    command.args(["-c", &code]).stdout(file("stdout")).stderr(file("stderr"));
    Started { number, child: command.spawn().unwrap() }
}

#[test]
fn different_endings_side_by_side() {
    let Some(ctx) = Ctx::new() else { return };
    let cases = [
        ("print('a')", 0),
        ("raise SystemExit(9)", 9),
        ("import os; os.abort()", 134),
        ("x = bytearray(400 << 20)", 137),
        ("import time; time.sleep(100)", 124),
        ("open('/outputs/x', 'wb').write(bytes(3 << 20))", 126),
    ];
    let children: Vec<(usize, Child)> = (0..24)
        .map(|n| {
            let mut command = ctx.creel();
            command.arg("run").args(ctx.start(&["-c", ""])).args(["--timeout", "6", "--memory", "128m"]);
            command.args(["--cpus", "1", "--output-max", "1m", "--output"]);
            command.arg(ctx.root().join(format!("mixed-{n}"))).args(["-c", cases[n % cases.len()].0]);
            let err = File::create(ctx.root().join(format!("stderr-{n}"))).unwrap();
            (n, command.stdout(std::process::Stdio::null()).stderr(err).spawn().unwrap())
        })
        .collect();
    for (n, mut child) in children {
        let err = || fs::read_to_string(ctx.root().join(format!("stderr-{n}"))).unwrap();
        let (code, expected) = cases[n % cases.len()];
        assert_eq!(wait_end(&mut child).code(), Some(expected), "{code}: {}", err());
    }
    ctx.assert_state_clean();
}
