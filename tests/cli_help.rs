//! Promise: `--help` names exactly what this version can do, and `--help` and `--version` succeed.

use std::process::{Command, Stdio};

fn stdout(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_creel")).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    assert!(output.stderr.is_empty(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_option_of_the_contract_is_there() {
    let help = stdout(&["run", "--help"]);
    for option in [
        "--image <NAME>",
        "--lang <LANG>",
        "--input <PATH[=NAME]>",
        "--output <DIR>",
        "--skill <DIR[=ID]>",
        "--stdin <FILE|->",
        "--timeout <SEC>",
        "--memory <SIZE>",
        "--cpus <N>",
        "--pids <N>",
        "--tmp <SIZE>",
        "--output-max <SIZE>",
        "--env <K=V>",
        "--net <none>",
        "--profile <NAME>",
        "--allow-unenforced <LIMIT>",
        "--json",
        "-c <CODE>",
    ] {
        assert!(help.contains(option), "{option} is missing in:\n{help}");
    }
    for code in ["124 time-out", "137 out of memory", "125 ", "126 ", "130 ", "128+n"] {
        assert!(help.contains(code), "{code} is missing in:\n{help}");
    }
    assert_eq!(help.matches("\n  creel run ").count(), 2, "two examples:\n{help}");
    assert!(help.contains("-- COMMAND [ARGS...]"));
    assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    assert_eq!(help, stdout(&["run", "-h"]));
}

#[test]
fn what_is_not_built_is_absent() {
    let help = stdout(&["--help"]);
    for command in ["run", "doctor", "image", "bench", "gc"] {
        assert!(help.contains(&format!("\n  {command}")), "{help}");
    }
    for command in ["serve", "mcp", "ps", "kill", "exec", "skill", "token"] {
        assert!(!help.contains(&format!("\n  {command}")), "{command} is in:\n{help}");
    }
    assert!(stdout(&["doctor", "--help"]).contains("--json"));
    assert!(stdout(&["gc", "--help"]).contains("Usage: creel gc"));
}

#[test]
fn version() {
    assert_eq!(stdout(&["--version"]), format!("creel {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    // A pipe whose reading end is closed.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_creel"));
    let output = command.args(["run", "--help"]).stdout(Stdio::from(writer)).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
