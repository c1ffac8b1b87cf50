//! Promise: `creel run` takes its program from where the contract says, and its exit code tells how the run ended.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::common::{Ctx, finish, kill, read_line, spawn, wait_end};
use rustix::process::Signal;

#[test]
fn program_from_a_file_the_command_line_and_stdin() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("hello.py", "print('from a file')\n");
    assert_eq!(ctx.run(&["hello.py"]).expect_code(0).out(), "from a file\n");
    assert_eq!(ctx.run(&["-c", "print('from -c')"]).expect_code(0).out(), "from -c\n");

    let mut command = ctx.run_command(&["-"]);
    let mut child = spawn(command.stdin(Stdio::piped()));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"import sys\nprint('from stdin', repr(sys.stdin.read()))\n")
        .unwrap();
    assert_eq!(finish(child).expect_code(0).out(), "from stdin ''\n");
}

#[test]
fn code_without_a_newline_at_its_end_and_heredocs() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("a.sh", "cat <<END\none\n  two $((1+2))\nEND\nprintf last");
    assert_eq!(ctx.run(&["a.sh"]).expect_code(0).out(), "one\n  two 3\nlast");
    ctx.write("empty.py", "");
    assert_eq!(ctx.run(&["empty.py"]).expect_code(0).out(), "");
    ctx.write("dos.py", "x = 1\r\nprint('dos')\r\n");
    assert_eq!(ctx.run(&["dos.py"]).expect_code(0).out(), "dos\n");
}

#[test]
fn language_by_suffix_first_line_and_option() {
    let Some(ctx) = Ctx::new() else { return };
    let which_bash = "echo ${BASH_VERSION:+bash}\n";
    ctx.write("suffix.sh", which_bash);
    ctx.write("suffix.bash", which_bash);
    ctx.write("first-line", format!("#!/bin/bash\n{which_bash}"));
    ctx.write("by-env", format!("#!/usr/bin/env bash\n{which_bash}"));
    ctx.write("wrong.py", which_bash);
    for script in ["suffix.sh", "suffix.bash", "first-line", "by-env"] {
        let report = ctx.json(&[script]).expect_ok();
        assert_eq!((report.stdout(), report.json["lang"].as_str()), ("bash\n", Some("bash")), "{script}");
    }
    let report = ctx.json(&["--lang", "bash", "wrong.py"]).expect_ok();
    assert_eq!(report.stdout(), "bash\n");
    assert_eq!(ctx.run(&["--lang", "bash", "-c", which_bash]).expect_code(0).out(), "bash\n");

    ctx.write("plain", "print('python')\n");
    ctx.write("by-env3", "#!/usr/bin/env python3\nprint('python')\n");
    ctx.write("odd.txt", "print('python')\n");
    for script in ["plain", "by-env3", "odd.txt"] {
        let report = ctx.json(&[script]).expect_ok();
        assert_eq!((report.stdout(), report.json["lang"].as_str()), ("python\n", Some("python")), "{script}");
    }
}

#[test]
fn the_program_is_entry_in_work() {
    let Some(ctx) = Ctx::new() else { return };
    let report =
        ctx.python(&[], "import os, sys\nprint(os.path.abspath(sys.argv[0]), __file__, os.getcwd())");
    assert_eq!(report.expect_ok().stdout(), "/work/entry.py /work/entry.py /work\n");
    let report = ctx.bash(&[], "echo $0 $PWD; ls /work");
    assert_eq!(report.expect_ok().stdout(), "/work/entry.sh /work\nentry.sh\n");
}

#[test]
fn arguments_after_two_dashes() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("args.py", "import sys\nprint(sys.argv[1:])\n");
    ctx.write("args.sh", "printf '<%s>' \"$@\"\n");
    let given = ["--", "a b", "", "--json", "-c", "汉字", "$(id)", "*", "new\nline"];
    let out = ctx.run(&[&["args.py"][..], &given].concat()).expect_code(0).out();
    assert_eq!(out, "['a b', '', '--json', '-c', '汉字', '$(id)', '*', 'new\\nline']\n");
    let out = ctx.run(&[&["args.sh"][..], &given].concat()).expect_code(0).out();
    assert_eq!(out, "<a b><><--json><-c><汉字><$(id)><*><new\nline>");
    let out = ctx.run(&["-c", "import sys; print(sys.argv[1:])", "--", "x"]).expect_code(0).out();
    assert_eq!(out, "['x']\n");
}

cold_only! {
    fn any_command_of_the_image() {
        let Some(ctx) = Ctx::new() else { return };
        assert_eq!(ctx.run(&["--", "/usr/bin/id", "-u"]).expect_code(0).out(), "10001\n");
        assert_eq!(ctx.run(&["--", "printf", "%s|", "a b", "c"]).expect_code(0).out(), "a b|c|");
        let report = ctx.json(&["--", "sh", "-c", "exit 7"]).expect("script_error", 7, Some(7));
        assert!(report.json["lang"].is_null(), "{report}");
        // Not there, or not executable: a refusal that names it (126), or the shells' 127.
        for missing in ["no-such-command", "/no/such/command", "/etc/passwd"] {
            let ran = ctx.run(&["--", missing]);
            assert!(matches!(ran.code, Some(126 | 127)), "{missing}: {:?} {}", ran.code, ran.err());
            assert!(ran.err().contains(missing), "{}", ran.err());
        }
    }
}

#[test]
fn exit_code_is_the_programs_own() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.json(&["-c", "raise SystemExit(0)"]).expect_ok();
    for code in [1, 3, 124, 125, 126, 130, 137, 255] {
        let report = ctx.json(&["-c", &format!("raise SystemExit({code})")]);
        let report = report.expect("script_error", code, Some(code.into()));
        assert!(report.json["signal"].is_null(), "{report}");
        assert!(report.json["oom_kills"] == 0, "{report}");
    }
    ctx.json(&["--lang", "bash", "-c", "set -e; false; echo not here"]).expect("script_error", 1, Some(1));
    let report = ctx.json(&["-c", "1/0"]).expect("script_error", 1, Some(1));
    assert!(report.json["stderr"].as_str().unwrap().contains("ZeroDivisionError"), "{report}");
}

#[test]
fn death_by_a_signal_is_128_plus_n_and_never_taken_for_a_limit() {
    let Some(ctx) = Ctx::new() else { return };
    let deaths = [(9, "os.kill(os.getpid(), 9)"), (11, "os.kill(os.getpid(), 11)"), (6, "os.abort()")];
    for (signal, code) in deaths.into_iter().chain([(15, "os.kill(os.getpid(), 15)"), (1, "os.kill(0, 1)")]) {
        let report = ctx.json(&["-c", &format!("import os; {code}")]);
        let report = report.expect("script_error", 128 + signal, Some((128 + signal).into()));
        assert_eq!(report.json["signal"], signal, "{report}");
        assert_eq!(report.json["oom_kills"], 0, "{report}");
    }
    ctx.run(&["--lang", "bash", "-c", "kill -SEGV $$"]).expect_code(139);
}

#[test]
fn timeout_is_124_and_keeps_what_was_printed() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import time; print('before'); time.sleep(60); print('after')";
    let report = ctx.json(&["--timeout", "1", "-c", code]).expect("timeout", 124, Some(-1));
    assert_eq!(report.stdout(), "before\n");
    assert!(report.number("walltime_ms") >= 990.0, "{report}");
    assert!(report.json["error"]["code"].is_string(), "{report}");
    let ran = ctx.run(&["--timeout", "1", "-c", code]).expect_code(124);
    assert_eq!(ran.out(), "before\n");
}

#[test]
fn cancelled_by_sigint_and_sigterm_is_130() {
    let Some(ctx) = Ctx::new() else { return };
    for signal in [Signal::INT, Signal::TERM] {
        let code = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nsignal.signal(15, signal.SIG_IGN)\n\
                    print('ready')\ntime.sleep(100)";
        let mut child = spawn(&mut ctx.run_command(&["--timeout", "100", "-c", code]));
        assert_eq!(read_line(child.stdout.as_mut().unwrap()), "ready");
        kill(child.id(), signal);
        let ran = finish(child).expect_code(130);
        assert!(ran.elapsed.as_secs() < 60, "the cancel waited for the program");
    }
    ctx.assert_state_clean();
}

#[test]
fn a_cancelled_run_reports_itself() {
    let Some(ctx) = Ctx::new() else { return };
    let marker = crate::common::marker("cancel");
    let code = format!("import os\nos.execvp('sh', ['sh', '-c', 'sleep 100; true', '{marker}'])");
    let command = ["--json", "--timeout", "100", "-c", &code];
    let child = spawn(&mut ctx.run_command(&command));
    let creel = child.id();
    let runs = || {
        crate::common::footprint::tree(creel)
            .into_iter()
            .any(|p| crate::common::footprint::command_line(p).starts_with("sleep 100"))
    };
    assert!(crate::common::wait_until(runs, crate::common::HANG), "the program did not start");
    kill(creel, Signal::TERM);
    let report = crate::common::Report::of(finish(child)).expect("cancelled", 130, None);
    assert!(report.json["produced"].as_array().unwrap().is_empty(), "{report}");
    crate::common::footprint::assert_no_marker(&marker);
}

#[test]
fn refusals_are_126_with_one_line_that_says_what() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("ok.py", "print('started')\n");
    ctx.write("big.py", vec![b'#'; 8 * 1024 * 1024 + 1]);
    fs::create_dir(ctx.cwd().join("directory")).unwrap();
    ctx.write("file", "");
    let fifo = std::process::Command::new("mkfifo").arg(ctx.cwd().join("fifo")).status().unwrap();
    assert!(fifo.success());
    let cases: &[&[&str]] = &[
        &["--no-such-option", "ok.py"],
        &["missing.py"],
        &["directory"],
        &["fifo"],
        &["big.py"],
        &["--lang", "ruby", "ok.py"],
        &["--image", "no-such-image", "ok.py"],
        &["--image", "./no-such-bundle", "ok.py"],
        &["--profile", "no-such-profile", "ok.py"],
        &["--input", "missing.csv", "ok.py"],
        &["--input", "directory", "ok.py"],
        &["--input", "fifo", "ok.py"],
        &["--input", "/dev/zero", "ok.py"],
        &["--stdin", "missing.txt", "ok.py"],
        &["--stdin", "directory", "ok.py"],
        &["--skill", "missing-skill", "ok.py"],
        &["--output", "file", "ok.py"],
        &["--env", "NO_EQUALS_SIGN", "ok.py"],
        &["--env", "=value", "ok.py"],
        &["--net", "example.com:443", "ok.py"],
        &["--allow-unenforced", "gravity", "ok.py"],
        &["--timeout", "0", "ok.py"],
        &["--timeout=-1", "ok.py"],
        &["--timeout", "soon", "ok.py"],
        &["--timeout", "nan", "ok.py"],
        &["--memory", "0", "ok.py"],
        &["--memory=-64m", "ok.py"],
        &["--memory", "12q", "ok.py"],
        &["--memory", "99999999999999999999g", "ok.py"],
        &["--cpus", "0", "ok.py"],
        &["--cpus=-1", "ok.py"],
        &["--cpus", "inf", "ok.py"],
        &["--pids", "0", "ok.py"],
        &["--pids", "1.5", "ok.py"],
        &["--tmp", "0", "ok.py"],
        &["--output-max", "0", "ok.py"],
        &["ok.py", "-c", "print('two programs')"],
        &[],
    ];
    let mut wrong = Vec::new();
    for case in cases {
        let mut command = ctx.creel();
        let ran = finish(spawn(command.arg("run").args(ctx.start(case)).args(*case)));
        let err = ran.err();
        if ran.code != Some(126)
            || ran.out().contains("started")
            || err.trim().is_empty()
            || err.contains("panicked")
        {
            wrong.push(format!("{case:?}: exit {:?}, stdout {:?}, stderr {err:?}", ran.code, ran.out()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    ctx.assert_state_clean();
}

#[test]
fn a_summary_line_goes_to_stderr() {
    let Some(ctx) = Ctx::new() else { return };
    let ran = ctx.run(&["-c", "import sys; print('out'); print('err', file=sys.stderr)"]).expect_code(0);
    assert_eq!(ran.out(), "out\n");
    let err = ran.err();
    let rest =
        err.strip_prefix("err\n").unwrap_or_else(|| panic!("the program's stderr comes first: {err:?}"));
    assert_eq!(rest.trim_end().lines().count(), 1, "one summary line: {err:?}");
    assert!(rest.contains("ok"), "the summary says how it ended: {err:?}");
}

#[test]
fn started_with_all_three_streams_closed() {
    let Some(ctx) = Ctx::new() else { return };
    // A descriptor that creel opens must not become the program's 0, 1 or 2: all it may find there is pipes or devices.
    ctx.write(
        "kinds.py",
        "import os, stat\nmodes = [os.fstat(n).st_mode for n in (0, 1, 2)]\n\
         open('/outputs/n', 'w').write(str([stat.S_ISFIFO(m) or stat.S_ISCHR(m) for m in modes]))\n",
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "exec \"$@\" <&- >&- 2>&-", "bash", env!("CARGO_BIN_EXE_creel"), "run"]);
    command.args(ctx.start(&["kinds.py"])).arg("--output").arg(ctx.out()).arg("kinds.py");
    let mut child = ctx.within(command).spawn().unwrap();
    assert_eq!(wait_end(&mut child).code(), Some(0));
    assert_eq!(ctx.outputs()["n"], b"[True, True, True]");
}
