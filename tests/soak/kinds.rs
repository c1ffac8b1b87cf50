//! The programs of the storm, and how each may end.

/// What a program is given besides its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    Nothing,
    /// Standard input of [`STDIN`] bytes.
    Stdin,
    /// An input and a skill with Chinese names.
    Files,
}

/// Bytes of standard input: more than a pipe holds.
pub const STDIN: usize = 3_000_000;

/// A way to end: category, error code, exit code of the report.
pub type End = (&'static str, &'static str, Option<i32>);

pub struct Kind {
    pub name: &'static str,
    pub bash: bool,
    /// `{N}` stands for the run's number.
    pub code: &'static str,
    /// Milliseconds of wall time it may take.
    pub timeout: u64,
    pub given: Given,
    /// It ends in one of these ways.
    pub ends: &'static [End],
    /// What it then prints, whole; `None`: it is not looked at.
    pub stdout: Option<&'static str>,
    /// Bytes it wrote to standard output at least.
    pub floods: u64,
    /// The file that it leaves, with its content.
    pub leaves: Option<(&'static str, &'static str)>,
}

const OK: End = ("ok", "", Some(0));
const TIMEOUT: End = ("timeout", "run.timeout", Some(-1));
const OOM: End = ("oom", "run.oom", Some(-2));
const LONG: u64 = 100_000;

const BASE: Kind = Kind {
    name: "",
    bash: false,
    code: "",
    timeout: LONG,
    given: Given::Nothing,
    ends: &[OK],
    stdout: None,
    floods: 0,
    leaves: None,
};

/// Waits to be struck: its name says which run's it is.
pub const HOLD: Kind = Kind {
    name: "struck",
    code: "import ctypes, time\nctypes.CDLL(None).prctl(15, b'soak-{N}', 0, 0, 0)\nprint('on', flush=True)\ntime.sleep(1000)",
    ends: &[],
    ..BASE
};

/// All others.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "plain",
        code: "import os\nopen('/outputs/结果-{N}.txt', 'w').write('好{N}')\nprint('第 {N} 次', os.listdir('/work'), os.getuid())",
        stdout: Some("第 {N} 次 ['entry.py'] 10001\n"),
        leaves: Some(("结果-{N}.txt", "好{N}")),
        ..BASE
    },
    Kind {
        name: "stdin",
        code: "import sys\nprint(len(sys.stdin.buffer.read()), '{N}')",
        given: Given::Stdin,
        stdout: Some("3000000 {N}\n"),
        ..BASE
    },
    Kind {
        name: "stdin unread",
        code: "print('不读 {N}')",
        given: Given::Stdin,
        stdout: Some("不读 {N}\n"),
        ..BASE
    },
    Kind {
        name: "files",
        code: "import json\nm = json.load(open('/inputs/manifest.json', encoding='utf-8'))[0]\n\
               text = open(m['path'], encoding='utf-8').read().strip()\n\
               print(m['displayName'], text, open('/skill/draw/说明.md', encoding='utf-8').read().strip(), '{N}')\n\
               open('/outputs/出-{N}.csv', 'w', encoding='utf-8').write(text)",
        given: Given::Files,
        stdout: Some("表 一.csv 甲,1 画图 {N}\n"),
        leaves: Some(("出-{N}.csv", "甲,1")),
        ..BASE
    },
    Kind {
        name: "exit code",
        code: "raise SystemExit(7)",
        ends: &[("script_error", "", Some(7))],
        stdout: Some(""),
        ..BASE
    },
    Kind {
        name: "exception",
        code: "print('前')\nraise ValueError('坏')",
        ends: &[("script_error", "", Some(1))],
        stdout: Some("前\n"),
        ..BASE
    },
    Kind {
        name: "segfault",
        code: "import ctypes\nctypes.string_at(0)",
        ends: &[("script_error", "", Some(139))],
        ..BASE
    },
    Kind { name: "abort", code: "import os\nos.abort()", ends: &[("script_error", "", Some(134))], ..BASE },
    Kind {
        name: "kills itself",
        code: "import os\nos.kill(os.getpid(), 9)",
        ends: &[("script_error", "", Some(137))],
        ..BASE
    },
    Kind {
        name: "daemonised child",
        code: "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  time.sleep(1000)\n os._exit(0)\nos._exit(3)",
        ends: &[("script_error", "", Some(3))],
        ..BASE
    },
    Kind {
        name: "child holds the output",
        code: "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint('走 {N}')",
        stdout: Some("走 {N}\n"),
        ..BASE
    },
    Kind {
        name: "fork bomb",
        code: "import os, time\nwhile True:\n try:\n  os.fork()\n except OSError:\n  time.sleep(0.01)",
        timeout: 1200,
        ends: &[TIMEOUT, OOM],
        ..BASE
    },
    Kind {
        name: "memory hog",
        code: "x = []\nwhile True: x.append(b'x' * (16 << 20))",
        ends: &[OOM],
        ..BASE
    },
    Kind {
        name: "hog in a child",
        code: "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = []\\nwhile True: x.append(b\"x\" * (16 << 20))'])\nprint('never')",
        // On cgroup v1 its parent may still say something.
        ends: &[OOM],
        ..BASE
    },
    Kind {
        name: "output flood",
        code: "import sys\nfor n in range(200): sys.stdout.write('é' * 50000)",
        floods: 20_000_000,
        ..BASE
    },
    Kind {
        name: "endless output",
        code: "while True: print('水' * 1000)",
        timeout: 700,
        ends: &[TIMEOUT],
        floods: 1,
        ..BASE
    },
    Kind {
        name: "no text",
        code: "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe' + '半'.encode()[:2])",
        ..BASE
    },
    Kind {
        name: "fills /tmp",
        code: "try:\n with open('/tmp/x', 'wb') as f:\n  while True: f.write(bytes(1 << 20)); f.flush()\nexcept OSError as e: print(e.errno, '满 {N}')",
        stdout: Some("28 满 {N}\n"),
        ..BASE
    },
    Kind {
        name: "fills /outputs",
        code: "try:\n with open('/outputs/x', 'wb') as f:\n  while True: f.write(bytes(1 << 20)); f.flush()\nexcept OSError as e: print(e.errno, '满 {N}')",
        ends: &[("rejected", "outputs.too_large", None), OK],
        stdout: Some("28 满 {N}\n"),
        ..BASE
    },
    Kind {
        name: "too many outputs",
        code: "for n in range(1100): open(f'/outputs/{n}', 'w')",
        ends: &[("rejected", "outputs.too_many_files", None)],
        ..BASE
    },
    Kind {
        name: "odd outputs",
        code: "import os\nos.mkfifo('/outputs/管')\nos.symlink('/etc/passwd', '/outputs/链')\nos.mkdir('/outputs/空')\nprint('怪 {N}')",
        stdout: Some("怪 {N}\n"),
        ..BASE
    },
    Kind {
        name: "sleeper",
        code: "import time\nprint('睡')\ntime.sleep(1000)",
        timeout: 500,
        ends: &[TIMEOUT],
        stdout: Some("睡\n"),
        ..BASE
    },
    Kind {
        name: "deaf family",
        code: "import os, signal, time\nfor s in range(1, 32):\n try: signal.signal(s, signal.SIG_IGN)\n except (OSError, ValueError): pass\n\
               for n in range(5):\n if os.fork() == 0: break\ntime.sleep(1000)",
        timeout: 600,
        ends: &[TIMEOUT],
        ..BASE
    },
    Kind {
        name: "storms at PID 1",
        code: "import os\nfor n in range(20):\n for s in range(1, 65):\n  try: os.kill(1, s)\n  except OSError: pass\nprint('还在 {N}')",
        stdout: Some("还在 {N}\n"),
        ..BASE
    },
    Kind {
        name: "kills all it can",
        code: "import os, time\nif os.fork() == 0: time.sleep(1000)\ntry: os.kill(-1, 9)\nexcept OSError: pass\nprint('独 {N}')",
        stdout: Some("独 {N}\n"),
        ..BASE
    },
    Kind {
        name: "threads to the limit",
        code: "import os, threading\nstop = threading.Event()\nn = 0\ntry:\n for n in range(300): threading.Thread(target=stop.wait, daemon=True).start()\n\
               except RuntimeError: print('限 {N}', n < 300)\nos.sys.stdout.flush()\nstop.set()",
        stdout: Some("限 {N} True\n"),
        ..BASE
    },
    Kind {
        name: "bash",
        bash: true,
        code: "echo '行 {N}'; exit 5",
        ends: &[("script_error", "", Some(5))],
        stdout: Some("行 {N}\n"),
        ..BASE
    },
];
