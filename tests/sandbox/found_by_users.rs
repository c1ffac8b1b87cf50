//! Promise: what a user or an attacker has once found stays repaired. One test for each finding.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::footprint::Footprint;
use crate::common::{Ctx, HANG, Ran, Report, dedent, finish, kill, spawn, wait_end, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

const CREEL: &str = env!("CARGO_BIN_EXE_creel");

/// `tool args… creel run --output OUT rest…`, in the place of the test.
fn through(ctx: &Ctx, tool: &str, args: &[&str], rest: &[&str]) -> Ran {
    let mut command = Command::new(tool);
    command.args(args).args([CREEL, "run"]).args(ctx.start(rest)).arg("--output").arg(ctx.out()).args(rest);
    finish(spawn(&mut ctx.within(command)))
}

/// Asserts that creel gave up with 125, ran nothing and said why in one line that has `part`.
#[track_caller]
fn assert_host_refusal(ran: Ran, what: &str, part: &str) {
    let (out, err) = (ran.out(), ran.err());
    assert_eq!(ran.code, Some(125), "{what}: stdout: {out}\nstderr: {err}");
    assert_eq!(out, "", "{what}: something ran");
    assert_eq!(err.lines().count(), 1, "{what}: {err}");
    assert!(err.contains(part), "{what}: the line does not name {part}: {err}");
}

#[test]
fn mappings_do_not_blind_the_disk_watcher() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import ctypes, mmap, os, signal, time
        N = 20000
        f = os.open('/work/sparse', os.O_CREAT | os.O_RDWR)
        os.ftruncate(f, N * 8192)
        libc = ctypes.CDLL(None, use_errno=True)
        size, int_ = ctypes.c_size_t, ctypes.c_int
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, size, int_, int_, int_, ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, size, int_]
        ready, tell = os.pipe()
        for _ in range(10):
            if os.fork() == 0:
                a = libc.mmap(None, N * 8192, mmap.PROT_READ, mmap.MAP_SHARED, f, 0)
                for i in range(N):
                    libc.mprotect(a + i * 8192, 4096, 0)
                os.write(tell, b'.')
                while True:
                    signal.pause()
        for _ in range(10):
            os.read(ready, 1)
        big = os.open('/work/big', os.O_CREAT | os.O_WRONLY)
        chunk = b'x' * (1 << 20)
        for n in range(1, 3001):
            os.write(big, chunk)
            if n % 50 == 0:
                print(n, flush=True)
        time.sleep(100)
    "#;
    let report = ctx.python(&["--memory", "350m", "--timeout", "20"], code);
    let written: u32 = report.stdout().lines().last().map_or(0, |n| n.parse().unwrap());
    assert!(written < 1500, "{written} MB were written: {report}");
    report.expect("output_limit", 126, None);
    ctx.assert_state_clean();
}

/// Directories of runs in every hierarchy below `dir`.
fn run_cgroups(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with("run_") {
            found.insert(entry.path());
        } else {
            run_cgroups(&entry.path(), found);
        }
    }
}

#[test]
fn too_few_open_files_are_named_and_leave_no_cgroup() {
    let Some(ctx) = Ctx::new() else { return };
    let all = || {
        let mut found = BTreeSet::new();
        run_cgroups(Path::new("/sys/fs/cgroup"), &mut found);
        found
    };
    let before = all();
    for limit in 26..=34 {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        let ran = through(&ctx, "bash", &["-c", &script], &["-c", "1"]);
        assert_host_refusal(ran, &format!("ulimit -n {limit}"), "ulimit -n");
    }
    // Runs of other tests go with their tests; what a failed start has lost stays.
    let new: Vec<PathBuf> = all().difference(&before).cloned().collect();
    let gone = wait_until(|| new.iter().all(|d| !d.exists()), HANG);
    assert!(gone, "left behind: {:#?}", new.iter().filter(|d| d.exists()).collect::<Vec<_>>());
    ctx.assert_state_clean();
    assert_eq!(
        through(&ctx, "bash", &["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""], &["-c", "1"]).code,
        Some(0)
    );
}

#[test]
fn a_full_standard_output_is_no_success() {
    let Some(ctx) = Ctx::new() else { return };
    let full = |args: &[&str]| {
        let mut command = ctx.run_command(args);
        let device = File::options().write(true).open("/dev/full").unwrap();
        finish(command.stdout(device).stderr(Stdio::piped()).spawn().unwrap())
    };
    full(&["--json", "-c", "print(1)"]).expect_code(125);
    let ran = full(&["-c", "print('x' * 100)"]).expect_code(125);
    assert!(ran.err().lines().any(|l| l.contains("standard output")), "{}", ran.err());
    // The device refuses only who writes.
    full(&["-c", "pass"]).expect_code(0);
    ctx.assert_state_clean();
}

#[test]
fn proc_tells_nothing_of_locks_boot_and_modules() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import fcntl, json
        held = open('/work/held', 'w')
        fcntl.lockf(held, fcntl.LOCK_EX)
        def read(name):
            try:
                return open('/proc/' + name).read()
            except FileNotFoundError:
                return 'none' if name != 'modules' else ''  # a kernel without modules
        print(json.dumps({name: read(name) for name in ('locks', 'cmdline', 'modules')}))
    "#;
    let report = ctx.python(&[], code).expect_ok();
    assert_eq!(report.inner(), json!({"locks": "", "cmdline": "", "modules": ""}), "{report}");
}

#[test]
fn a_program_cannot_slow_down_its_init() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os, resource
        cpu = {min(os.sched_getaffinity(0))}
        tries = [
            lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
            lambda: os.sched_setaffinity(1, cpu),
            lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
            lambda: resource.prlimit(1, resource.RLIMIT_CPU, (0, 0)),
        ]
        for attempt in tries[:COUNT]:
            try:
                attempt()
                print('done', flush=True)
            except OSError as e:
                print(type(e).__name__, flush=True)
    "#;
    let code = dedent(code);
    let refused = ctx.python(&[], &code.replace("COUNT", "4")).expect_ok();
    assert_eq!(refused.stdout(), "PermissionError\n".repeat(4), "{refused}");
    // All on one CPU, and init last in the queue if it could be put there.
    let spin = "for _ in range(30):\n    if os.fork() == 0:\n        os.sched_setaffinity(0, cpu)\n        \
                while True: pass\nos._exit(7)\n";
    let report = ctx.python(&["--timeout", "20"], &(code.replace("COUNT", "3") + spin));
    report.expect("script_error", 7, Some(7));
    ctx.assert_state_clean();
}

/// A bundle of busybox with `script` as its program and `memory` as its limit.
fn bundle(dir: &Path, script: &str, memory: u64) -> String {
    let bin = dir.join("rootfs/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is in scripts/packages-test.txt");
    for name in ["sh", "cat"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    let config: Value = json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"args": ["sh", "-c", script], "env": ["PATH=/bin"], "cwd": "/tmp", "user": {"uid": 0, "gid": 0}},
        "linux": {"resources": {"memory": {"limit": memory}}},
    });
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    dir.to_str().unwrap().to_owned()
}

cold_only! {
    fn an_image_limit_too_low_to_start_is_refused_by_name() {
        let Some(ctx) = Ctx::new() else { return };
        for limit in [1, 4096] {
            let image = bundle(&ctx.root().join(limit.to_string()), "echo started", limit);
            let report = ctx.json(&["--image", &image]).expect("rejected", 126, None);
            assert_eq!(report.json["error"]["code"], "image.limit_refused", "{report}");
            assert_eq!(report.stdout(), "", "{report}");
        }
        ctx.assert_state_clean();
    }
}

cold_only! {
    fn an_oom_names_the_limit_of_the_image() {
        let Some(ctx) = Ctx::new() else { return };
        let script = "cat /dev/zero | busybox tail -c 200000000 > /dev/null";
        let image = bundle(&ctx.root().join("b"), script, 64 << 20);
        let report = ctx.json(&["--image", &image, "--timeout", "60"]).expect("oom", 137, Some(-2));
        let message = report.json["error"]["message"].as_str().unwrap();
        assert!(message.contains("67108864") && !message.contains("536870912"), "{report}");
    }
}

#[test]
fn one_sigterm_ends_a_run_whose_reader_is_stuck() {
    let Some(ctx) = Ctx::new() else { return };
    let mut child = spawn(&mut ctx.run_command(&["--timeout", "20", "-c", "while True: print('y')"]));
    let stdout = child.stdout.take().unwrap();
    // The pipe is full once it holds something and has not grown for half a second.
    let (mut held, mut since) = (0, Instant::now());
    let stuck = || {
        let now = rustix::io::ioctl_fionread(&stdout).unwrap();
        if now != held {
            (held, since) = (now, Instant::now());
        }
        held > 0 && since.elapsed() > Duration::from_millis(500)
    };
    assert!(wait_until(stuck, Duration::from_secs(15)), "the program never filled the pipe");
    let footprint = Footprint::of(child.id());
    kill(child.id(), Signal::TERM);
    let told = Instant::now();
    let status = wait_end(&mut child);
    let took = told.elapsed();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    drop(stdout);
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(took < Duration::from_secs(10), "it took {took:?}: {err}");
    footprint.assert_gone();
    ctx.assert_state_clean();
}

/// `creel run` in a mount namespace where /run is a new tmpfs on which `setup` was done.
fn with_own_run(ctx: &Ctx, setup: &str) -> Ran {
    let script = format!("mount -t tmpfs t /run && {setup} && exec \"$0\" \"$@\"");
    through(ctx, "unshare", &["-m", "--propagation", "private", "sh", "-c", &script], &["-c", "1"])
}

#[test]
fn the_directory_of_id_locks_must_be_ours_alone() {
    let Some(ctx) = Ctx::new() else { return };
    // What is right: none yet, and one as creel makes it.
    for setup in ["true", "mkdir -m 700 /run/creel"] {
        with_own_run(&ctx, setup).expect_code(0);
    }
    let target = ctx.root().join("target");
    let elsewhere = ctx.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let wrong = [
        "mkdir -m 777 /run/creel && chown 4242:4242 /run/creel".to_owned(),
        "mkdir -m 700 /run/creel && chown 4242:4242 /run/creel".to_owned(),
        "mkdir -m 777 /run/creel".to_owned(),
        format!("ln -s {} /run/creel", elsewhere.display()),
        format!("mkdir -m 700 /run/creel && ln -s {} /run/creel/uids.lock", target.display()),
    ];
    for setup in &wrong {
        assert_host_refusal(with_own_run(&ctx, setup), setup, "/run/creel");
    }
    assert!(!target.exists(), "the symlink was followed");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "the symlink was followed");
    ctx.assert_state_clean();
}

#[test]
fn an_idle_caller_can_run_programs() {
    let Some(ctx) = Ctx::new() else { return };
    for policy in ["-i", "-b"] {
        let ran =
            through(&ctx, "chrt", &[policy, "0"], &["--timeout", "100", "-c", "print(1)"]).expect_code(0);
        assert_eq!(ran.out(), "1\n", "chrt {policy}");
    }
}

#[test]
fn limits_of_the_caller_are_not_the_programs() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import json, resource as r\n\
                print(json.dumps([r.getrlimit(w)[0] == r.RLIM_INFINITY for w in (r.RLIMIT_AS, r.RLIMIT_FSIZE, r.RLIMIT_CPU)]))";
    // Soft limits only: to raise a hard one takes CAP_SYS_RESOURCE, which not every root has.
    let soft = ["--as=3000000000:unlimited", "--fsize=10485760:unlimited", "--cpu=100:unlimited", "--"];
    let ran = through(&ctx, "prlimit", &soft, &["--json", "-c", code]);
    assert_eq!(Report::of(ran).expect_ok().inner(), json!([true, true, true]));
}
