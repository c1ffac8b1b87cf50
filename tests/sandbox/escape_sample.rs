//! Promise: the known ways out are shut. The probes under tests/escape/ try them from inside; canaries on the host
//! show that nothing got through.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use crate::common::{Ctx, Report, finish, read_line, spawn};
use sha2::{Digest, Sha256};

/// A probe with the helpers before it.
fn probe(name: &str) -> String {
    let file =
        |n: &str| fs::read_to_string(format!("{}/tests/escape/{n}.py", env!("CARGO_MANIFEST_DIR"))).unwrap();
    format!("{}\n{}", file("lib"), file(name))
}

/// Asserts that the probe came to its end, tried at least `tried` things and got out by none of them.
#[track_caller]
fn assert_held(report: Report, tried: usize) {
    let report = report.expect_ok();
    let lines: Vec<serde_json::Value> =
        report.stdout().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let escaped: Vec<String> =
        lines.iter().filter(|l| l["escaped"] != false).map(|l| l.to_string()).collect();
    assert!(escaped.is_empty(), "got out:\n{}", escaped.join("\n"));
    assert!(lines.len() >= tried, "only {} things were tried: {report}", lines.len());
}

fn run_probe(ctx: &Ctx, name: &str, args: &[&str]) -> Report {
    let script = ctx.write(&format!("{name}.py"), probe(name));
    let options = ["--timeout", "100", "--cpus", "1", script.to_str().unwrap(), "--"];
    ctx.json(&[&options[..], args].concat())
}

fn sha256(path: &str) -> Vec<u8> {
    Sha256::digest(fs::read(path).unwrap()).to_vec()
}

#[test]
fn new_namespaces() {
    let Some(ctx) = Ctx::new() else { return };
    assert_held(run_probe(&ctx, "namespaces", &[]), 30);
}

#[test]
fn mount_family() {
    let Some(ctx) = Ctx::new() else { return };
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    assert_held(run_probe(&ctx, "mounts", &[]), 45);
    let after = fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    // (Other tests may have a mount of their own for a moment; hundreds would be ours.)
    assert!(after < before + 50);
}

#[test]
fn kernel_calls() {
    let Some(ctx) = Ctx::new() else { return };
    assert_held(run_probe(&ctx, "calls", &[]), 70);
}

#[test]
fn foreign_call_numbers_cve_2019_7303() {
    let Some(ctx) = Ctx::new() else { return };
    assert_held(run_probe(&ctx, "abi", &[]), 22);
}

#[test]
fn a_foreign_architecture_kills_and_is_said() {
    let Some(ctx) = Ctx::new() else { return };
    let code = probe("abi").split("for name, number, argument").next().unwrap().to_owned();
    let report = ctx.python(
        &["--timeout", "100"],
        &format!("{code}\nprint('calling', flush=True)\nint80(20)\nprint('STILL HERE')"),
    );
    assert!(report.stdout().ends_with("calling\n"), "{report}");
    assert_eq!(
        (report.category(), report.code, report.exit_code()),
        ("policy_kill", 159, Some(159)),
        "{report}"
    );
    assert_eq!(report.json["signal"], 31, "{report}");
}

#[test]
fn sockets_and_the_hosts_network_cve_2020_15257() {
    let Some(ctx) = Ctx::new() else { return };
    let name = crate::common::marker("abstract");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let abstract_canary = UnixListener::bind_addr(&address).unwrap();
    let tcp_canary = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp_canary.local_addr().unwrap().port().to_string();
    assert_held(run_probe(&ctx, "sockets", &[&name, &port]), 55);
    abstract_canary.set_nonblocking(true).unwrap();
    tcp_canary.set_nonblocking(true).unwrap();
    assert!(abstract_canary.accept().is_err(), "somebody connected to the host's abstract socket");
    assert!(tcp_canary.accept().is_err(), "somebody connected to the host's port");
}

#[test]
fn files_of_the_host_and_of_the_kernel_cve_2019_5736() {
    let Some(ctx) = Ctx::new() else { return };
    let canary = ctx.root().join("host-canary");
    fs::write(&canary, "host").unwrap();
    let settings =
        ["kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "vm/overcommit_memory", "kernel/sysrq"];
    let read = || settings.map(|s| fs::read_to_string(format!("/proc/sys/{s}")).unwrap_or_default());
    let (before, binary, python) = (read(), sha256(env!("CARGO_BIN_EXE_creel")), sha256("/usr/bin/python3"));
    assert_held(run_probe(&ctx, "files", &[canary.to_str().unwrap(), "/var/lib/creel"]), 100);
    assert_eq!(before, read(), "a setting of the host's kernel was changed");
    assert!(binary == sha256(env!("CARGO_BIN_EXE_creel")), "creel's binary was changed");
    assert!(python == sha256("/usr/bin/python3"), "the host's python was changed");
    assert_eq!(fs::read_to_string(&canary).unwrap(), "host");
}

#[test]
fn processes_of_the_host_cve_2016_9962() {
    let Some(ctx) = Ctx::new() else { return };
    let mut canary = Command::new("sleep").arg("1000").spawn().unwrap();
    let pids = [canary.id().to_string(), std::process::id().to_string()];
    let report = run_probe(&ctx, "processes", &[&pids[0], &pids[1]]);
    let alive = canary.try_wait().unwrap().is_none();
    canary.kill().unwrap();
    canary.wait().unwrap();
    assert!(alive, "the host's process was killed: {report}");
    assert_held(report, 35);
}

#[test]
fn two_sandboxes_at_once_share_nothing() {
    let Some(ctx) = Ctx::new() else { return };
    let script = ctx.write("ipc.py", probe("ipc"));
    let mut command =
        ctx.run_command(&["--stdin", "-", "--timeout", "100", script.to_str().unwrap(), "--", "leave"]);
    let mut first = spawn(command.stdin(Stdio::piped()));
    let said = read_line(first.stdout.as_mut().unwrap());
    assert!(said.starts_with("left"), "{said}");
    let report = run_probe(&ctx, "ipc", &["find"]);
    first.stdin.take().unwrap().write_all(b"").unwrap();
    finish(first).expect_code(0);
    assert_held(report, 15);
}

#[test]
fn system_v_memory_of_the_host_is_not_seen() {
    let Some(ctx) = Ctx::new() else { return };
    let Ok(made) = Command::new("ipcmk").args(["-M", "4096", "-p", "0666"]).output() else {
        println!("SKIPPED: ipcmk (util-linux) is not installed");
        return;
    };
    let id = String::from_utf8(made.stdout).unwrap().split_whitespace().last().unwrap().to_owned();
    let code = format!("{}\nfor n in (0, {id}): refused('shmat', syscall(30, n, 0, 0))\n", probe("lib"));
    let report = ctx.python(&[], &code);
    Command::new("ipcrm").args(["-m", &id]).status().unwrap();
    assert_held(report, 2);
}

#[test]
fn a_terminal_of_the_host_is_out_of_reach_cve_2017_5226() {
    let Some(ctx) = Ctx::new() else { return };
    let Ok(version) = Command::new("script").arg("--version").output() else {
        println!("SKIPPED: script (util-linux) is not installed");
        return;
    };
    assert!(version.status.success());
    let code = r#"
        import fcntl, os, sys
        for fd in (0, 1, 2):
            print(fd, os.isatty(fd), file=sys.stderr)
            for request in (0x5412, 0x5412 | 1 << 32):
                try:
                    fcntl.ioctl(fd, request & 0xffffffff, b'touch-escaped\n'[:1])
                    print('STUFFED')
                except OSError:
                    pass
        try:
            os.open('/dev/tty', os.O_RDWR)
            print('HAS A TERMINAL')
        except OSError:
            print('no terminal')
    "#;
    let path = ctx.write("tty.py", crate::common::dedent(code));
    let start = ctx.start(&[path.to_str().unwrap()]).join(" ");
    let (creel, out) = (env!("CARGO_BIN_EXE_creel"), ctx.out());
    let run = format!("{creel} run {start} --output {} {}", out.display(), path.display());
    let mut command = Command::new("script");
    command.args(["-qec", &run, "/dev/null"]);
    let ran = finish(spawn(&mut ctx.within(command)));
    let out = ran.out();
    assert!(out.contains("no terminal") && !out.contains("STUFFED") && !out.contains("True"), "{out}");
}
