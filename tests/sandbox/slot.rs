//! Promise: a program that is delivered into a waiting sandbox finds nothing of the waiting, and its world is that of a cold start.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use crate::common::mode::mode;
use crate::common::{Ctx, Report, finish, spawn};

fn escape(name: &str) -> String {
    let file = |n: &str| {
        std::fs::read_to_string(format!("{}/tests/escape/{n}.py", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    format!("{}\n{}", file("lib"), file(name))
}

#[test]
fn nothing_is_left_of_its_making() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.python(&["--timeout", "60"], &escape("slot")).expect_ok();
    let escaped: Vec<&str> = report.stdout().lines().filter(|l| !l.contains("\"escaped\": false")).collect();
    assert!(escaped.is_empty(), "got out:\n{}", escaped.join("\n"));
    assert!(report.stdout().lines().count() >= 55, "{report}");
}

/// A cold run and one in this mode, with the same standard input.
fn both(ctx: &Ctx, options: &[&str], code: &str, stdin: &dyn Fn() -> (Stdio, Vec<u8>)) -> (Report, Report) {
    let script = ctx.write("两次.py", crate::common::dedent(code));
    let run = |start: &[&str]| {
        let mut command = ctx.creel();
        command.args(["run", "--json"]).args(start).arg("--output").arg(ctx.out()).args(options).arg(&script);
        let (end, text) = stdin();
        let mut child = spawn(command.stdin(end));
        if let Some(mut pipe) = child.stdin.take() {
            std::thread::spawn(move || pipe.write_all(&text).ok());
        }
        Report::of(finish(child))
    };
    let script_ = script.to_str().unwrap();
    let (cold, other) = (run(&[]), run(&ctx.start(&[script_])));
    other.assert_started(mode());
    (cold, other)
}

#[track_caller]
fn assert_same(cold: &Report, other: &Report) {
    for field in ["error_category", "exit_code", "signal", "stdout", "stderr", "limits", "notes", "skipped"] {
        assert_eq!(cold.json[field], other.json[field], "{field} of a cold start, and not:\n{other}");
    }
    // All that is enforced, by the same means.
    assert_eq!(without_user(cold), without_user(other), "{other}");
}

/// `enforced`, but for the id, which no two runs share.
fn without_user(report: &Report) -> serde_json::Value {
    let mut enforced = report.json["enforced"].clone();
    enforced.as_object_mut().unwrap().remove("user");
    enforced
}

#[test]
fn standard_input_of_every_kind_is_that_of_a_cold_start() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import hashlib, os, stat, sys
        s, mode = sys.stdin, os.fstat(0).st_mode
        print(stat.S_ISFIFO(mode), stat.S_ISREG(mode), stat.S_ISCHR(mode), s.isatty(), s.seekable(), s.buffer.seekable())
        print([getattr(s, a, None) for a in ('encoding', 'errors', 'line_buffering', 'write_through', 'newlines', 'name', 'mode')], s, s.buffer)
        print(s.buffer.raw.name, s.buffer.raw.mode, s.buffer.raw.closefd, s is sys.__stdin__, os.get_blocking(0), os.get_inheritable(0))
        first = s.readline()
        rest = s.read()
        print(ascii(first), s.newlines, len(rest), hashlib.sha256(rest.encode('utf-8', 'surrogateescape')).hexdigest())
        print(os.system('cat; echo $?'), os.stat('/dev/stdin').st_mode == mode)
    "#;
    let text = "第一行\r\n二\n".repeat(60_000).into_bytes();
    let file = ctx.write("输入", &text);
    assert_eq!(finish(spawn(&mut ctx.run_command(&["-c", "pass"]))).code, Some(0));
    let null = || (Stdio::null(), Vec::new());
    let piped = || (Stdio::piped(), text.clone());
    let invalid = || (Stdio::piped(), b"\xff\xfe\r\rx".to_vec());
    let from_file = || (Stdio::from(File::open(&file).unwrap()), Vec::new());
    for (name, options, stdin) in [
        ("none", &[][..], &null as &dyn Fn() -> (Stdio, Vec<u8>)),
        ("a file", &["--stdin", file.to_str().unwrap()], &null),
        ("-, at its end", &["--stdin", "-"], &null),
        ("-, a pipe", &["--stdin", "-"], &piped),
        ("-, bytes that are no text", &["--stdin", "-"], &invalid),
        ("-, a file", &["--stdin", "-"], &from_file),
    ] {
        println!("{name}");
        let (cold, other) = both(&ctx, options, code, stdin);
        assert_same(&cold, &other);
    }
}

#[test]
fn the_world_is_that_of_a_cold_start() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os, resource, sys, time
        status = open('/proc/self/status').read().splitlines()
        # What it used is its own, and so is what its starter ignores.
        print('\n'.join(l for l in status if not l.startswith(('Vm', 'Rss', 'voluntary', 'nonvoluntary', 'FDSize', 'x86', 'THP', 'Huge', 'untag', 'Spec'))))
        print({n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith('RLIMIT_')})
        mounts = [l.split(' - ') for l in open('/proc/self/mountinfo').read().splitlines()]
        print('\n'.join(sorted(a.split(' ', 3)[3] + ' ' + b.split()[0] for a, b in mounts)))
        print(open('/proc/self/limits').read(), open('/proc/self/cgroup').read(), open('/proc/self/oom_score_adj').read())
        print(open('/proc/self/loginuid').read() if os.path.exists('/proc/self/loginuid') else '', open('/proc/self/setgroups').read())
        print(open('/proc/self/personality').read() if os.access('/proc/self/personality', 4) else '', open('/proc/self/coredump_filter').read())
        print(sorted(os.environ.items()), open('/proc/self/environ', 'rb').read().count(b'\0') >= 0)
        print(time.tzname, time.strftime('%z'), os.uname()[:2], os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0))
        print(os.popen('env | sort | grep -v ^_=; ulimit -a; date +%Z; locale 2>&1; trap; ls -l /proc/self/fd | wc -l').read())
        print('sitecustomize' in sys.modules, 'usercustomize' in sys.modules, sys.path, sorted(p for p in sys.path_importer_cache if not p.startswith('/usr')))
        try:
            import sitecustomize
        except ImportError as e:
            print(e, e.name, e.path)
        print(sys.argv, sys.orig_argv, os.listdir('/work'), os.listdir('/tmp'), os.listdir('/run'), os.listdir('/dev/shm'), os.listdir('/outputs'))
        print([(p, oct(os.stat(p).st_mode), os.stat(p).st_uid, os.stat(p).st_gid) for p in ('/work', '/outputs', '/tmp', '/inputs', '/work/entry.py')])
        print(os.sched_getaffinity(0), os.sched_getscheduler(0), os.nice(0), os.statvfs('/tmp').f_blocks, os.statvfs('/work').f_blocks)
        print(open('/proc/self/comm').read(), open('/proc/self/timerslack_ns').read(), open('/proc/sys/user/max_user_namespaces').read())
    "#;
    let null = || (Stdio::null(), Vec::new());
    let options = ["--env", "TZ=Asia/Shanghai", "--env", "键=值 ", "--env", "A==b", "--env", "空="];
    let (cold, other) = both(&ctx, &options, code, &null);
    assert_same(&cold, &other);
    assert!(other.stdout().contains("CST"), "{other}");
}
