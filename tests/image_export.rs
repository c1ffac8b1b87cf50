//! Export: a layout that other tools take, the same bytes each time, nothing half written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Ctx, Ran, finish, spawn};
use creel::image::oci::Digest;
use images::{GZIP, Layer, Layout, TAR, Tar, ZSTD, layout, tree};
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

fn tool(ctx: &Ctx, program: &str, args: &[&str]) -> Ran {
    let mut command = Command::new(program);
    command.args(args).current_dir(ctx.cwd()).stdin(Stdio::null());
    finish(spawn(&mut command))
}

fn layers(media: &str) -> Vec<Layer> {
    let base = Tar::new().dir("usr/", 0o755).file("usr/数据.csv", "年,额\n").file("gone", "x");
    let upper = Tar::new().file(".wh.gone", "").file("usr/b", "b".repeat(5000)).hardlink("usr/c", "usr/b");
    [base, upper].into_iter().map(|tar| Layer::of(media, &tar.end())).collect()
}

/// A context with the image `data:v1` of these layers; None when the tests don't run as root.
fn with_image(media: &str) -> Option<(Ctx, PathBuf)> {
    let ctx = Ctx::new()?;
    let layout = layout(&ctx.cwd().join("来源"), "data:v1", &layers(media));
    image(&ctx, &["import", layout.dir.to_str().unwrap()]).expect_code(0);
    Some((ctx, layout.dir))
}

fn index(dir: &Path) -> Vec<Value> {
    let index: Value = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
    index["manifests"].as_array().unwrap().clone()
}

#[test]
fn what_comes_in_goes_out_with_the_same_digest() {
    for media in [TAR, GZIP, ZSTD] {
        let Some((ctx, source)) = with_image(media) else { return };
        let out = image(&ctx, &["export", "data:v1", "目录"]).expect_code(0).out();
        assert!(out.starts_with("v1  ") && out.trim_end().ends_with("目录"), "{out}");
        let dir = ctx.cwd().join("目录");
        assert_eq!(index(&dir)[0]["digest"], index(&source)[0]["digest"]);
        assert_eq!(tree(&dir.join("blobs")), tree(&source.join("blobs")));
        image(&ctx, &["export", "data:v1", "a.tar"]).expect_code(0);
        image(&ctx, &["export", "data:v1", "b.tar"]).expect_code(0);
        let bytes = fs::read(ctx.cwd().join("a.tar")).unwrap();
        assert!(bytes == fs::read(ctx.cwd().join("b.tar")).unwrap(), "the same image gives the same tar");
        assert!(
            bytes == image(&ctx, &["export", "data:v1", "-"]).expect_code(0).stdout,
            "and the same stream"
        );
        // Back again, with its name; nothing is left beside what was asked for.
        image(&ctx, &["rm", "data:v1"]).expect_code(0);
        image(&ctx, &["import", "b.tar"]).expect_code(0);
        assert!(image(&ctx, &["ls"]).out().contains("data:v1"));
        let mut left: Vec<_> = fs::read_dir(ctx.cwd()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.tar", "b.tar", "来源", "目录"]);
    }
}

#[test]
fn skopeo_and_umoci_take_it() {
    let Some((ctx, _)) = with_image(ZSTD) else { return };
    image(&ctx, &["export", "data:v1", "layout"]).expect_code(0);
    image(&ctx, &["export", "data:v1", "layout", "--tag", "gz", "--compress", "gzip"]).expect_code(0);
    image(&ctx, &["export", "data:v1", "layout", "--tag", "plain", "--compress", "none"]).expect_code(0);
    image(&ctx, &["export", "data:v1", "a.tar", "--compress", "gzip"]).expect_code(0);
    for source in
        ["oci:layout:v1", "oci:layout:gz", "oci:layout:plain", "oci-archive:a.tar", "oci-archive:a.tar:v1"]
    {
        let ran = tool(&ctx, "skopeo", &["inspect", source]).expect_code(0);
        let about: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(
            (&about["Os"], about["Layers"].as_array().unwrap().len()),
            (&json!("linux"), 2),
            "{source}"
        );
    }
    // skopeo reads each blob and checks its digest when it copies.
    tool(&ctx, "skopeo", &["copy", "--insecure-policy", "oci-archive:a.tar:v1", "oci:copied:v1"])
        .expect_code(0);
    for tag in ["gz", "plain"] {
        let (source, target) = (format!("layout:{tag}"), format!("unpacked-{tag}"));
        tool(&ctx, "umoci", &["unpack", "--image", &source, &target]).expect_code(0);
        let paths: Vec<_> =
            tree(&ctx.cwd().join(&target).join("rootfs")).into_iter().map(|(p, _)| p).collect();
        assert_eq!(paths, ["usr/", "usr/b", "usr/c", "usr/数据.csv"], "{tag}");
    }
    // And what they write comes in: umoci's layout has tags only.
    image(&ctx, &["import", "copied", "--name", "again:v1"]).expect_code(0);
    tool(&ctx, "umoci", &["tag", "--image", "layout:gz", "umoci"]).expect_code(0);
    image(&ctx, &["import", "layout", "--select", "umoci", "--name", "umoci:v1"]).expect_code(0);
    tool(
        &ctx,
        "skopeo",
        &["copy", "--insecure-policy", "oci:copied:v1", "docker-archive:docker.tar:saved:v2"],
    )
    .expect_code(0);
    image(&ctx, &["import", "docker.tar"]).expect_code(0);
    tool(&ctx, "skopeo", &["copy", "--insecure-policy", "--format", "v2s2", "oci:copied:v1", "dir:v2s2"])
        .expect_code(0);
    let listed = image(&ctx, &["ls"]).out();
    for name in ["again:v1", "umoci:v1", "saved:v2"] {
        assert!(listed.contains(name), "{name} is not in {listed}");
    }
    images::assert_store_valid(&ctx.state().join("images"));
}

#[test]
fn another_compression_keeps_the_layers_content() {
    let Some((ctx, source)) = with_image(ZSTD) else { return };
    let content: Vec<Digest> = layers(TAR).iter().map(|l| l.diff_id).collect();
    for (how, media) in [("gzip", GZIP), ("none", TAR), ("zstd", ZSTD), ("as-is", ZSTD)] {
        image(&ctx, &["export", "data:v1", how, "--compress", how]).expect_code(0);
        let dir = ctx.cwd().join(how);
        let entry = &index(&dir)[0];
        let same = entry["digest"] == index(&source)[0]["digest"];
        assert_eq!(same, media == ZSTD, "{how}");
        let blob =
            |digest: &Value| fs::read(dir.join("blobs/sha256").join(&digest.as_str().unwrap()[7..])).unwrap();
        let manifest: Value = serde_json::from_slice(&blob(&entry["digest"])).unwrap();
        for (layer, diff_id) in manifest["layers"].as_array().unwrap().iter().zip(&content) {
            assert_eq!(layer["mediaType"], media, "{how}");
            let bytes = blob(&layer["digest"]);
            let tar = match media {
                TAR => bytes,
                GZIP => {
                    let mut tar = Vec::new();
                    std::io::copy(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut tar).unwrap();
                    tar
                }
                _ => zstd::decode_all(&bytes[..]).unwrap(),
            };
            assert_eq!(Digest::of(&tar), *diff_id, "{how}");
        }
    }
    // What was written for the way out is not kept in the store.
    assert_eq!(image(&ctx, &["gc"]).out(), "freed 0 B\n");
}

#[test]
fn an_image_of_dockers_types_becomes_an_oci_one() {
    let Some(ctx) = Ctx::new() else { return };
    let mut layout = Layout::new(&ctx.cwd().join("docker"));
    let layers = layers(GZIP);
    let plain = layout.image(&layers, json!({}));
    let path = layout.dir.join("blobs/sha256").join(&plain["digest"].as_str().unwrap()[7..]);
    let mut manifest: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    manifest["mediaType"] = json!("application/vnd.docker.distribution.manifest.v2+json");
    manifest["config"]["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
    for layer in manifest["layers"].as_array_mut().unwrap() {
        layer["mediaType"] = json!("application/vnd.docker.image.rootfs.diff.tar.gzip");
    }
    let media = manifest["mediaType"].as_str().unwrap().to_owned();
    let entry = layout.descriptor(&media, manifest.to_string().as_bytes());
    layout.add(entry, Some("d:v1"));
    image(&ctx, &["import", "docker"]).expect_code(0);
    image(&ctx, &["export", "d:v1", "oci"]).expect_code(0);
    assert_eq!(index(&ctx.cwd().join("oci"))[0]["mediaType"], images::MANIFEST);
    tool(&ctx, "skopeo", &["inspect", "oci:oci:v1"]).expect_code(0);
    tool(&ctx, "umoci", &["unpack", "--image", "oci:v1", "unpacked"]).expect_code(0);
}

#[test]
fn a_layout_that_is_there_is_added_to() {
    let Some((ctx, _)) = with_image(GZIP) else { return };
    let tags = |dir: &str| {
        let entries = index(&ctx.cwd().join(dir));
        let tag =
            |e: &Value| e["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap().to_owned();
        entries.iter().map(tag).collect::<Vec<_>>()
    };
    tool(&ctx, "umoci", &["init", "--layout", "theirs"]).expect_code(0);
    tool(&ctx, "umoci", &["new", "--image", "theirs:empty"]).expect_code(0);
    for _ in 0..2 {
        image(&ctx, &["export", "data:v1", "theirs"]).expect_code(0);
        assert_eq!(tags("theirs"), ["empty", "v1"]);
    }
    image(&ctx, &["export", "data:v1", "theirs", "--tag", "v2"]).expect_code(0);
    assert_eq!(tags("theirs"), ["empty", "v1", "v2"]);
    tool(&ctx, "skopeo", &["inspect", "oci:theirs:empty"]).expect_code(0);
    // An empty directory will do.
    fs::create_dir(ctx.cwd().join("空")).unwrap();
    image(&ctx, &["export", "data:v1", "空"]).expect_code(0);
    assert_eq!(tags("空"), ["v1"]);
}

#[test]
fn what_is_in_the_way_stays() {
    let Some((ctx, _)) = with_image(GZIP) else { return };
    ctx.write("满/文件", "mine");
    ctx.write("old.tar", "old");
    let before = tree(&ctx.cwd());
    for (dest, code, word) in [
        ("满", 126, "neither empty nor an OCI layout"),
        ("old.tar/x", 125, "not a directory"),
        ("none/there/x.tar", 126, "'none/there' for the export does not exist"),
        ("none/there/x", 126, "make it first"),
        ("x.tar.gz", 126, "--compress gzip"),
        ("数.tgz", 126, "--compress gzip"),
        ("x.tar.zst", 126, "--compress zstd"),
        ("x.TAR", 126, "small letters"),
        ("/dev/stdout", 126, "standard output is -"),
        ("", 126, "empty string"),
    ] {
        let ran = image(&ctx, &["export", "data:v1", dest]).expect_code(code);
        assert!(ran.err().contains(word) && ran.err().lines().count() == 1, "{dest}: {}", ran.err());
    }
    for args in [["--tag", "a b"], ["--tag", "../x"], ["--tag", ""], ["--compress", ""]] {
        let ran = image(&ctx, &[&["export", "data:v1", "x"], &args[..]].concat()).expect_code(126);
        assert!(ran.err().lines().count() == 1, "{}", ran.err());
    }
    assert_eq!(tree(&ctx.cwd()), before);
    // A disk that is full: the old file is what it was.
    let script = "mount -t tmpfs -o size=64k tmpfs 满 && echo old > 满/a.tar && \"$0\" image export data:v1 满/a.tar; \
                  echo $?; cat 满/a.tar; ls -A 满; \"$0\" image export data:v1 满/dir; echo $?; ls -A 满";
    let mut big = Tar::new();
    big = big.file(
        "random",
        (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>(),
    );
    let layout = layout(&ctx.cwd().join("big"), "data:v1", &[Layer::tar(big)]);
    image(&ctx, &["import", layout.dir.to_str().unwrap()]).expect_code(0);
    let mut command = ctx.within(Command::new("unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_creel")]);
    let ran = finish(spawn(&mut command)).expect_code(0);
    assert_eq!(ran.out(), "125\nold\na.tar\n125\na.tar\n", "{}", ran.err());
    assert!(ran.err().contains("no space left"), "{}", ran.err());
}

#[test]
fn a_blob_of_which_one_byte_is_another_does_not_go_out() {
    let Some((ctx, _)) = with_image(TAR) else { return };
    let store = ctx.state().join("images/blobs/sha256");
    let before = tree(&ctx.cwd());
    for entry in fs::read_dir(&store).unwrap() {
        let path = entry.unwrap().path();
        let sound = fs::read(&path).unwrap();
        let mut damaged = sound.clone();
        // Of a layer it is a byte of a file, of a document one that keeps it readable JSON.
        let at = sound.windows(2).position(|w| w == b"bb" || w == b"18").unwrap_or(600);
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let hex = path.file_name().unwrap().to_str().unwrap().to_owned();
        for args in [&["x.tar"][..], &["目录"], &["y", "--compress", "gzip"], &["-"]] {
            let ran = image(&ctx, &[&["export", "data:v1"], args].concat()).expect_code(125);
            let err = ran.err();
            assert!(
                err.contains("image data:v1 is damaged")
                    && err.contains(&hex)
                    && err.contains("creel image rm"),
                "{err}"
            );
            assert_eq!(tree(&ctx.cwd()), before, "{args:?}");
        }
        fs::write(&path, &sound).unwrap();
    }
    image(&ctx, &["export", "data:v1", "x.tar"]).expect_code(0);
}
