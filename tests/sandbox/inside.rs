//! Promise: what a program sees inside is the contract's world, and nothing of the host's.

use crate::common::{Ctx, finish, spawn};
use serde_json::json;

#[test]
fn the_user_is_sandbox_10001() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.bash(&[], "id -u; id -g; id -un; id -gn; id -G; whoami; echo ~; umask").expect_ok();
    assert_eq!(report.stdout(), "10001\n10001\nsandbox\nsandbox\n10001\nsandbox\n/work\n0022\n");
    let code = r#"
        import getpass, os, pwd
        s = dict(l.split(':\t', 1) for l in open('/proc/self/status').read().splitlines())
        print(os.getresuid(), os.getresgid(), os.getgroups(), getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir)
        print(s['Uid'], s['Gid'], s['Groups'].split())
    "#;
    let out = ctx.python(&[], code).expect_ok().stdout().to_owned();
    let ids = "10001\t10001\t10001\t10001";
    let ten = "(10001, 10001, 10001)";
    assert_eq!(out, format!("{ten} {ten} [] sandbox /work\n{ids} {ids} []\n"));
}

#[test]
fn no_privileges_in_any_set_and_every_filter_on() {
    let Some(ctx) = Ctx::new() else { return };
    let command = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status";
    let python = "import re\nprint(*re.findall(r'(?m)^(?:Cap|NoNewPrivs|Seccomp:).*', open('/proc/self/status').read()), sep='\\n')";
    let none = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .map(|c| format!("{c}:\t0000000000000000\n"))
        .concat();
    let expected = format!("{none}NoNewPrivs:\t1\nSeccomp:\t2\n");
    assert_eq!(ctx.bash(&[], command).expect_ok().stdout(), expected);
    assert_eq!(ctx.python(&[], python).expect_ok().stdout(), expected);
    assert_eq!(ctx.json(&["--", "sh", "-c", command]).expect_ok().stdout(), expected);
}

#[test]
fn only_three_descriptors_whatever_creel_was_given() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("fds.py", "import os\nfor n in range(256):\n    try: print(n, os.fstat(n).st_nlink > 0)\n    except OSError: pass\n");
    let open = "for n in $(seq 10 60); do eval \"exec $n</\"; done; exec 61</etc/shadow; exec \"$@\"";
    for program in [
        vec!["fds.py"],
        vec!["--", "/usr/bin/python3", "-c", "import os\nprint(os.listdir('/proc/self/fd'))"],
    ] {
        let mut command = std::process::Command::new("bash");
        command
            .args(["-c", open, "bash", env!("CARGO_BIN_EXE_creel"), "run"])
            .args(ctx.start(&program))
            .arg("--output")
            .arg(ctx.out())
            .args(&program);
        let ran = finish(spawn(&mut ctx.within(command))).expect_code(0);
        // (The listing has one of its own, 3.)
        let expected = if program.len() == 1 { "0 True\n1 True\n2 True\n" } else { "['0', '1', '2', '3']\n" };
        assert_eq!(ran.out(), expected);
    }
}

#[test]
fn the_environment_is_built_from_nothing() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("env.py", "import json, os\nprint(json.dumps(dict(os.environ)))\n");
    let mut command =
        ctx.run_command(&["--env", "MINE=a=b c", "--env", "EMPTY=", "--env", "TZ=Asia/Shanghai", "env.py"]);
    command.envs([
        ("SECRET_TOKEN", "s3cret"),
        ("PYTHONPATH", "/nowhere"),
        ("BASH_ENV", "/nowhere"),
        ("LANG", "de_DE"),
    ]);
    let ran = finish(spawn(&mut command)).expect_code(0);
    let env: serde_json::Map<_, _> = serde_json::from_slice(&ran.stdout).unwrap();
    let fixed = [
        ("HOME", "/work"),
        ("LANG", "C.UTF-8"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("MINE", "a=b c"),
        ("EMPTY", ""),
        ("TZ", "Asia/Shanghai"),
    ];
    for (name, value) in fixed {
        assert_eq!(env[name], value, "{name}");
    }
    for name in
        ["PATH", "TMPDIR", "MPLCONFIGDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
    {
        assert!(env[name].as_str().is_some_and(|v| !v.is_empty()), "{name}");
    }
    let documented = |n: &str| {
        fixed.iter().any(|(f, _)| *f == n)
            || ["PATH", "TMPDIR", "MPLCONFIGDIR"].contains(&n)
            || n.starts_with("XDG_")
            || n.ends_with("_NUM_THREADS")
    };
    let more: Vec<&String> = env.keys().filter(|n| !documented(n)).collect();
    assert!(more.is_empty(), "not documented: {more:?}");
}

#[test]
fn writable_and_read_only_places() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import json, os
        def writes(d):
            try:
                p = os.path.join(d, 'probe')
                open(p, 'w').write('x')
                os.unlink(p)
                return True
            except OSError:
                return False
        e = os.environ
        made = [os.makedirs(v, exist_ok=True) or v for k, v in e.items() if k.startswith('XDG_') or k == 'MPLCONFIGDIR']
        good = ['/work', '/outputs', '/tmp', '/run', '/dev/shm', e['HOME'], e['TMPDIR'], os.path.expanduser('~')] + made
        roots = ['/' + d for d in os.listdir('/')]
        bad = ['/', '/inputs', '/skill', '/proc', '/proc/self', '/dev', '/etc', '/usr', '/usr/bin', '/usr/lib', '/var', '/var/lib', '/home', '/root', '/sys']
        bad += [r for r in roots if r not in ('/work', '/outputs', '/tmp', '/run', '/dev/shm')]
        if os.path.realpath('/var/tmp') != '/tmp': bad.append('/var/tmp')
        print(json.dumps([[d for d in good if not writes(d)], [d for d in bad if writes(d)], sorted(roots)]))
    "#;
    let inner = ctx.python(&[], code).expect_ok().inner();
    assert_eq!(inner[0], json!([]), "should be writable");
    assert_eq!(inner[1], json!([]), "should not be writable");
    for needed in ["/inputs", "/work", "/outputs", "/tmp", "/proc", "/dev", "/usr", "/etc", "/run"] {
        assert!(inner[2].as_array().unwrap().contains(&json!(needed)), "{needed}: {}", inner[2]);
    }
}

#[test]
fn landlock_refuses_where_modes_and_mounts_would_allow() {
    let Some(ctx) = Ctx::new() else { return };
    // These files belong to the payload and lie on a writable mount.
    let code = r#"
        for p in ('/proc/self/oom_score_adj', '/proc/self/comm', '/proc/self/timerslack_ns', '/proc/self/coredump_filter'):
            try:
                open(p, 'r+b', buffering=0)
                print(p, 'WRITABLE')
            except OSError:
                pass
    "#;
    assert_eq!(ctx.python(&[], code).expect_ok().stdout(), "");
}

#[test]
fn names_and_processes_are_its_own() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import json, os
        pids = [int(p) for p in os.listdir('/proc') if p.isdigit()]
        print(json.dumps([os.uname().nodename, os.getpid(), os.getppid(), sorted(pids), os.getsid(0), os.getpgid(0),
                          open('/proc/1/comm').read()]))
    "#;
    let inner = ctx.python(&[], code).expect_ok().inner();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_ne!(inner[0], host.trim());
    let pid = inner[1].as_u64().unwrap();
    assert!((2..20).contains(&pid), "{inner}");
    assert_eq!(inner[2], 1, "{inner}");
    assert_eq!(inner[3], json!([1, pid]), "other processes are seen");
    assert_eq!((&inner[4], &inner[5]), (&inner[1], &inner[1]), "a session of its own: {inner}");
    assert!(!inner[6].as_str().unwrap().contains("python"), "{inner}");
}

#[test]
fn proc_tells_nothing_of_the_host() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import json
        def read(p):
            try:
                return open(p, errors='replace').read()
            except OSError as e:
                return ''
        print(json.dumps({p: read('/proc/' + p) for p in ('self/mountinfo', 'self/mounts', 'self/cgroup', 'self/environ',
              '1/environ', '1/cmdline', '1/cgroup', '1/mountinfo', 'cmdline', 'keys', 'key-users', 'self/uid_map')}))
    "#;
    let mut command = ctx.creel();
    command.env("SECRET_TOKEN", "s3cret-of-the-host").args(["run", "--json"]).args(ctx.start(&["look.py"]));
    command.arg("--output").arg(ctx.out());
    let script = ctx.write("look.py", crate::common::dedent(code));
    let report = crate::common::Report::of(finish(spawn(command.arg(script)))).expect_ok();
    let inner = report.inner();
    let id = report.json["run_id"].as_str().unwrap();
    let host = [
        ctx.root().to_str().unwrap(),
        id,
        "creel-test-",
        "/var/lib/creel",
        "s3cret-of-the-host",
        "/root/",
        "target/",
    ];
    for (file, text) in inner.as_object().unwrap() {
        for word in host {
            assert!(!text.as_str().unwrap().contains(word), "{word} stands in /proc/{file}: {text}");
        }
    }
    for line in inner["self/cgroup"].as_str().unwrap().lines() {
        let path = line.splitn(3, ':').nth(2).unwrap();
        assert!(!path.contains("creel") && path.len() < 4, "the cgroup's place on the host shows: {line}");
    }
    assert_eq!((&inner["keys"], &inner["1/environ"]), (&json!(""), &json!("")));
}

#[test]
fn init_cant_be_looked_into() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os
        for name, look in {
            'mem': lambda: open('/proc/1/mem', 'rb'), 'mem w': lambda: open('/proc/1/mem', 'r+b'),
            'root': lambda: os.listdir('/proc/1/root'), 'rootlink': lambda: os.readlink('/proc/1/root'),
            'cwd': lambda: os.listdir('/proc/1/cwd'), 'exe': lambda: open('/proc/1/exe', 'rb'),
            'fd': lambda: os.listdir('/proc/1/fd'), 'maps': lambda: open('/proc/1/maps').read() or 1 / 0,
            'environ': lambda: open('/proc/1/environ').read() or 1 / 0, 'ns': lambda: os.readlink('/proc/1/ns/user'),
            'auxv': lambda: open('/proc/1/auxv', 'rb').read() or 1 / 0, 'kill': lambda: os.kill(1, 9),
            'syscall': lambda: open('/proc/1/syscall').read(), 'stack': lambda: open('/proc/1/stack').read(),
            'map_files': lambda: os.listdir('/proc/1/map_files'), 'fdinfo': lambda: os.listdir('/proc/1/fdinfo'),
        }.items():
            try:
                look()
                print(name, 'WORKED') if name != 'kill' else None
            except (OSError, ZeroDivisionError):
                pass
    "#;
    // (A kill of PID 1 from inside is accepted and dropped by the kernel: the run goes on, and ends well.)
    assert_eq!(ctx.python(&[], code).expect_ok().stdout(), "");
}

#[test]
fn the_network_is_a_loopback_and_nothing_else() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import errno, json, socket, threading
        def attempt(family, address):
            try:
                s = socket.socket(family, socket.SOCK_DGRAM)
                s.connect(address)
                return 'CONNECTED'
            except OSError as e:
                return errno.errorcode.get(e.errno, str(e))
        server = socket.create_server(('127.0.0.1', 0))
        threading.Thread(target=lambda: server.accept()[0].sendall(b'hello')).start()
        got = socket.create_connection(server.getsockname()).recv(5).decode()
        six = socket.create_server(('::1', 0), family=socket.AF_INET6)
        socket.create_connection(six.getsockname()[:2])
        try:
            name = socket.getaddrinfo('example.com', 80)
        except OSError as e:
            name = 'no name'
        print(json.dumps([socket.if_nameindex(), got, attempt(socket.AF_INET, ('192.0.2.1', 80)),
              attempt(socket.AF_INET6, ('2001:db8::1', 80)), name, len(open('/proc/net/route').readlines())]))
    "#;
    let inner = ctx.python(&[], code).expect_ok().inner();
    assert_eq!(inner, json!([[[1, "lo"]], "hello", "ENETUNREACH", "ENETUNREACH", "no name", 1]));
}

#[test]
fn dev_has_the_expected_nodes() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import json, os, stat
        d = {}
        for n in os.listdir('/dev'):
            s = os.lstat('/dev/' + n)
            d[n] = ([os.major(s.st_rdev), os.minor(s.st_rdev)] if stat.S_ISCHR(s.st_mode) else
                    os.readlink('/dev/' + n) if stat.S_ISLNK(s.st_mode) else 'dir' if stat.S_ISDIR(s.st_mode) else 'OTHER')
        print(json.dumps(d))
        open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(8); open('/dev/zero', 'rb').read(8)
        try:
            open('/dev/full', 'w', buffering=1).write('x\n')
        except OSError as e:
            print(e.strerror)
    "#;
    let report = ctx.python(&[], code).expect_ok();
    let (first, rest) = report.stdout().split_once('\n').unwrap();
    assert_eq!(rest, "No space left on device\n");
    let found: serde_json::Map<_, _> = serde_json::from_str(first).unwrap();
    let expected = json!({
        "null": [1, 3], "zero": [1, 5], "full": [1, 7], "random": [1, 8], "urandom": [1, 9], "tty": [5, 0],
        "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
        "shm": "dir",
    });
    for (name, what) in expected.as_object().unwrap() {
        assert_eq!(found.get(name), Some(what), "/dev/{name}");
    }
    let more: Vec<&String> = found.keys().filter(|n| expected.get(n.as_str()).is_none()).collect();
    assert!(more.is_empty(), "not expected in /dev: {more:?}");
}

#[test]
fn text_time_and_interpreters() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import locale, os, subprocess, sys, tempfile, time, zoneinfo
        print(sys.stdout.encoding, sys.stdin.encoding, sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL, ''))
        print(time.strftime('%z'), zoneinfo.ZoneInfo('Asia/Shanghai').key, tempfile.gettempdir())
        print(*(subprocess.run([p, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout.strip() for p in ('python', 'python3')))
    "#;
    let report = ctx.python(&["--env", "TZ=Asia/Shanghai"], code).expect_ok();
    assert_eq!(report.stdout(), "utf-8 utf-8 utf-8 C.UTF-8\n+0800 Asia/Shanghai /tmp\n42 42\n");
    assert_eq!(report.json["stderr"], "");
}

#[test]
fn limits_of_the_process() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import resource as r\nprint([r.getrlimit(l) == (r.RLIM_INFINITY,) * 2 for l in (r.RLIMIT_AS, r.RLIMIT_FSIZE)], r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_NOFILE))";
    assert_eq!(ctx.python(&[], code).expect_ok().stdout(), "[True, True] (1, 1) (256, 256)\n");
    let code = "import os\nfor p in ('/proc/sys/user/max_user_namespaces',):\n    try: print(open(p).read().strip())\n    except OSError: print('0')";
    assert_eq!(ctx.python(&[], code).expect_ok().stdout(), "0\n");
    // Whatever core_pattern does, no core file appears where the program works.
    let report =
        ctx.bash(&[], "ulimit -c unlimited; python3 -c 'import os; os.abort()'; ls -A /work").expect_ok();
    assert_eq!(report.stdout(), "entry.sh\n");
}
