//! Promise: memory, processes, CPU and time are bounded, the report names the limit that was hit, and nothing that a
//! program does about the end delays it.

use crate::common::footprint::assert_no_marker;
use crate::common::mode::{Mode, mode};
use crate::common::{Ctx, Report, finish, spawn};

/// "At once" for a loaded machine: far below the sleeps of the programs here.
const SOON: u64 = 40;

#[track_caller]
fn assert_oom(report: Report) -> Report {
    let report = report.expect("oom", 137, Some(-2));
    assert!(report.number("oom_kills") >= 1.0, "{report}");
    assert!(report.json["error"]["code"].is_string(), "{report}");
    report
}

#[track_caller]
fn assert_host_is_fine(ctx: &Ctx) {
    assert_eq!(ctx.json(&["-c", "print('fine')"]).expect_ok().stdout(), "fine\n");
    ctx.assert_state_clean();
}

#[test]
fn memory_at_the_default_limit() {
    let Some(ctx) = Ctx::new() else { return };
    let report = assert_oom(ctx.python(&[], "print('before')\nx = bytearray(600 << 20)\nprint('after')"));
    assert_eq!(report.stdout(), "before\n");
    let peak = report.number("memory_peak_bytes");
    assert!(peak > 400e6 && peak <= 520.0 * 1048576.0, "{report}");
    ctx.python(&[], "x = bytearray(300 << 20)\nprint(len(x))").expect_ok();
}

#[test]
fn memory_of_a_child_is_the_runs_too() {
    let Some(ctx) = Ctx::new() else { return };
    // The parent survives the kernel's kill, or dies with the group, or would end well: all of it is `oom`.
    let child =
        "import subprocess, sys\nr = subprocess.run([sys.executable, '-c', 'x = bytearray(300 << 20)'])\n";
    for after in ["print(r.returncode)\nsys.exit(0)", "sys.exit(5)", "import time\ntime.sleep(100)"] {
        let report = ctx.python(&["--memory", "64m", "--timeout", "110"], &format!("{child}{after}"));
        let report = assert_oom(report);
        assert!(report.elapsed.as_secs() < SOON, "the run went on after the kill: {report}");
    }
    let bash = "python3 -c 'x = bytearray(300 << 20)' || true; exit 0";
    assert_oom(ctx.bash(&["--memory", "64m"], bash));
}

#[test]
fn memory_by_many_processes_threads_and_shared_mappings() {
    let Some(ctx) = Ctx::new() else { return };
    let many = r#"
        import os, time
        for _ in range(20):
            if os.fork() == 0:
                x = bytearray(20 << 20)
                time.sleep(100)
        time.sleep(100)
    "#;
    assert_oom(ctx.python(&["--memory", "128m", "--timeout", "110"], many));
    let shared = "import mmap\nm = mmap.mmap(-1, 300 << 20)\nfor n in range(0, 300 << 20, 4096): m[n] = 1";
    assert_oom(ctx.python(&["--memory", "64m"], shared));
    let memfd = "import os\nf = os.memfd_create('x')\nfor _ in range(300): os.write(f, bytes(1 << 20))";
    assert_oom(ctx.python(&["--memory", "64m"], memfd));
}

#[test]
fn little_memory_is_enough_for_little() {
    let Some(ctx) = Ctx::new() else { return };
    assert_eq!(ctx.json(&["--memory", "64m", "-c", "print('small')"]).expect_ok().stdout(), "small\n");
    let report = ctx.json(&["--memory", "32m", "--lang", "bash", "-c", "echo smaller"]).expect_ok();
    assert_eq!(report.stdout(), "smaller\n");
}

#[test]
fn address_space_is_not_memory() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import mmap\nm = mmap.mmap(-1, 16 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE\nprint(len(m))";
    assert_eq!(ctx.python(&[], code).expect_ok().stdout(), "17179869184\n");
}

/// A fork bomb under `--json --timeout 2`, with a second wall around it (RLIMIT_NPROC binds the payload, not root):
/// a creel that has lost its pids limit fails the test and does not take the machine with it.
fn bomb(ctx: &Ctx, program: &[&str]) -> Report {
    let probe = "import os, time\nn = 0\ntry:\n    while n < 300:\n        os.fork() or time.sleep(60)\n        n += 1\n\
                 except OSError: print('held')";
    let report = ctx.python(&["--timeout", "20"], probe).expect_ok();
    assert_eq!(report.stdout(), "held\n", "the pids limit does not hold: no bomb is lit");
    let mut command = std::process::Command::new("prlimit");
    command.args(["--nproc=1000", "--", env!("CARGO_BIN_EXE_creel"), "run", "--json", "--timeout", "2"]);
    command.args(ctx.start(program)).arg("--output").arg(ctx.out()).args(program);
    Report::of(finish(spawn(&mut ctx.within(command))))
}

#[test]
fn fork_bombs() {
    let Some(ctx) = Ctx::new() else { return };
    let marker = crate::common::marker("bomb");
    ctx.write(
        "bomb.py",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    );
    bomb(&ctx, &["bomb.py", "--", &marker]).expect("timeout", 124, Some(-1));
    ctx.write("bomb.sh", ":(){ :|:& };:\n");
    let report = bomb(&ctx, &["bomb.sh", "--", &marker]);
    assert!(["ok", "script_error", "timeout"].contains(&report.category()), "{report}");
    assert!(report.number("pids_peak") <= 130.0, "{report}");
    let report = bomb(&ctx, &["--", "bash", "-c", "f() { f | f & }; f; wait; sleep 100", &marker]);
    assert!(["script_error", "timeout"].contains(&report.category()), "{report}");
    assert!(report.elapsed.as_secs() < SOON, "{report}");
    assert_no_marker(&marker);
    assert_host_is_fine(&ctx);
}

#[test]
fn zombies_are_reaped_and_children_bounded() {
    let Some(ctx) = Ctx::new() else { return };
    // Orphans that end: PID 1 reaps them, so the limit is never reached.
    let orphans = r#"
        import os
        for n in range(600):
            pid = os.fork()
            if pid == 0:
                os.fork() or os._exit(0)
                os._exit(0)
            os.waitpid(pid, 0)
        print('done')
    "#;
    assert_eq!(ctx.python(&["--cpus", "1", "--timeout", "100"], orphans).expect_ok().stdout(), "done\n");
    let count = r#"
        import os, time
        n = 0
        try:
            while n < 1000:
                if os.fork() == 0:
                    time.sleep(100)
                n += 1
        except BlockingIOError:
            print(n)
    "#;
    let report = ctx.python(&["--pids", "20"], count).expect_ok();
    let made: u64 = report.stdout().trim().parse().unwrap();
    assert!((15..=20).contains(&made), "{report}");
    assert!((15.0..=22.0).contains(&report.number("pids_peak")), "{report}");
}

#[test]
fn ten_thousand_threads() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import threading
        end = threading.Event()
        started = 0
        try:
            for _ in range(10000):
                threading.Thread(target=end.wait, daemon=True).start()
                started += 1
        except RuntimeError as e:
            print(started, e)
        end.set()
    "#;
    let report = ctx.python(&["--timeout", "60"], code).expect_ok();
    let (started, why) = report.stdout().trim().split_once(' ').unwrap();
    assert!((100..=128).contains(&started.parse::<u32>().unwrap()), "{report}");
    assert_eq!(why, "can't start new thread");
}

#[test]
fn the_cpu_quota_holds_for_all_processes_together() {
    let Some(ctx) = Ctx::new() else { return };
    for code in ["while True: pass", "import os\nos.fork(); os.fork()\nwhile True: pass"] {
        let report = ctx.python(&["--cpus", "0.2", "--timeout", "4"], code).expect("timeout", 124, Some(-1));
        let (cpu, wall) = (report.number("cpu_ms"), report.number("walltime_ms"));
        // A loaded machine gives less than the quota, never more; one period of slack at both ends.
        assert!(cpu <= 0.30 * wall + 250.0, "{cpu} ms of CPU in {wall} ms: {report}");
        assert!(cpu > 50.0, "{report}");
    }
}

#[test]
fn what_the_cpu_quota_says_is_seen_by_libraries() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import os\nprint(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])";
    assert_eq!(ctx.python(&["--cpus", "0.5"], code).expect_ok().stdout(), "1 1\n");
    let two = ctx.python(&["--cpus", "2"], code);
    if mode() == Mode::Zygote {
        // Its modules have read it by then.
        let message = two.json["error"]["message"].as_str().unwrap();
        assert!(message.contains("imported for one thread"), "{two}");
        two.expect("rejected", 126, None);
    } else {
        assert_eq!(two.expect_ok().stdout(), "2 2\n");
    }
}

#[test]
fn nothing_beats_the_timer() {
    let Some(ctx) = Ctx::new() else { return };
    let marker = crate::common::marker("timer");
    let ignore = "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n";
    let programs = [
        format!("{ignore}while True: time.sleep(1)"),
        format!("{ignore}signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass"),
        "import os, signal\nos.kill(0, signal.SIGSTOP)".into(),
        "import os, signal\nif os.fork() == 0: signal.pause()\nos.kill(-1, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)".into(),
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(100)".into(),
        "import os\nos.setsid() if os.getpid() != os.getsid(0) else None\nos.execvp('sleep', ['sleep', '100'])".into(),
        "import os, subprocess\nsubprocess.run(['vfork-like', '100'], executable='sleep')".into(),
    ];
    for code in programs {
        let report = ctx.python(&["--timeout", "1"], &format!("{code}\n# {marker}"));
        let report = report.expect("timeout", 124, Some(-1));
        assert!(report.elapsed.as_secs() < SOON, "{code}: {report}");
    }
    let report = ctx.bash(&["--timeout", "1"], "sleep 100 & wait").expect("timeout", 124, Some(-1));
    assert!(report.elapsed.as_secs() < SOON, "{report}");
    let report =
        ctx.bash(&["--timeout", "1"], "trap '' TERM INT HUP; kill -STOP 0").expect("timeout", 124, Some(-1));
    assert!(report.elapsed.as_secs() < SOON, "{report}");
    assert_no_marker(&marker);
}

#[test]
fn daemons_do_not_outlive_the_run() {
    let Some(ctx) = Ctx::new() else { return };
    let marker = crate::common::marker("daemon");
    let daemon = format!(
        "import os, subprocess, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        \
         os.execvp('sh', ['sh', '-c', 'trap \"\" TERM HUP; while :; do sleep 1; done', '{marker}'])\n    os._exit(0)\n\
         time.sleep(0.3)\n"
    );
    ctx.python(&[], &format!("{daemon}print('done')")).expect_ok();
    assert_no_marker(&marker);
    ctx.python(&["--timeout", "2"], &format!("{daemon}time.sleep(100)")).expect("timeout", 124, Some(-1));
    assert_no_marker(&marker);
    ctx.bash(
        &[],
        &format!("nohup sh -c 'sleep 100; :' {marker} & setsid sh -c 'sleep 100; :' {marker} & sleep 0.2"),
    )
    .expect_ok();
    assert_no_marker(&marker);
}

#[test]
fn a_background_child_that_holds_the_pipes_delays_nothing() {
    let Some(ctx) = Ctx::new() else { return };
    let programs = [
        "echo done; sleep 100 &",
        "echo done; sleep 100 >/dev/null 2>&1 &",
        "echo done; (exec 7>&1; sleep 100 >/dev/null 2>&1) & disown",
        "echo done; python3 -m http.server >&2 &",
    ];
    for code in programs {
        let report = ctx.bash(&["--timeout", "100"], code).expect_ok();
        assert_eq!(report.stdout(), "done\n", "{code}");
        assert!(report.elapsed.as_secs() < SOON, "{code}: {report}");
    }
    let ran = ctx.run(&["--timeout", "100", "--lang", "bash", "-c", "echo done; sleep 100 &"]).expect_code(0);
    assert_eq!(ran.out(), "done\n");
    assert!(ran.elapsed.as_secs() < SOON);
    // What the main process printed last is never lost to the short drain.
    let code = "import os, sys\nif os.fork() == 0:\n    import time; time.sleep(100)\nsys.stdout.write('y' * 200000)";
    let report = ctx.python(&["--timeout", "100"], code).expect_ok();
    assert_eq!(report.number("stdout_bytes"), 200_000.0, "{report}");
}

#[test]
fn open_files_are_bounded() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os, resource
        n = resource.RLIMIT_NOFILE
        print(resource.getrlimit(n))
        fds = []
        try:
            while len(fds) < 10000:
                fds.append(os.open('/dev/null', os.O_RDONLY))
        except OSError as e:
            os.close(fds.pop())
            print(max(fds), e.strerror)
        try:
            resource.setrlimit(n, (1000, 1000))
        except (ValueError, PermissionError):
            print('not raised')
    "#;
    let out = ctx.python(&[], code).expect_ok().stdout().to_owned();
    assert_eq!(out, "(256, 256)\n254 Too many open files\nnot raised\n");
}
