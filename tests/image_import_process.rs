//! Imports by the program: killed at any moment, several at once, on a full disk, of something large.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Ctx, Ran, finish, spawn};
use images::{GZIP, Layer, Layout, Tar, assert_store_valid, layout};
use serde_json::Value;

#[path = "common/mod.rs"]
mod common;
#[path = "images/mod.rs"]
mod images;

fn creel(ctx: &Ctx, args: &[&str]) -> Ran {
    let mut command = ctx.creel();
    command.arg("image").args(args);
    finish(spawn(&mut command))
}

/// Bytes that don't compress.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..bytes / 4).flat_map(|_| next().to_le_bytes()).collect()
}

/// An image of several layers with many files.
fn many_files(dir: &Path) -> Layout {
    let layer = |n: u32| {
        let mut tar = Tar::new();
        for file in 0..300 {
            tar = tar.file(&format!("层{n}/{}/文件{file}", file % 17), noise(n * 1000 + file, 2000));
        }
        Layer::of(GZIP, &tar.end())
    };
    layout(dir, "many:v1", &(1..=4).map(layer).collect::<Vec<_>>())
}

#[test]
fn killed_at_any_moment_leaves_a_valid_store() {
    let Some(ctx) = Ctx::new() else { return };
    let source = many_files(&ctx.cwd().join("many"));
    let tar = ctx.write("many.tar", source.tar(true));
    let tar = tar.to_str().unwrap();
    let other = layout(&ctx.cwd().join("other"), "other:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    creel(&ctx, &["import", other.dir.to_str().unwrap()]).expect_code(0);
    let started = std::time::Instant::now();
    creel(&ctx, &["import", tar]).expect_code(0);
    let whole = started.elapsed();
    creel(&ctx, &["rm", "many:v1"]).expect_code(0);
    let images = ctx.state().join("images");
    let mut killed = 0;
    for n in 1..=12_u32 {
        let mut command = ctx.creel();
        command.args(["image", "import", tar]);
        let mut child = spawn(&mut command);
        // A moment of the import, not a wait for something: the twelve are spread over its whole length.
        std::thread::sleep(whole * n / 12);
        child.kill().unwrap();
        killed += u32::from(finish(child).code.is_none());
        assert_store_valid(&images);
        let listed = creel(&ctx, &["ls"]).expect_code(0).out();
        assert!(listed.contains("other:v1"), "{listed}");
        if n % 4 == 0 {
            creel(&ctx, &["gc"]).expect_code(0);
            assert_eq!(fs::read_dir(images.join("tmp")).unwrap().count(), 0);
            assert_store_valid(&images);
        }
    }
    assert!(killed >= 6, "only {killed} of 12 were killed in time");
    creel(&ctx, &["import", tar]).expect_code(0);
    assert_store_valid(&images);
    assert_eq!(fs::read_dir(images.join("tmp")).unwrap().count(), 0);
    assert!(creel(&ctx, &["ls"]).out().contains("many:v1"));
    // What was there all along is what it was.
    creel(&ctx, &["rm", "many:v1", "other:v1"]).expect_code(0);
    for dir in ["blobs/sha256", "layers", "bundles", "tmp"] {
        assert_eq!(fs::read_dir(images.join(dir)).unwrap().count(), 0, "{dir}");
    }
}

#[test]
fn a_removal_that_is_killed_leaves_a_valid_store() {
    let Some(ctx) = Ctx::new() else { return };
    let source = many_files(&ctx.cwd().join("many"));
    let path = source.dir.to_str().unwrap();
    let images = ctx.state().join("images");
    creel(&ctx, &["import", path, "--name", "kept:v1"]).expect_code(0);
    let mut whole = Duration::ZERO;
    for n in 0..=8_u32 {
        // Another layer each time, so that there is something to remove.
        let layer = Layer::tar(Tar::new().file(&format!("{n}"), noise(n, 3000)));
        let other = layout(&ctx.cwd().join(format!("other{n}")), "other:v1", &[layer]);
        creel(&ctx, &["import", other.dir.to_str().unwrap()]).expect_code(0);
        let mut command = ctx.creel();
        command.args(["image", "rm", "other:v1"]);
        let started = std::time::Instant::now();
        let mut child = spawn(&mut command);
        if n > 0 {
            // A moment of the removal, not a wait for something.
            std::thread::sleep(whole * n / 9);
            child.kill().unwrap();
        }
        finish(child);
        whole = whole.max(started.elapsed());
        assert_store_valid(&images);
        assert!(creel(&ctx, &["ls"]).expect_code(0).out().contains("kept:v1"));
    }
    creel(&ctx, &["gc"]).expect_code(0);
    creel(&ctx, &["rm", "kept:v1"]).expect_code(0);
}

#[test]
fn imports_of_the_same_image_at_once() {
    let Some(ctx) = Ctx::new() else { return };
    let source = many_files(&ctx.cwd().join("many"));
    let tar = ctx.write("many.tar", source.tar(false));
    let start = |source: &Path, name: &str| {
        let mut command = ctx.creel();
        command.args(["image", "import"]).arg(source).args(["--name", name]);
        spawn(&mut command)
    };
    let children =
        [start(&tar, "a:v1"), start(&source.dir, "b:v1"), start(&tar, "a:v1"), start(&tar, "c:v1")];
    for child in children {
        finish(child).expect_code(0);
    }
    let listed: Value = serde_json::from_str(&creel(&ctx, &["ls", "--json"]).out()).unwrap();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a:v1", "b:v1", "c:v1"]);
    let images = ctx.state().join("images");
    assert_store_valid(&images);
    assert_eq!(fs::read_dir(images.join("bundles")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(images.join("layers")).unwrap().count(), 4);
    assert_eq!(creel(&ctx, &["gc"]).out(), "freed 0 B\n");
}

#[test]
fn a_full_disk_leaves_the_store_as_it_was() {
    let Some(ctx) = Ctx::new() else { return };
    let small = layout(&ctx.cwd().join("small"), "small:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    let source = many_files(&ctx.cwd().join("many"));
    let tar = ctx.write("many.tar", source.tar(true));
    // 2.4 MB of blobs, 2.4 MB unpacked: it stops while copying, or while unpacking.
    for size in ["1m", "2m", "3m", "4m", "5m"] {
        let script = format!(
            "mount -t tmpfs -o mode=700,size={size} tmpfs \"$1\" && \"$0\" image import \"$2\" >/dev/null || exit 99\n\
             (cd \"$1\" && find . ! -name lock | sort | grep -v '^./images/lock$') > before\n\
             \"$0\" image import \"$3\"; echo $?\n\
             (cd \"$1\" && find . ! -name lock | sort | grep -v '^./images/lock$') > after\n\
             cmp before after && \"$0\" image ls && \"$0\" image gc"
        );
        let mut command = ctx.within(Command::new("unshare"));
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
            env!("CARGO_BIN_EXE_creel"),
        ]);
        command.arg(ctx.state()).arg(&small.dir).arg(&tar);
        let ran = finish(spawn(&mut command)).expect_code(0);
        let (out, err) = (ran.out(), ran.err());
        assert!(
            out.starts_with("125\n") && out.contains("small:v1") && out.ends_with("freed 0 B\n"),
            "{size}: {out}{err}"
        );
        let lower = err.to_lowercase();
        assert!(lower.contains("no space left") && lower.contains("creel image gc"), "{size}: {err}");
        assert_eq!(err.lines().count(), 1, "{size}: {err}");
    }
}

/// Imports an image of so many MB; gives the most memory the process had, in MB.
fn memory_of_import(megabytes: usize) -> u64 {
    let Some(ctx) = Ctx::new() else { return 0 };
    let path = ctx.cwd().join("big.tar");
    let file = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    write_big(file, megabytes);
    let mut command = Command::new("python3");
    let wait = "import os, sys\npid = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])\n\
                _, status, usage = os.wait4(pid, 0)\nprint(usage.ru_maxrss)\nsys.exit(os.waitstatus_to_exitcode(status))";
    command.args(["-c", wait, env!("CARGO_BIN_EXE_creel"), "image", "import"]).arg(&path);
    let ran = finish(spawn(&mut ctx.within(command))).expect_code(0);
    let kib: u64 = ran.out().lines().last().unwrap().parse().unwrap();
    assert!(creel(&ctx, &["ls"]).out().contains("big:latest"));
    kib / 1024
}

/// The tar of a root file system with files of 10 MB.
fn write_big(mut out: impl std::io::Write, megabytes: usize) {
    let chunk = noise(7, 10 << 20);
    for n in 0..megabytes.div_ceil(10) {
        out.write_all(&Tar::new().file(&format!("文件{n}"), &chunk).0).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
}

#[test]
fn memory_stays_small() {
    let peak = memory_of_import(200);
    assert!(peak < 100, "{peak} MB");
}

#[test]
#[ignore = "writes 3 GB"]
fn memory_stays_small_for_a_gigabyte() {
    let peak = memory_of_import(1024);
    println!("peak: {peak} MB");
    assert!(peak < 100, "{peak} MB");
}
