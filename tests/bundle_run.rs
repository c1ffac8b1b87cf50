//! A bundle directory runs: its program, environment, working directory, mounts and limits count where they don't weaken the policy, and what
//! its root file system has at creel's own places leads nowhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::Ctx;
use common::user::User;
use serde_json::{Value, json};

#[path = "common/mod.rs"]
mod common;

const BUSYBOX: &str = "/bin/busybox";

/// A root file system of one static program (package busybox-static) at `dir/rootfs`, with `config` beside it.
fn bundle(dir: &Path, config: Value) -> PathBuf {
    let bin = dir.join("rootfs/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(BUSYBOX, bin.join("busybox")).expect("busybox-static is in scripts/packages-test.txt");
    for name in ["sh", "ls", "id", "cat", "touch", "mkdir", "pwd"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    dir.to_owned()
}

fn config(script: &str) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"args": ["sh", "-c", script], "env": ["PATH=/bin", "GREETING=你好"], "cwd": "/tmp", "user": {"uid": 0, "gid": 0}},
    })
}

fn image(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn its_program_environment_and_directory_count_and_its_user_does_not() {
    let Some(ctx) = Ctx::new() else { return };
    let b = bundle(
        &ctx.root().join("盒"),
        config("id -u; pwd; echo $GREETING $HOME; echo 结果 > /outputs/结果.txt"),
    );
    let report = ctx.json(&["--image", &image(&b)]).expect_ok();
    assert_eq!(report.stdout(), "10001\n/tmp\n你好 /work\n", "{report}");
    assert_eq!(ctx.outputs()["结果.txt"], "结果\n".as_bytes());
    assert!(report.json["notes"].to_string().contains("10001"), "{report}");
    let report = ctx
        .json(&["--image", &image(&b), "--env", "GREETING=hi", "--", "sh", "-c", "echo $GREETING"])
        .expect_ok();
    assert_eq!(report.stdout(), "hi\n");
    ctx.assert_state_clean();
}

#[test]
fn links_of_the_image_at_our_places_lead_nowhere() {
    let Some(ctx) = Ctx::new() else { return };
    let evil = ctx.root().join("evil");
    fs::create_dir(&evil).unwrap();
    for place in ["dev", "proc", "tmp", "work", "outputs", "inputs", "run", "skill", "etc", "sys"] {
        for target in
            [format!("../../{}", "evil"), evil.display().to_string(), place.to_owned(), "/etc/shadow".into()]
        {
            let dir = tempfile::tempdir_in(ctx.root()).unwrap();
            let b = bundle(
                dir.path(),
                config(
                    "echo x > /work/w && echo x > /outputs/o && echo x > /tmp/t && cat /proc/self/comm && cat /etc/passwd",
                ),
            );
            symlink(&target, b.join("rootfs").join(place)).unwrap();
            let report = ctx.json(&["--image", &image(&b)]);
            if place == "etc" && report.category() == "rejected" {
                // An image whose accounts can't be read safely is refused, by name.
                assert_eq!(report.json["error"]["code"], "image.accounts_refused", "{target}: {report}");
                continue;
            }
            assert!(report.stdout().contains("sandbox:x:10001:"), "{place} -> {target}: {report}");
            assert!(!report.stdout().contains("root:$"), "{place} -> {target}: {report}");
        }
    }
    assert_eq!(fs::read_dir(&evil).unwrap().count(), 0);
}

#[test]
fn its_root_is_read_only_and_its_files_show_their_owner() {
    let Some(ctx) = Ctx::new() else { return };
    let b = bundle(
        &ctx.root().join("b"),
        config("touch /x; touch /bin/y; touch /etc/z; ls -ln /bin/busybox; cat /proc/self/mountinfo"),
    );
    let report = ctx.json(&["--image", &image(&b)]).expect_ok();
    assert_eq!(
        report.json["stderr"].as_str().unwrap().matches("Read-only file system").count(),
        3,
        "{report}"
    );
    let owner: Vec<&str> =
        report.stdout().lines().next().unwrap().split_whitespace().skip(2).take(2).collect();
    assert_eq!(owner, ["0", "0"], "{report}");
    assert!(!report.stdout().contains(ctx.root().to_str().unwrap()), "{report}");
    assert_eq!(fs::read_dir(b.join("rootfs")).unwrap().count(), 1, "nothing was made in the image itself");
}

#[test]
fn its_limits_lower_ours_and_never_raise_them() {
    let Some(ctx) = Ctx::new() else { return };
    let mut c = config("echo started; cat /dev/zero | busybox tail -c 200000000 > /dev/null; echo survived");
    c["linux"] = json!({"resources": {"memory": {"limit": 67_108_864}, "pids": {"limit": 1_000_000}}});
    let b = bundle(&ctx.root().join("b"), c);
    let report = ctx.json(&["--image", &image(&b)]).expect("oom", 137, Some(-2));
    assert_eq!(report.json["limits"]["memory"], 67_108_864);
    assert_eq!(report.json["limits"]["pids"], 128);
}

#[test]
fn its_mounts_count_where_they_do_not_weaken() {
    let Some(ctx) = Ctx::new() else { return };
    let mut c = config("touch /scratch/a && cat /data/f && touch /data/g");
    c["mounts"] = json!([
        {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m"]},
        {"destination": "/data", "type": "bind", "source": "data", "options": ["rw", "bind"]},
    ]);
    let b = bundle(&ctx.root().join("b"), c.clone());
    fs::create_dir(b.join("data")).unwrap();
    fs::write(b.join("data/f"), "内容\n").unwrap();
    let report = ctx.json(&["--image", &image(&b)]).expect("script_error", 1, Some(1));
    assert_eq!(report.stdout(), "内容\n", "{report}");
    assert!(report.json["stderr"].as_str().unwrap().contains("Read-only"), "{report}");
    assert!(!b.join("data/g").exists());
    c["mounts"] = json!([{"destination": "/host", "type": "bind", "source": "/etc", "options": ["bind"]}]);
    fs::write(b.join("config.json"), c.to_string()).unwrap();
    let report = ctx.json(&["--image", &image(&b)]).expect("rejected", 126, None);
    assert_eq!(report.json["error"]["code"], "image.mount_refused", "{report}");
}

#[test]
fn an_ordinary_user_runs_one_too() {
    let Some(user) = User::new() else { return };
    let b = bundle(&user.path("b"), config("id -u; echo x > /outputs/x; touch /y"));
    let report = user.json(&["--allow-unenforced", "memory,pids,cpu", "--image", &image(&b)]);
    let report = report.expect("script_error", 1, Some(1));
    assert_eq!(report.stdout(), "10001\n", "{report}");
    assert_eq!(report.produced().len(), 1, "{report}");
}
