//! Promise: output passes through as it comes, the report keeps a bounded part of it, and stdin is what was asked for.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::common::{Ctx, Report, finish, kill, read_line, spawn, wait_end};
use rustix::process::Signal;

const KEPT: usize = 256 * 1024;

#[test]
fn output_arrives_while_the_program_runs() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import sys, time\nprint('first', flush=True)\nprint('second', file=sys.stderr, flush=True)\ntime.sleep(100)";
    let mut child = spawn(&mut ctx.run_command(&["--timeout", "100", "-c", code]));
    assert_eq!(read_line(child.stdout.as_mut().unwrap()), "first");
    assert_eq!(read_line(child.stderr.as_mut().unwrap()), "second");
    assert!(child.try_wait().unwrap().is_none(), "the lines came only with the end");
    kill(child.id(), Signal::INT);
    finish(child).expect_code(130);
}

#[test]
fn unbuffered_without_flush() {
    let Some(ctx) = Ctx::new() else { return };
    let mut child =
        spawn(&mut ctx.run_command(&["--timeout", "100", "-c", "import time\nprint('x')\ntime.sleep(100)"]));
    assert_eq!(read_line(child.stdout.as_mut().unwrap()), "x");
    kill(child.id(), Signal::INT);
    finish(child).expect_code(130);
}

#[test]
fn the_report_keeps_256_kib_and_cuts_between_characters() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import sys\nsys.stdout.write('汉' * 200000)\nsys.stderr.write('é' * 200000)";
    let report = ctx.json(&["-c", code]).expect_ok();
    let stdout = report.stdout();
    assert!(stdout.chars().all(|c| c == '汉'), "the text was cut inside a character");
    assert_eq!(stdout.len(), KEPT / 3 * 3);
    assert_eq!(report.json["stdout_bytes"], 600_000);
    assert_eq!(report.json["stdout_truncated"], true);
    let stderr = report.json["stderr"].as_str().unwrap();
    assert!(stderr.chars().all(|c| c == 'é') && stderr.len() == KEPT, "{}", stderr.len());
    assert_eq!(report.json["stderr_bytes"], 400_000);
    assert_eq!(report.json["stderr_truncated"], true);
}

#[test]
fn exactly_the_limit_is_not_truncated() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.json(&["-c", &format!("print('x' * {}, end='')", KEPT)]).expect_ok();
    assert_eq!((report.stdout().len(), &report.json["stdout_truncated"]), (KEPT, &false.into()));
    let report = ctx.json(&["-c", &format!("print('x' * {}, end='')", KEPT + 1)]).expect_ok();
    assert_eq!((report.stdout().len(), &report.json["stdout_truncated"]), (KEPT, &true.into()));
}

#[test]
fn pass_through_loses_nothing() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import sys\nfor n in range(300000): print(n)\nsys.stdout.buffer.write(b'\\xff\\x00\\xfe')";
    let ran = ctx.run(&["--timeout", "100", "-c", code]).expect_code(0);
    let mut expected: Vec<u8> = (0..300_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    expected.extend(b"\xff\x00\xfe");
    assert!(ran.stdout == expected, "{} bytes came of {}", ran.stdout.len(), expected.len());
}

#[test]
fn invalid_utf8_is_replaced_and_counted_as_it_was() {
    let Some(ctx) = Ctx::new() else { return };
    let report =
        ctx.json(&["-c", "import sys; sys.stdout.buffer.write(b'a\\xffb\\x00\\xe6\\xb1')"]).expect_ok();
    assert_eq!(report.stdout(), "a\u{fffd}b\0\u{fffd}");
    assert_eq!(report.json["stdout_bytes"], 6);
    assert_eq!(report.json["stdout_truncated"], false);
}

cold_only! {
    fn a_flood_neither_blocks_nor_fills_the_memory() {
        let Some(ctx) = Ctx::new() else { return };
        // 512 MB of address space is all that creel gets; one line without an end on both streams at once.
        let mut command = std::process::Command::new("prlimit");
        command.args([
            "--as=536870912",
            "--",
            env!("CARGO_BIN_EXE_creel"),
            "run",
            "--json",
            "--timeout",
            "3",
            "--output",
        ]);
        command.arg(ctx.out()).args(["--lang", "bash", "-c", "cat /dev/zero >&2 & cat /dev/zero"]);
        let report = Report::of(finish(spawn(&mut ctx.within(command)))).expect("timeout", 124, Some(-1));
        for stream in ["stdout", "stderr"] {
            assert!(report.json[stream].as_str().unwrap().len() <= KEPT);
            assert!(report.number(&format!("{stream}_bytes")) > 4e6, "{stream} stood still");
            assert_eq!(report.json[format!("{stream}_truncated")], true);
        }
    }
}

#[test]
fn stdin_is_at_its_end_unless_given() {
    let Some(ctx) = Ctx::new() else { return };
    let mut command = ctx.run_command(&["-c", "import sys; print(repr(sys.stdin.read()))"]);
    let mut child = spawn(command.stdin(Stdio::piped()));
    // creel's own stdin stays open and has data: the program must see neither.
    let mut held = child.stdin.take().unwrap();
    held.write_all(b"not for the program\n").unwrap();
    assert_eq!(finish(child).expect_code(0).out(), "''\n");
    drop(held);
    assert_eq!(ctx.run(&["--lang", "bash", "-c", "cat; read x || echo end"]).expect_code(0).out(), "end\n");
}

#[test]
fn stdin_from_a_file_and_passed_on() {
    let Some(ctx) = Ctx::new() else { return };
    let text = "行\n".repeat(100_000);
    ctx.write("数据.txt", &text);
    let count = "import sys; d = sys.stdin.read(); print(len(d), d[:2] == '行\\n')";
    assert_eq!(ctx.run(&["--stdin", "数据.txt", "-c", count]).expect_code(0).out(), "200000 True\n");

    let mut child = spawn(ctx.run_command(&["--stdin", "-", "-c", count]).stdin(Stdio::piped()));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert_eq!(finish(child).expect_code(0).out(), "200000 True\n");

    // A program that does not read: creel must not wait for the writer, nor die of the closed pipe.
    let ran = ctx.run(&["--stdin", "数据.txt", "-c", "print('unread')"]).expect_code(0);
    assert_eq!(ran.out(), "unread\n");
    let mut child = spawn(ctx.run_command(&["--stdin", "-", "-c", "print('unread')"]).stdin(Stdio::piped()));
    let held = child.stdin.take().unwrap();
    assert_eq!(finish(child).expect_code(0).out(), "unread\n");
    drop(held);
}

#[test]
fn stdin_is_passed_on_line_by_line() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "for line in iter(input, 'end'): print('got', line)";
    let mut child =
        spawn(ctx.run_command(&["--stdin", "-", "--timeout", "100", "-c", code]).stdin(Stdio::piped()));
    let mut to = child.stdin.take().unwrap();
    for n in 0..3 {
        to.write_all(format!("{n}\n").as_bytes()).unwrap();
        assert_eq!(read_line(child.stdout.as_mut().unwrap()), format!("got {n}"));
    }
    to.write_all(b"end\n").unwrap();
    finish(child).expect_code(0);
}

#[test]
fn a_consumer_that_leaves_ends_the_run() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "n = 0\nwhile True:\n    print('line', n)\n    n += 1";
    let mut child = spawn(&mut ctx.run_command(&["--timeout", "100", "-c", code]));
    let mut stdout = child.stdout.take().unwrap();
    assert_eq!(read_line(&mut stdout), "line 0");
    drop(stdout);
    let started = std::time::Instant::now();
    wait_end(&mut child);
    assert!(started.elapsed().as_secs() < 60, "creel ran on with nobody listening");
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(!err.contains("panicked"), "{err}");
    ctx.assert_state_clean();
}

#[test]
fn names_and_text_of_every_script() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("数据 表.csv", "名,值\n甲,1\n");
    ctx.write(
        "脚本 é.py",
        "import json\nm = json.load(open('/inputs/manifest.json', encoding='utf-8'))[0]\n\
         print(m['displayName'], open(m['path'], encoding='utf-8').read().split()[1], '🦞')\n\
         import os; os.mkdir('/outputs/结果'); open('/outputs/结果/图 1.txt', 'w').write('好')\n",
    );
    let report = ctx.json(&["--input", "数据 表.csv", "--env", "键=值 🦞", "脚本 é.py"]).expect_ok();
    assert_eq!(report.stdout(), "数据 表.csv 甲,1 🦞\n");
    assert_eq!(ctx.outputs()["结果/图 1.txt"], "好".as_bytes());
    assert!(report.produced().contains_key("结果/图 1.txt"), "{report}");
}

#[test]
fn devices_of_the_standard_streams_can_be_opened() {
    let Some(ctx) = Ctx::new() else { return };
    let ran =
        ctx.run(&["--lang", "bash", "-c", "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin"]);
    let ran = ran.expect_code(0);
    assert_eq!(ran.out(), "out\n");
    assert!(ran.err().starts_with("err\n"), "{}", ran.err());
    ctx.write("in.txt", "given\n");
    let ran = ctx.run(&[
        "--stdin",
        "in.txt",
        "-c",
        "print(open('/dev/stdin').read(), file=open('/dev/stdout', 'w'))",
    ]);
    assert_eq!(ran.expect_code(0).out(), "given\n\n");
}
