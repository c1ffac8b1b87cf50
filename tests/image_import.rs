//! Import: every form of archive, and the names that images get.

use std::fs;

use creel::image::import::{Options, import};
use creel::image::oci::{Digest, Target};
use images::place::{Place, assert_whole, layers};
use images::{INDEX, Layer, Layout, Tar, gzip, layout, tree, zstd};
use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "images/mod.rs"]
mod images;

#[test]
fn a_layout_as_a_directory_and_as_a_tar_in_any_order_and_compression() {
    let place = Place::new();
    let layout = layout(&place.at("布局"), "data:v1", &layers());
    let mut found = place.import(&layout.dir).unwrap();
    assert_eq!(found.len(), 1);
    let first = found.remove(0);
    assert_eq!(first.names, ["data:v1"]);
    assert_whole(&place, &first);
    for (name, bytes) in [
        ("a.tar", layout.tar(false)),
        ("b.tar", layout.tar(true)),
        ("c.tar.gz", gzip(&layout.tar(true))),
        ("d.tar.zst", zstd(&layout.tar(true))),
    ] {
        let other = Place::new();
        let path = other.write(name, &bytes);
        assert_eq!(other.import(&path).unwrap(), std::slice::from_ref(&first), "{name}");
        assert_whole(&other, &first);
    }
    // Once more: nothing new, and no error.
    let before = tree(place.store.path());
    assert_eq!(place.import(&layout.dir).unwrap(), [first]);
    assert_eq!(tree(place.store.path()), before);
}

#[test]
fn names_come_from_the_option_the_annotation_or_the_file() {
    let place = Place::new();
    let layer = [Layer::tar(Tar::new().file("a", "1"))];
    let tar = |name: Option<&str>, full: Option<&str>| {
        let dir = TempDir::new().unwrap();
        let mut layout = Layout::new(dir.path());
        let mut entry = layout.image(&layer, json!({}));
        if let Some(full) = full {
            entry["annotations"] = json!({"io.containerd.image.name": full});
            if let Some(name) = name {
                entry["annotations"]["org.opencontainers.image.ref.name"] = json!(name);
            }
            layout.add(entry, None);
        } else {
            layout.add(entry, name);
        }
        layout.tar(false)
    };
    for (file, name, full, want) in [
        ("x.tar", Some("python:3.11"), None, "python:3.11"),
        ("python.oci.tar", Some("3.11"), None, "python:3.11"),
        ("python.tar", None, None, "python:latest"),
        ("python.tar", Some("v2"), Some("docker.io/library/p:v2"), "docker.io/library/p:v2"),
        ("y.tar", Some("r.example:5000/a/b:c"), None, "r.example:5000/a/b:c"),
    ] {
        let path = place.write(file, &tar(name, full));
        assert_eq!(place.import(&path).unwrap()[0].names, [want]);
        let options = Options { name: Some("given:v9".parse().unwrap()), ..Options::default() };
        assert_eq!(import(&place.store, &path, &options).unwrap()[0].names, ["given:v9"]);
    }
    let chinese = place.write("镜像.tar", &tar(None, None));
    place.refused(&chinese, "image.name", &["镜像", "--name"]);
    let tag_only = place.write("镜像二.tar", &tar(Some("v1"), None));
    place.refused(&tag_only, "image.name", &["--name"]);
    let bad = place.write("z.tar", &tar(Some("../../x:y"), None));
    place.refused(&bad, "image.name", &["../../x:y"]);
}

#[test]
fn several_images_and_one_of_them() {
    let place = Place::new();
    let mut layout = Layout::new(&place.at("l"));
    for n in ["a", "b"] {
        let image = layout.image(&[Layer::tar(Tar::new().file(n, n))], json!({}));
        layout.add(image, Some(&format!("{n}:v1")));
    }
    let select = |text: &str| Options { select: Some(text.to_owned()), ..Options::default() };
    place.refused_with(&layout.dir, &select("c"), "image.not_found", &["'c'", "a:v1", "b:v1"]);
    let named = Options { name: Some("n".parse().unwrap()), ..Options::default() };
    place.refused_with(&layout.dir, &named, "image.ambiguous", &["a:v1", "--select"]);
    let one =
        import(&place.store, &layout.dir, &Options { name: named.name.clone(), ..select("b:v1") }).unwrap();
    assert_eq!(one[0].names, ["n:latest"]);
    let digest = one[0].manifest.hex();
    assert_eq!(import(&place.store, &layout.dir, &select(&digest[..8])).unwrap()[0].names, ["b:v1"]);
    let both: Vec<_> = place.import(&layout.dir).unwrap().into_iter().flat_map(|i| i.names).collect();
    assert_eq!(both, ["a:v1", "b:v1"]);
}

/// What `docker save` wrote before version 25: a directory for each layer, one of them a link to another image's.
fn docker_save(tags: Option<&[&str]>) -> (Vec<u8>, Digest) {
    let base = Tar::new().dir("usr/", 0o755).file("usr/数据.csv", "年,额\n").file("gone", "x").end();
    let upper = Tar::new().file(".wh.gone", "").file("usr/b", "b").hardlink("usr/c", "usr/b").end();
    let here = Target::here();
    let config = json!({
        "architecture": here.architecture, "os": "linux", "config": {"Cmd": ["sh"], "ExposedPorts": null},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&base), Digest::of(&upper)]},
    })
    .to_string();
    let digest = Digest::of(config.as_bytes());
    let (one, two, three) = ("1".repeat(64), "2".repeat(64), "3".repeat(64));
    let manifest = json!([{
        "Config": format!("{}.json", digest.hex()), "RepoTags": tags,
        "Layers": [format!("{two}/layer.tar"), format!("{three}/layer.tar")],
    }]);
    let tar = Tar::new()
        .dir(&format!("{one}/"), 0o755)
        .file(&format!("{one}/VERSION"), "1.0")
        .file(&format!("{one}/layer.tar"), &base)
        .symlink(&format!("{two}/layer.tar"), &format!("../{one}/layer.tar"))
        .file(&format!("{three}/layer.tar"), &upper)
        .file(&format!("{}.json", digest.hex()), config)
        .file("manifest.json", manifest.to_string())
        .file("repositories", "{}");
    (tar.end(), digest)
}

#[test]
fn an_old_docker_save() {
    let place = Place::new();
    let (tar, config) = docker_save(Some(&["data:v1", "r.example/data:v2"]));
    let path = place.write("saved.tar", &tar);
    let image = place.import(&path).unwrap().remove(0);
    assert_eq!(image.names, ["data:v1", "r.example/data:v2"]);
    assert_whole(&place, &image);
    assert_eq!(place.store.facts(&image.manifest).unwrap().config, config);
    // Without tags the file's name is taken; compressed it is the same image.
    let path = place.write("data.tar.gz", &gzip(&docker_save(None).0));
    let again = place.import(&path).unwrap().remove(0);
    assert_eq!((again.names, again.manifest), (vec!["data:latest".to_owned()], image.manifest));
    assert!(image.size > 0);
}

#[test]
fn an_archive_whose_first_entry_does_not_tell() {
    let place = Place::new();
    let layout = layout(&place.at("l"), "data:v1", &layers());
    let readme = Tar::new().file("读我.txt", "an image").0;
    let bytes = [readme.clone(), layout.tar(false)].concat();
    for (name, bytes) in [("a.tar", bytes.clone()), ("b.tar.zst", zstd(&bytes))] {
        let image = place.import(&place.write(name, &bytes)).unwrap().remove(0);
        assert_eq!(image.names, ["data:v1"]);
        assert_whole(&place, &image);
    }
    let bytes = [readme.clone(), docker_save(Some(&["data:v2"])).0].concat();
    assert_eq!(place.import(&place.write("c.tar", &bytes)).unwrap()[0].names, ["data:v2"]);
    // A root file system may have such a file too.
    let root = Tar::new().dir("etc/", 0o755).file("etc/passwd", "").file("manifest.json", "[]").end();
    let image = place.import(&place.write("root.tar", &[readme, root].concat())).unwrap().remove(0);
    assert_eq!(image.names, ["root:latest"]);
    assert!(place.root(&image).join("manifest.json").is_file());
}

#[test]
fn a_new_docker_save_is_a_layout_with_dockers_names() {
    let place = Place::new();
    let layout = layout(&place.at("l"), "v1", &layers());
    let manifest = &layout.entries[0]["digest"].as_str().unwrap()[7..];
    let manifest: Value =
        serde_json::from_slice(&fs::read(layout.dir.join("blobs/sha256").join(manifest)).unwrap()).unwrap();
    let config = format!("blobs/sha256/{}", &manifest["config"]["digest"].as_str().unwrap()[7..]);
    let docker = json!([{"Config": config, "RepoTags": ["data:v1"], "Layers": []}]).to_string();
    let tar = layout.tar(true);
    let tar = Tar(tar[..tar.len() - 1024].to_vec()).file("manifest.json", docker).end();
    let image = place.import(&place.write("x.tar", &tar)).unwrap().remove(0);
    assert_eq!(image.names, ["data:v1"]);
    assert_whole(&place, &image);
}

#[test]
fn the_tar_of_a_root_file_system() {
    let place = Place::new();
    let tar = Tar::new().dir("./", 0o755).dir("./usr/", 0o755).file("./usr/数据.csv", "1").end();
    let plain = place.import(&place.write("root.tar", &tar)).unwrap().remove(0);
    assert_eq!(plain.names, ["root:latest"]);
    for (name, bytes) in [("root.tgz", gzip(&tar)), ("root.tar.zst", zstd(&tar))] {
        let image = place.import(&place.write(name, &bytes)).unwrap().remove(0);
        assert_ne!(image.manifest, plain.manifest);
        assert_eq!(place.rootfs(&image), place.rootfs(&plain));
    }
    assert_eq!(fs::read_dir(place.store.path().join("layers")).unwrap().count(), 1);
    // A directory of that name is no archive.
    let tar = Tar::new().dir("blobs/", 0o755).dir("etc/", 0o755).end();
    place.refused(&place.write("blobs.tar", &tar), "image.not_found", &["no image"]);
    let tar = Tar::new().dir("index.json/", 0o755).file("a", "").end();
    place.import(&place.write("dir.tar", &tar)).unwrap();
}

#[test]
fn a_multi_platform_index_gives_this_machines_image() {
    let place = Place::new();
    let mut layout = Layout::new(&place.at("l"));
    let here = Target::here();
    let platform = |mut entry: Value, os: &str, architecture: &str| {
        entry["platform"] = json!({"os": os, "architecture": architecture});
        entry
    };
    let other = layout.image(&[Layer::tar(Tar::new().file("other", ""))], json!({"User": "other"}));
    let ours = layout.image(&layers(), json!({}));
    let attestation = layout.image(&[Layer::tar(Tar::new().file("attestation", ""))], json!({"User": "x"}));
    let entries = json!([
        platform(attestation.clone(), "unknown", "unknown"),
        platform(other.clone(), "linux", "riscv128"),
        platform(other.clone(), "windows", here.architecture),
        platform(ours.clone(), "linux", here.architecture),
    ]);
    let index =
        |entries: &Value| json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    let mut nested = layout.descriptor(INDEX, index(&entries).as_bytes());
    layout.add(nested.clone(), Some("multi:v1"));
    let image = place.import(&layout.dir).unwrap().remove(0);
    assert_whole(&place, &image);
    // Docker's name for a list; three lists in each other.
    nested["mediaType"] = json!("application/vnd.docker.distribution.manifest.list.v2+json");
    for _ in 0..2 {
        nested = layout.descriptor(INDEX, index(&json!([nested])).as_bytes());
    }
    layout.entries.clear();
    layout.add(nested.clone(), Some("deep:v1"));
    assert_eq!(place.import(&layout.dir).unwrap()[0].manifest, image.manifest);
    // The platforms directly in the index of the layout.
    layout.entries = entries.as_array().unwrap().clone();
    layout.write();
    assert_eq!(place.import(&layout.dir).unwrap()[0].names, ["l:latest"]);
    // One list more is too many.
    layout.entries.clear();
    let deeper = layout.descriptor(INDEX, index(&json!([nested])).as_bytes());
    layout.add(deeper, Some("x:v1"));
    place.refused(&layout.dir, "image.index_refused", &["4 deep"]);
    layout.entries.clear();
    let none = json!([platform(other, "linux", "riscv128"), platform(attestation, "unknown", "unknown")]);
    let none = layout.descriptor(INDEX, index(&none).as_bytes());
    layout.add(none, Some("x:v1"));
    place.refused(&layout.dir, "image.platform", &["linux/riscv128", here.architecture]);
    layout.entries.clear();
    let many: Vec<Value> = (0..101).map(|_| ours.clone()).collect();
    let many = layout.descriptor(INDEX, index(&json!(many)).as_bytes());
    layout.add(many, Some("x:v1"));
    place.refused(&layout.dir, "image.index_refused", &["100"]);
    let artifact = layout.descriptor("application/vnd.example+json", b"{}");
    layout.entries.clear();
    layout.add(artifact, Some("x:v1"));
    place.refused(&layout.dir, "image.media_type", &["application/vnd.example+json"]);
}
