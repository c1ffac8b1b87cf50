//! Promise: regular files under /outputs become the result, whole and under their own names; nothing else does, and
//! nothing of the host is read or overwritten through them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::common::{Ctx, finish, kill, read_line, spawn};
use rustix::process::Signal;
use sha2::{Digest, Sha256};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn files_and_subdirectories_with_size_hash_and_type() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os
        os.makedirs('/outputs/a/b/c')
        open('/outputs/table.csv', 'w').write('x,y\n')
        open('/outputs/a/b/c/deep.json', 'w').write('{}')
        open('/outputs/a/picture.png', 'wb').write(bytes(100000))
        open('/outputs/empty', 'w')
        open('/outputs/.hidden', 'w').write('h')
        os.chmod('/outputs/a/picture.png', 0)
        os.chmod('/outputs/a/b', 0o500)
    "#;
    let report = ctx.python(&[], code).expect_ok();
    let files = ctx.outputs();
    let produced = report.produced();
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        [".hidden", "a/b/c/deep.json", "a/picture.png", "empty", "table.csv"]
    );
    assert_eq!(files.keys().collect::<BTreeSet<_>>(), produced.keys().collect::<BTreeSet<_>>());
    for (path, content) in &files {
        let entry = &produced[path];
        assert_eq!(entry["sha256"], sha256(content), "{path}");
        assert_eq!(entry["size"], content.len(), "{path}");
        assert_eq!(entry["name"], path.rsplit('/').next().unwrap(), "{path}");
        let meta = fs::metadata(ctx.out().join(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (0, 0), "{path} is not the service's own");
        assert_eq!(meta.mode() & 0o6000, 0, "{path} keeps set-id bits");
        assert_eq!(meta.mode() & 0o400, 0o400, "{path} can't be read");
    }
    let mime = |path: &str| produced[path]["mime_type"].clone();
    assert_eq!(mime("table.csv"), "text/csv");
    assert_eq!(mime("a/b/c/deep.json"), "application/json");
    assert_eq!(mime("a/picture.png"), "image/png");
    assert_eq!(report.json["partial"], false);
}

#[test]
fn the_default_directory_is_outputs_here() {
    let Some(ctx) = Ctx::new() else { return };
    let mut command = ctx.creel();
    let program = ["-c", "open('/outputs/x', 'w').write('y')"];
    command.arg("run").args(ctx.start(&program)).args(program);
    finish(spawn(&mut command)).expect_code(0);
    assert_eq!(fs::read_to_string(ctx.cwd().join("outputs/x")).unwrap(), "y");
}

#[test]
fn existing_files_are_replaced_whole() {
    let Some(ctx) = Ctx::new() else { return };
    fs::create_dir_all(ctx.out().join("sub")).unwrap();
    fs::write(ctx.out().join("a.txt"), "a long text that was there before").unwrap();
    fs::write(ctx.out().join("mine.txt"), "mine").unwrap();
    // A second name of the old file must keep the old content: replaced by rename, never written into.
    fs::hard_link(ctx.out().join("a.txt"), ctx.root().join("second-name")).unwrap();
    let code = "open('/outputs/a.txt', 'w').write('new')\nimport os\nos.mkdir('/outputs/sub')\nopen('/outputs/sub/s', 'w').write('s')";
    ctx.python(&[], code).expect_ok();
    let files = ctx.outputs();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["a.txt", "mine.txt", "sub/s"]);
    assert_eq!((files["a.txt"].as_slice(), files["mine.txt"].as_slice()), (&b"new"[..], &b"mine"[..]));
    assert_eq!(
        fs::read_to_string(ctx.root().join("second-name")).unwrap(),
        "a long text that was there before"
    );
}

#[test]
fn symlinks_in_the_output_directory_are_not_followed() {
    let Some(ctx) = Ctx::new() else { return };
    fs::create_dir(ctx.out()).unwrap();
    let victim = ctx.root().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "victim").unwrap();
    symlink(victim.join("file"), ctx.out().join("link.txt")).unwrap();
    symlink(victim.join("not-there"), ctx.out().join("dangling.txt")).unwrap();
    symlink(&victim, ctx.out().join("sub")).unwrap();
    let code = r#"
        import os
        os.mkdir('/outputs/sub')
        for p in ('link.txt', 'dangling.txt', 'sub/file', 'sub/new', 'good.txt'):
            open('/outputs/' + p, 'w').write('from inside')
    "#;
    let report = ctx.python(&[], code);
    let in_victim: Vec<_> = fs::read_dir(&victim).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(in_victim, ["file"], "{report}");
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "victim", "{report}");
    assert_eq!(report.code, 0, "{report}");
    assert_eq!(ctx.outputs()["good.txt"], b"from inside");
    // What could not be placed is said, and what is called produced is there.
    for path in report.produced().keys() {
        assert!(fs::symlink_metadata(ctx.out().join(path)).unwrap().is_file(), "{path}: {report}");
    }
    let told = report.produced().len() + report.skipped().len();
    assert!(told >= 5 || report.skipped().contains_key("sub"), "{report}");
}

#[test]
fn links_pipes_sockets_and_odd_names_are_skipped_with_a_reason() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os, socket
        os.chdir('/outputs')
        os.symlink('/etc/shadow', 'shadow')
        os.symlink('/proc/self/environ', 'environ')
        os.symlink('/proc/1/root', 'rootdir')
        os.symlink('good.txt', 'inner')
        os.symlink('..', 'up')
        os.mkfifo('fifo')
        socket.socket(socket.AF_UNIX).bind('socket')
        open('good.txt', 'w').write('good')
        open('a\nb', 'w').write('newline')
        open(b'\xff\xfe', 'w').write('not utf-8')
        open('汉' * 80, 'w').write('long name')
        os.mkdir('emptydir')
    "#;
    let report = ctx.python(&[], code).expect_ok();
    let skipped = report.skipped();
    for name in ["shadow", "environ", "rootdir", "inner", "up", "fifo", "socket"] {
        assert!(skipped.get(name).is_some_and(|r| !r.is_empty()), "{name}: {report}");
        assert!(fs::symlink_metadata(ctx.out().join(name)).is_err(), "{name} came out");
    }
    let files = ctx.outputs();
    assert_eq!(files["good.txt"], b"good");
    assert!(!files.keys().any(|k| k.ends_with('@')), "{:?}", files.keys());
    assert_eq!(files.len(), report.produced().len(), "{report}");
    assert!(!report.json["skipped"].to_string().contains("\\n"), "control characters are escaped: {report}");
}

#[test]
fn over_the_limit_nothing_is_kept() {
    let Some(ctx) = Ctx::new() else { return };
    let cases = [
        "for n in range(20): open(f'/outputs/f{n:02}', 'w').write('x' * 100_000)",
        "open('/outputs/small', 'w').write('x')\nopen('/outputs/z', 'wb').write(bytes(1_500_000))",
        "import os\nfor n in range(1001): open(f'/outputs/{n}', 'w')",
    ];
    for code in cases {
        let report = ctx.python(&["--output-max", "1m"], code);
        assert_eq!((report.category(), report.code), ("rejected", 126), "{code}: {report}");
        assert!(report.produced().is_empty() && report.json["error"]["code"].is_string(), "{report}");
        assert!(ctx.outputs().is_empty(), "kept: {:?}", ctx.outputs().keys());
    }
    // One byte below the limit is fine.
    ctx.python(&["--output-max", "1m"], "open('/outputs/z', 'wb').write(bytes(1 << 20))").expect_ok();
    assert_eq!(ctx.outputs()["z"].len(), 1 << 20);
}

#[test]
fn sparse_giants_and_deep_trees_do_no_harm() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "f = open('/outputs/giant', 'w')\nf.truncate(1 << 40)";
    let report = ctx.python(&[], code);
    // Refused by the tmpfs or quota (script_error), by the harvest, or left out: never copied.
    assert!(report.code != 0 || report.skipped().contains_key("giant"), "{report}");
    assert!(ctx.outputs().is_empty() && report.elapsed.as_secs() < 60, "{report}");

    let code = "import os\nos.makedirs('/outputs/' + '/'.join('d' * 40))\nopen('/outputs/' + 'd/' * 40 + 'f', 'w').write('deep')";
    let report = ctx.python(&[], code);
    assert!(report.category() == "rejected" || !report.skipped().is_empty(), "{report}");
    assert!(ctx.outputs().is_empty(), "{report}");
    let code = "import os\nos.chdir('/outputs')\nfor n in range(3000):\n    os.mkdir('d')\n    os.chdir('d')";
    let report = ctx.python(&[], code);
    assert!(report.elapsed.as_secs() < 60 && report.category() != "sandbox_error", "{report}");
    ctx.assert_state_clean();
}

#[test]
fn partial_outputs_of_a_timeout_and_an_oom_are_kept_and_marked() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import time\nopen('/outputs/part', 'w').write('so far')\ntime.sleep(100)";
    let report = ctx.python(&["--timeout", "2"], code).expect("timeout", 124, Some(-1));
    assert_eq!((&report.json["partial"], report.produced().len()), (&true.into(), 1), "{report}");
    assert_eq!(ctx.outputs()["part"], b"so far");

    let code = "open('/outputs/oom', 'w').write('so far')\nx = bytearray(300 << 20)";
    let report = ctx.python(&["--memory", "64m"], code).expect("oom", 137, Some(-2));
    assert_eq!(report.json["partial"], true, "{report}");
    assert_eq!(ctx.outputs()["oom"], b"so far");

    let code = "open('/outputs/error', 'w').write('so far')\nraise SystemExit(1)";
    let report = ctx.python(&[], code).expect("script_error", 1, Some(1));
    assert_eq!(report.json["partial"], false, "{report}");
    assert_eq!(ctx.outputs()["error"], b"so far");
}

#[test]
fn a_cancelled_run_leaves_no_outputs() {
    let Some(ctx) = Ctx::new() else { return };
    let code = "import time\nopen('/outputs/part', 'w').write('so far')\nprint('written')\ntime.sleep(100)";
    let mut child = spawn(&mut ctx.run_command(&["--timeout", "100", "-c", code]));
    assert_eq!(read_line(child.stdout.as_mut().unwrap()), "written");
    kill(child.id(), Signal::INT);
    finish(child).expect_code(130);
    assert!(ctx.outputs().is_empty(), "{:?}", ctx.outputs());
}

#[test]
fn outputs_are_read_when_everything_is_dead() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os, time
        r, w = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                f = open('/outputs/growing', 'w', buffering=1)
                while True:
                    f.write('more\n')
                    os.write(w, b'x') if f.tell() < 1000 else None
            os._exit(0)
        os.read(r, 1)
    "#;
    let report = ctx.python(&[], code).expect_ok();
    let content = ctx.outputs()["growing"].clone();
    assert_eq!(report.produced()["growing"]["sha256"], sha256(&content), "{report}");
    assert_eq!(report.produced()["growing"]["size"], content.len(), "{report}");
}
