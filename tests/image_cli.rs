//! `creel image` and `creel run --image NAME`, as people use them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::user::User;
use common::{Ctx, Ran, finish, read_line, spawn, wait_until};
use images::{Layer, Layout, Tar, assert_store_valid, busybox};
use serde_json::{Value, json};

#[path = "common/mod.rs"]
mod common;
#[path = "images/mod.rs"]
mod images;

fn image(ctx: &Ctx, args: &[&str]) -> Ran {
    let mut command = ctx.creel();
    command.arg("image").args(args);
    finish(spawn(&mut command))
}

fn images(ctx: &Ctx) -> PathBuf {
    ctx.state().join("images")
}

/// A layout of busybox; the image says hello, in Chinese.
fn hello(ctx: &Ctx, name: &str, settings: Value) -> PathBuf {
    let mut layout = Layout::new(&ctx.cwd().join(format!("布局-{}", name.replace([':', '/'], "-"))));
    let entry = layout.image(&[Layer::tar(busybox())], settings);
    layout.add(entry, Some(name));
    layout.dir
}

fn settings() -> Value {
    json!({"Entrypoint": ["sh", "-c"], "Cmd": ["echo 来自镜像; cat /文档/说明.txt; pwd"], "Env": ["PATH=/bin", "A=甲"]})
}

fn path(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

#[test]
fn import_list_inspect_run_remove() {
    let Some(ctx) = Ctx::new() else { return };
    let header = image(&ctx, &["ls"]).expect_code(0).out();
    assert_eq!(header.lines().count(), 1, "{header}");
    assert_eq!(image(&ctx, &["ls", "--json"]).expect_code(0).out(), "[]\n");
    assert!(!images(&ctx).exists(), "a look makes nothing");
    assert_eq!(image(&ctx, &["default"]).expect_code(0).out(), "host\n");
    assert_eq!(image(&ctx, &["gc"]).expect_code(0).out(), "freed 0 B\n");

    let layout = hello(&ctx, "你好/x:v1".trim_start_matches("你好/"), settings());
    let ran = image(&ctx, &["import", path(&layout)]).expect_code(0);
    let line = ran.out();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[0], words[1].len(), words[3]), ("x:v1", 12, "MB"), "{line}");
    assert_eq!(ran.err(), "", "no bar where there is no terminal");
    assert_store_valid(&images(&ctx));

    let listed: Value = serde_json::from_str(&image(&ctx, &["ls", "--json"]).expect_code(0).out()).unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["default"], &listed[0]["layers"]),
        (&json!("x:v1"), &json!(true), &json!(1))
    );
    let ls = image(&ctx, &["ls"]).expect_code(0).out();
    assert!(ls.contains("2026-11-30") && ls.contains(words[1]) && ls.trim_end().ends_with("default"), "{ls}");

    let about: Value = serde_json::from_str(&image(&ctx, &["inspect", "x:v1"]).expect_code(0).out()).unwrap();
    assert_eq!(about["names"], json!(["x:v1"]));
    assert_eq!(about["configuration"]["config"], settings());
    let bundle = PathBuf::from(about["bundle"].as_str().unwrap());
    assert!(bundle.join("config.json").is_file() && bundle.join("rootfs/bin/busybox").is_file());
    assert_eq!(about["layers"][0]["sharedWith"], json!([]));

    // The image's own program; by name, by digest, and as a bundle directory.
    for name in ["x:v1", words[1], path(&bundle)] {
        let report = ctx.json(&["--image", name]).expect_ok();
        assert_eq!(
            report.stdout(),
            "来自镜像\n你好\n/work\n".replace("/work", if name.contains('/') { "/" } else { "/work" })
        );
        assert_eq!(report.json["image"], name);
        if !name.contains('/') {
            assert_eq!(report.json["notes"], json!([]), "{report}");
        }
    }
    // And without --image it is the default now.
    let report = ctx.json(&["--", "sh", "-c", "echo $A; id -u"]).expect_ok();
    assert_eq!((report.stdout(), &report.json["image"]), ("甲\n10001\n", &json!("x:v1")));
    assert_eq!(ctx.json(&["--image", "host", "--", "cat", "/etc/passwd"]).expect_ok().json["image"], "host");
    ctx.run(&[]).expect_code(126);

    let removed = image(&ctx, &["rm", "x:v1"]).expect_code(0).out();
    let told = "removed x:v1\ncreel run takes host from now on, unless another is chosen: creel image default NAME\nfreed ";
    assert!(removed.starts_with(told), "{removed}");
    assert_eq!(image(&ctx, &["default"]).expect_code(0).out(), "host\n");
    for dir in ["blobs/sha256", "layers", "bundles", "tmp"] {
        assert_eq!(fs::read_dir(images(&ctx).join(dir)).unwrap().count(), 0, "{dir}");
    }
    assert_eq!(ctx.json(&["-c", "print(1)"]).expect_ok().json["image"], "host");
    ctx.assert_state_clean();
}

#[test]
fn an_image_that_is_not_there() {
    let Some(ctx) = Ctx::new() else { return };
    let ran = ctx.run(&["--image", "nosuch:v1", "-c", ""]).expect_code(126);
    assert!(
        ran.err().starts_with("creel: no image 'nosuch:v1' (there are: host, or a bundle"),
        "{}",
        ran.err()
    );
    let base = Tar::new().file("a", "1");
    for n in 0..12 {
        let mut layout = Layout::new(&ctx.cwd().join(format!("l{n}")));
        let entry = layout.image(&[Layer::tar(base.clone())], json!({}));
        layout.add(entry, Some(&format!("n{n}:v1")));
        image(&ctx, &["import", path(&layout.dir)]).expect_code(0);
    }
    let report = ctx.json(&["--image", "nosuch", "-c", ""]).expect("rejected", 126, None);
    assert_eq!(report.json["error"]["code"], "image.not_found");
    let message = report.json["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("n0:v1") && message.contains("and 2 more") && message.contains("creel image ls"),
        "{message}"
    );
    for command in ["rm", "inspect", "export", "default"] {
        let args: &[&str] = if command == "export" { &["export", "图", "x.tar"] } else { &[command, "图"] };
        let ran = image(&ctx, args).expect_code(126);
        assert!(
            ran.err().contains("no image \"图\"") && ran.err().contains("n0:v1"),
            "{command}: {}",
            ran.err()
        );
    }
    // Of several names none goes if one is none.
    image(&ctx, &["rm", "n0:v1", "nosuch"]).expect_code(126);
    image(&ctx, &["inspect", "n0:v1"]).expect_code(0);
}

#[test]
fn an_image_in_use_is_not_removed() {
    let Some(ctx) = Ctx::new() else { return };
    let layout = hello(&ctx, "x:v1", settings());
    image(&ctx, &["import", path(&layout)]).expect_code(0);
    let mut run = ctx.run_command(&["--image", "x:v1", "--", "sh", "-c", "echo started; sleep 60"]);
    let mut child = spawn(&mut run);
    let mut stdout = child.stdout.take().unwrap();
    assert_eq!(read_line(&mut stdout), "started");
    let ran = image(&ctx, &["rm", "x:v1"]).expect_code(126);
    assert_eq!(ran.err(), "creel: image x:v1 is in use by a run: try again when the run is over\n");
    image(&ctx, &["gc"]).expect_code(0);
    assert_store_valid(&images(&ctx));
    // The lock is the sandbox's: it holds when the creel that began it is gone, as long as the launcher lives.
    common::kill(child.id(), rustix::process::Signal::TERM);
    finish(child).expect_code(130);
    let gone = wait_until(|| image(&ctx, &["rm", "x:v1"]).code == Some(0), common::HANG);
    assert!(gone);
    ctx.assert_state_clean();
}

#[test]
fn every_fault_is_one_line_that_says_what_to_do() {
    let Some(ctx) = Ctx::new() else { return };
    let text = ctx.write("文本.tar", "this is no tar ".repeat(100));
    for (args, code, words) in [
        (vec!["import", path(&text)], 126, vec!["no tar"]),
        (vec!["import", "没有"], 126, vec!["没有", "does not exist"]),
        (vec!["import", "x.tar", "--name", "大写"], 126, vec!["--name", "大写"]),
        (vec!["import", "-"], 126, vec!["empty"]),
        (vec!["import"], 126, vec!["SOURCE"]),
        (vec!["export", "a", "b.tar", "--compress", "xz"], 126, vec!["'xz'", "gzip, zstd, none, as-is"]),
        (vec!["rm"], 126, vec!["NAME"]),
        (vec!["nosuch"], 126, vec!["'nosuch'", "import, export"]),
        (vec![], 126, vec!["import, export"]),
    ] {
        let ran = image(&ctx, &args).expect_code(code);
        let err = ran.err();
        assert!(err.starts_with("creel: ") && err.lines().count() == 1, "{args:?}: {err}");
        for word in words {
            assert!(err.contains(word), "{args:?}: {word:?} is not in {err:?}");
        }
        assert_eq!(ran.out(), "", "{args:?}");
    }
    // The host's fault is 125.
    fs::create_dir_all(images(&ctx)).unwrap();
    fs::set_permissions(images(&ctx), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let ran = image(&ctx, &["import", path(&text)]).expect_code(125);
    assert!(ran.err().contains("0700"), "{}", ran.err());
}

#[test]
fn a_tar_on_standard_input() {
    let Some(ctx) = Ctx::new() else { return };
    let mut command = ctx.creel();
    command.args(["image", "import", "-", "--name", "stdin:v1"]).stdin(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&images::zstd(&busybox().end())).unwrap();
    drop(pipe);
    finish(child).expect_code(0);
    let report = ctx.json(&["--image", "stdin:v1", "--", "cat", "/文档/说明.txt"]).expect_ok();
    assert_eq!(report.stdout(), "你好\n");
    let mut command = ctx.creel();
    command.args(["image", "import", "-"]).stdin(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut pipe = child.stdin.take().unwrap();
    // It may be gone before all is written: without a name nothing is read to the end.
    let _ = pipe.write_all(&busybox().end());
    drop(pipe);
    let ran = finish(child).expect_code(126);
    assert!(ran.err().contains("--name"), "{}", ran.err());
}

#[test]
fn users_and_directories_of_images() {
    let Some(ctx) = Ctx::new() else { return };
    let with = json!({"User": "1000:1000", "WorkingDir": "/文档", "Cmd": ["sh", "-c", "id -u; pwd"], "Env": ["PATH=/bin", "odd"]});
    let layout = hello(&ctx, "u:v1", with);
    image(&ctx, &["import", path(&layout)]).expect_code(0);
    let report = ctx.json(&["--image", "u:v1"]).expect_ok();
    assert_eq!(report.stdout(), "10001\n/文档\n");
    assert_eq!(report.json["notes"].as_array().unwrap().len(), 1, "{report}");
    assert!(report.json["notes"][0].as_str().unwrap().contains("1000:1000"), "{report}");
    let about: Value = serde_json::from_str(&image(&ctx, &["inspect", "u:v1"]).out()).unwrap();
    assert!(about["notes"].to_string().contains("1 entries"), "{}", about["notes"]);
}

#[test]
fn other_runtimes_run_the_bundle_as_it_is() {
    let Some(ctx) = Ctx::new() else { return };
    let layout = hello(&ctx, "x:v1", settings());
    image(&ctx, &["import", path(&layout)]).expect_code(0);
    let about: Value = serde_json::from_str(&image(&ctx, &["inspect", "x:v1"]).out()).unwrap();
    let bundle = about["bundle"].as_str().unwrap();
    for tool in ["crun", "runc"] {
        // crun 1.8 refuses to work beside a cgroup v2 mount on a host that uses v1: in this mount namespace there is none.
        let hide = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        let id = format!("creel-test-{tool}-{}", std::process::id());
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", hide, tool, "--root"])
            .arg(ctx.root().join(tool))
            .args(["run", "--bundle", bundle, &id]);
        // Not /dev/null: both give the streams that they start with to the container's user.
        command.stdin(Stdio::piped());
        let ran = finish(spawn(&mut command)).expect_code(0);
        assert_eq!(ran.out(), "来自镜像\n你好\n/\n", "{tool} (Debian packages crun and runc): {}", ran.err());
    }
    assert_store_valid(&images(&ctx));
}

#[test]
fn an_ordinary_user_has_images_of_their_own() {
    let Some(user) = User::new() else { return };
    let tar = images::gzip(&busybox().end());
    let file = user.write("根.tar.gz", tar);
    let image = |args: &[&str]| finish(spawn(&mut user.creel(&[&["image"], args].concat())));
    image(&["import", path(&file), "--name", "mine"]).expect_code(0);
    assert_store_valid(&user.state().join("images"));
    let report = user.json(&["--image", "mine", "--", "sh", "-c", "id -u; cat /文档/说明.txt"]).expect_ok();
    assert_eq!(report.stdout(), "10001\n你好\n");
    image(&["export", "mine", "out.tar"]).expect_code(0);
    image(&["rm", "mine"]).expect_code(0);
    image(&["import", "out.tar"]).expect_code(0);
    assert!(image(&["ls"]).out().contains("mine:latest"));
}

#[test]
fn a_progress_bar_on_a_terminal_only() {
    let Some(ctx) = Ctx::new() else { return };
    let layout = hello(&ctx, "x:v1", settings());
    let on_terminal = |more: &str| {
        // script(1) gives the command a terminal.
        let line = format!("'{}' image import '{}' {more}", env!("CARGO_BIN_EXE_creel"), layout.display());
        let mut command = ctx.within(Command::new("script"));
        // One that can move its cursor; with TERM=dumb there is no bar.
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
        finish(spawn(&mut command)).expect_code(0).out()
    };
    let shown = on_terminal("");
    assert!(shown.contains("reading") && shown.contains("\u{1b}[2K"), "{shown:?}");
    // The bar is gone in the end, and the answer stands there.
    let last = shown.trim_end().rsplit(['\n', '\r']).next().unwrap();
    assert!(last.trim_start_matches("\u{1b}[2K").starts_with("x:v1  "), "{shown:?}");
    let quiet = on_terminal("--quiet");
    assert!(quiet.starts_with("x:v1  ") && quiet.lines().count() == 1, "{quiet:?}");
}

#[test]
fn help_names_what_there_is() {
    let Some(ctx) = Ctx::new() else { return };
    let help = image(&ctx, &["--help"]).expect_code(0).out();
    for command in ["import", "export", "ls", "inspect", "rm", "gc", "default"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing in {help}");
        let help = image(&ctx, &[command, "--help"]).expect_code(0).out();
        assert!(
            help.contains("Exit code: 0; 125") && help.lines().all(|l| l.chars().count() <= 120),
            "{help}"
        );
    }
}

#[test]
fn what_no_run_can_use_is_left_out_with_a_note() {
    let Some(ctx) = Ctx::new() else { return };
    for (n, odd) in [
        json!({"Entrypoint": [""], "Env": ["PATH=/bin"]}),
        json!({"Cmd": ["sh", "\0"], "Env": ["PATH=/bin"]}),
        json!({"WorkingDir": "/proc/self/fd/7", "Env": ["PATH=/bin", "A=\0"]}),
        json!({"WorkingDir": "/无/../x", "Env": ["PATH=/bin"]}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("odd:v{n}");
        image(&ctx, &["import", path(&hello(&ctx, &name, odd))]).expect_code(0);
        let report = ctx.json(&["--image", &name, "--", "sh", "-c", "echo 好"]).expect_ok();
        assert_eq!(report.stdout(), "好\n");
        let about: Value = serde_json::from_str(&image(&ctx, &["inspect", &name]).out()).unwrap();
        assert_ne!(about["notes"], json!([]), "{name}");
    }
    // A bundle of the store that lost its configuration.
    let about: Value = serde_json::from_str(&image(&ctx, &["inspect", "odd:v0"]).out()).unwrap();
    fs::remove_file(Path::new(about["bundle"].as_str().unwrap()).join("config.json")).unwrap();
    let err = ctx.run(&["--image", "odd:v0", "--", "sh"]).expect_code(125).err();
    assert!(
        err.contains("no config.json") && err.contains("creel image rm") && !err.contains("runc"),
        "{err}"
    );
}
