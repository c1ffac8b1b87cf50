//! Promise: a program does the same inside as outside. Each file of tests/programs/ gives the same stdout, stderr and
//! exit code under `creel run` as under plain python3 at the same path with the same environment; and however a program ends, it ends alike.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::mode::{Mode, mode};
use crate::common::{Ctx, finish, spawn};

/// A root of its own for the plain run: the host's /usr and /etc, an empty /tmp, and /work. Only the paths are made
/// the same: no limits, no filter, no process namespace. `$1` is a scratch directory with `work` in it.
const PLAIN: &str = r#"
set -e
scratch=$1; shift
mount -t tmpfs none "$scratch/root"
cd "$scratch/root"
for part in usr etc proc dev; do mkdir $part; mount --rbind /$part $part; done
for part in bin sbin lib lib32 lib64 libx32; do
  if [ -L /$part ]; then cp -P /$part $part; elif [ -d /$part ]; then mkdir $part; mount --bind /$part $part; fi
done
mkdir work run; mkdir -m 1777 tmp
mount --bind "$scratch/work" work
mount -t tmpfs -o mode=1777 none dev/shm
ulimit -n 256
exec setsid --wait chroot . setpriv --reuid 10001 --regid 10001 --clear-groups --inh-caps=-all "$@"
"#;

fn programs() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "py"));
    found.sort();
    found
}

#[derive(PartialEq)]
struct Behaviour {
    code: i32,
    stdout: String,
    stderr: String,
}

fn plain(ctx: &Ctx, program: &Path, env: &BTreeMap<String, String>) -> Behaviour {
    let scratch = ctx.root().join(format!("plain-{}", program.file_stem().unwrap().to_str().unwrap()));
    let work = scratch.join("work");
    fs::create_dir_all(&work).unwrap();
    fs::create_dir(scratch.join("root")).unwrap();
    let entry = work.join("entry.py");
    fs::copy(program, &entry).unwrap();
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o644)).unwrap();
    for path in [&work, &entry] {
        chown(path, Some(10001), Some(10001)).unwrap();
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", PLAIN, "sh"]).arg(&scratch);
    command.args(["env", "-i", "--chdir=/work"]).args(env.iter().map(|(k, v)| format!("{k}={v}")));
    command.args(["/usr/bin/python3", "/work/entry.py"]).stdin(std::process::Stdio::null());
    let mut child = spawn(&mut command);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = [drain(stdout.unwrap()), drain(stderr.unwrap())];
    let status = crate::common::wait_end(&mut child);
    let [stdout, stderr] = readers.map(|r| r.join().unwrap());
    // `setsid --wait` answers with 128+n for a death by signal n, like creel.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
    Behaviour { code, stdout, stderr }
}

/// Where objects lie is never the same twice.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        if part.len() - rest.len() >= 8 { all + "0x…" + rest } else { all + "0x" + part }
    })
}

fn drain(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        without_addresses(&String::from_utf8_lossy(&bytes))
    })
}

fn inside(ctx: &Ctx, program: &Path, options: &[&str]) -> Behaviour {
    let file = program.to_str().unwrap();
    let report = ctx.json(&[&["--timeout", "100", "--cpus", "1"], options, &[file]].concat());
    assert!(["ok", "script_error"].contains(&report.category()), "{}: {report}", program.display());
    let text = |field: &str| without_addresses(report.json[field].as_str().unwrap());
    Behaviour { code: report.code, stdout: text("stdout"), stderr: text("stderr") }
}

fn first_difference(inside: &str, plain: &str) -> String {
    let mut pairs = inside.lines().zip(plain.lines());
    let cut = |line: &str| line.chars().take(300).collect::<String>();
    match pairs.find(|(a, b)| a != b) {
        Some((a, b)) => format!("\n    inside: {}\n    plain:  {}", cut(a), cut(b)),
        None => format!("\n    inside {} lines, plain {}", inside.lines().count(), plain.lines().count()),
    }
}

/// Compares programs inside, started with `options`, with plain ones; gives what differs.
fn differences(ctx: &Ctx, programs: &[PathBuf], options: &[&str]) -> Vec<String> {
    let code = "import json, os; print(json.dumps(dict(os.environ)))";
    let args = [&["--cpus", "1"], options, &["-c", code]].concat();
    let ran = finish(spawn(&mut ctx.run_command(&args))).expect_code(0);
    let env: BTreeMap<String, String> = serde_json::from_slice(&ran.stdout).unwrap();
    let mut wrong = Vec::new();
    for program in programs {
        let (inside, plain) = (inside(ctx, program, options), plain(ctx, program, &env));
        let name = program.file_name().unwrap().to_string_lossy();
        if inside.code != plain.code {
            wrong.push(format!(
                "{name}: exit code {} inside, {} plain\n{}",
                inside.code, plain.code, inside.stderr
            ));
        }
        if inside.stdout != plain.stdout {
            wrong.push(format!("{name}: stdout{}", first_difference(&inside.stdout, &plain.stdout)));
        }
        if inside.stderr != plain.stderr {
            wrong.push(format!("{name}: stderr{}", first_difference(&inside.stderr, &plain.stderr)));
        }
    }
    wrong
}

/// Where the programs are compared; None where they can't be.
fn place() -> Option<Ctx> {
    let ctx = Ctx::new()?;
    if Path::new("/usr/bin/python3").exists() {
        return Some(ctx);
    }
    println!("SKIPPED: no /usr/bin/python3 to compare with");
    None
}

/// Every fourth program, so that a parallel test runner has something to share out.
fn compare(part: usize) {
    let Some(ctx) = place() else { return };
    let all = programs();
    assert!(all.len() >= 45, "only {} programs", all.len());
    let some: Vec<PathBuf> = all.into_iter().skip(part).step_by(4).collect();
    let wrong = differences(&ctx, &some, &[]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn first_quarter() {
    compare(0);
}

#[test]
fn second_quarter() {
    compare(1);
}

#[test]
fn third_quarter() {
    compare(2);
}

#[test]
fn fourth_quarter() {
    compare(3);
}

/// Ways to end, each a program.
const ENDS: &[&str] = &[
    "sys.exit()",
    "sys.exit(None)",
    "sys.exit(True)",
    "sys.exit(3)",
    "sys.exit(-1)",
    "sys.exit(256)",
    "sys.exit(1 << 31)",
    "sys.exit(-(1 << 31) - 1)",
    "sys.exit(1 << 70)",
    "sys.exit('文')",
    "sys.exit('\\udcff')",
    "sys.exit((1, 2))",
    "sys.exit((5,))",
    "sys.exit([])",
    "sys.exit(2.5)",
    "class N:\n    def __int__(self): return 4\n    def __index__(self): return 5\nsys.exit(N())",
    "class N(int): pass\nsys.exit(N(6))",
    "class N:\n    def __str__(self): raise ValueError('no text')\nsys.exit(N())",
    "raise SystemExit",
    "raise SystemExit(7)",
    "e = SystemExit(1)\ne.code = 8\nraise e",
    "class E(SystemExit): pass\nraise E(9)",
    "class E(SystemExit):\n    code = 11\nraise E(9)",
    "try:\n    sys.exit(3)\nfinally:\n    print('at last')",
    "try:\n    1 / 0\nfinally:\n    sys.exit(4)",
    "try:\n    sys.exit(3)\nexcept SystemExit as e:\n    print(e.code)",
    "try:\n    sys.exit(3)\nexcept SystemExit as e:\n    kept = e\nraise ValueError('later')",
    "atexit.register(sys.exit, 5)",
    "atexit.register(os._exit, 6)",
    "atexit.register(lambda: 1 / 0)\nsys.exit(2)",
    "t = threading.Thread(target=sys.exit, args=(5,))\nt.start()\nt.join()",
    "threading.Thread(target=os._exit, args=(12,)).start()\nthreading.Event().wait()",
    "threading.Thread(target=lambda: (threading.main_thread().join(), print('after main'))).start()\nsys.exit(13)",
    "raise KeyboardInterrupt",
    "class K(KeyboardInterrupt): pass\nraise K('x')",
    "raise BaseException('bare')",
    "raise GeneratorExit",
    "raise ExceptionGroup('组', [ValueError(1), OSError(2, 'x')])",
    "raise BaseExceptionGroup('b', [KeyboardInterrupt(), SystemExit(3)])",
    "raise ValueError('a') from KeyError('b')",
    "exec('def f(:')",
    "compile('(\\n', 'made.py', 'exec')",
    "print('\\udc80')",
    "sys.stdout.buffer.write(b'\\xff'); print('x' * 70000, end='')",
    "sys.stdout.close()",
    "sys.stdout.close()\nprint('nowhere')",
    "sys.stderr.close()\n1 / 0",
    "os.close(1)\nprint('nowhere')",
    "os.close(1)\nos.close(2)\nsys.exit(3)",
    "sys.stdout = None\nprint('nothing')",
    "class W:\n    closed = False\n    def flush(self): raise OSError(5, 'flush')\nsys.stdout = W()",
    "sys.stdout = open('/dev/full', 'w')\nprint('x')",
    "sys.stdout = open('/work/f', 'w')\nprint('x')\natexit.register(lambda: os.write(2, open('/work/f', 'rb').read() or b'not yet'))",
    "sys.excepthook = lambda *a: print('hook', a[0])\n1 / 0",
    "sys.excepthook = lambda *a: 1 / 0\nraise ValueError('first')",
    "sys.excepthook = lambda *a: sys.exit(21)\n1 / 0",
    "sys.excepthook = None\n1 / 0",
    "del sys.excepthook\n1 / 0",
    "sys.tracebacklimit = 0\n1 / 0",
    "del sys.modules['__main__']\nsys.exit(2)",
    "sys.modules['__main__'] = 3\n1 / 0",
    "sys.modules.clear()",
    "sys.exit = None\nraise SystemExit(3)",
    "import builtins\nbuiltins.SystemExit = ValueError\nsys.exit(3)",
    "sys.last_type = 1\nsys.exit(3)",
    "code.interact = None\nquit(14)",
    "exit('bye')",
    "os.abort()",
    "os.kill(os.getpid(), 15)",
    "os.kill(os.getpid(), 13)",
    "signal.raise_signal(2)",
    "signal.signal(2, lambda *a: sys.exit(15))\nsignal.raise_signal(2)",
    "os.execvp('sh', ['sh', '-c', 'exit 17'])",
    "os.fork() or sys.exit(3)\nos.wait()\nsys.exit(18)",
    "if not os.fork():\n    raise ValueError('in the child')\nprint(os.wait()[1] >> 8)",
    "if not os.fork():\n    print('child')\n    sys.exit(5)\nprint(os.wait()[1] >> 8)",
    "atexit.register(print, 'end')\nif not os.fork(): os._exit(0)\nos.wait()",
    "class D:\n    def __del__(self): print('deleted', sys.is_finalizing())\nd = D()\nsys.exit(3)",
    "class D:\n    def __del__(self): raise ValueError('in __del__')\nd = D()",
    "class D:\n    def __del__(self): os._exit(19)\nd = D()",
    "class D:\n    def __del__(self): import json, this_is_nowhere\nd = D()",
    "def g():\n    try: yield\n    finally: print('generator closed')\nx = g(); next(x)",
    "async def c(): pass\nx = c()",
    "import asyncio\nasync def c(): sys.exit(20)\nasyncio.run(c())",
    "import asyncio\nasync def c(): raise KeyboardInterrupt\nasyncio.run(c())",
    "import tempfile\nd = tempfile.TemporaryDirectory()\natexit.register(lambda: print(os.path.exists(d.name)))",
    "f = open('/work/f', 'w')\nf.write('not flushed')\natexit.register(lambda: print(os.path.getsize('/work/f')))",
    "ctypes.CDLL(None).printf(b'stdio')\nos._exit(0)",
    "ctypes.CDLL(None).printf(b'stdio')\n1 / 0",
    "ctypes.CDLL(None).exit(22)",
    "gc.disable()\nclass D:\n    def __del__(self): print('cycle')\nd = D(); d.me = d; del d",
    "gc.callbacks.append(lambda *a: None)\nclass D:\n    def __del__(self): print('cycle')\nd = D(); d.me = d",
    "import weakref\nclass D: pass\nd = D()\nweakref.finalize(d, print, 'finalized', os.getcwd())",
    "import weakref\nclass D: pass\nd = D()\nr = weakref.ref(d, lambda r: print('weak reference told'))",
    "import logging\nlogging.basicConfig()\nclass D:\n    def __del__(self): logging.error('from __del__')\nd = D()",
    "_ = type('D', (), {'__del__': lambda s: print('underscore', 'z' in globals())})()\nz = type('D', (), {'__del__': lambda s: print('z', '_' in globals())})()",
    "import warnings\nwarnings.simplefilter('always')\nf = open('/work/entry.py')",
    "import faulthandler\nfaulthandler.enable()\nctypes.string_at(0)",
    "sys.setrecursionlimit(60)\ndef f(): f()\nf()",
    "x = []\nfor _ in range(200000): x = [x]",
    "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor()\np.submit(lambda: (threading.Event().wait(0.2), print('done')))\nsys.exit(3)",
    "import multiprocessing\nmultiprocessing.Process(target=print, args=('child',)).start()\nsys.exit(3)",
    "sys.path.insert(0, '/work')\nopen('/work/m.py', 'w').write('class D:\\n    def __del__(self): print(__name__, \"goes\")\\nd = D()')\nimport m",
    "raise ImportError('x', name='文', path='/p')",
    "assert False, '断言'",
    "import nowhere.at_all",
    "raise OSError(2, '没有', '/文件')",
    "raise StopIteration(3)",
    "raise UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'bad')",
];

/// What a fork of a zygote does otherwise, and can't but do (ARCHITECTURE.md): beginnings of programs above, each with what is said inside. The
/// interpreter is still whole when the last destructors run, so that they can import, that it says more, and that `sys.is_finalizing()` is not yet true; and where `sys.exit` leaves a
/// bare status behind (before Python 3.12) it is a function of ours.
const OTHERWISE: &[(&str, &str)] = &[
    (
        "class D:\n    def __del__(self): raise ValueError('in __del__')",
        "    def __del__(self): raise ValueError",
    ),
    ("class D:\n    def __del__(self): import json", "No module named 'this_is_nowhere'"),
    ("class D:\n    def __del__(self): print('deleted', sys.is_finalizing())", "deleted False"),
    ("async def c(): pass", "Enable tracemalloc"),
    ("import warnings", "Enable tracemalloc"),
    ("atexit.register(sys.exit, 5)", "<function exit at"),
];

/// A share of the ways to end.
fn ends(part: usize, parts: usize) {
    let Some(ctx) = place() else { return };
    let mut programs = Vec::new();
    for (n, end) in ENDS.iter().enumerate().skip(part).step_by(parts) {
        let imports = "import atexit, code, ctypes, gc, os, signal, sys, threading\nprint('begun')\n";
        programs.push(ctx.write(&format!("end-{n:03}.py"), format!("{imports}{end}\n")));
    }
    let mut wrong = differences(&ctx, &programs, &[]);
    if mode() == Mode::Zygote {
        for (end, said) in OTHERWISE {
            let Some(n) = ENDS.iter().position(|e| e.starts_with(end)) else { panic!("no such end: {end}") };
            if n % parts != part {
                continue;
            }
            let name = format!("end-{n:03}.py: std");
            assert!(wrong.iter().any(|w| w.starts_with(&name)), "{end}: no longer otherwise");
            wrong.retain(|w| !w.starts_with(&name));
            let Behaviour { stdout, stderr, .. } =
                inside(&ctx, &ctx.cwd().join(format!("end-{n:03}.py")), &[]);
            assert!(stdout.contains(said) || stderr.contains(said), "{end}: {stdout}{stderr}");
        }
    }
    let shown: Vec<String> = wrong
        .iter()
        .map(|w| {
            let n: usize = w[4..7].parse().unwrap();
            format!("{}\n{w}", ENDS[n])
        })
        .collect();
    assert!(shown.is_empty(), "{}", shown.join("\n\n"));
}

#[test]
fn ends_of_every_kind_first_half() {
    ends(0, 2);
}

#[test]
fn ends_of_every_kind_second_half() {
    ends(1, 2);
}
