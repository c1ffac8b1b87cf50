//! Import of what is damaged, hostile or none: the error names it, and the store stays as it was.

use std::fs;
use std::path::{Path, PathBuf};

use creel::image::oci::{Digest, Target};
use images::place::{Place, layers};
use images::{CONFIG, INDEX, Layer, Layout, MANIFEST, TAR, Tar, gzip, layout};
use serde_json::{Value, json};

#[path = "images/mod.rs"]
mod images;

#[test]
fn what_is_no_archive() {
    let place = Place::new();
    place.refused(&place.at("没有.tar"), "image.source", &["没有.tar", "does not exist"]);
    place.refused(&place.write("empty.tar", b""), "image.no_archive", &["empty"]);
    place.refused(&place.write("zeros.tar", &[0; 10240]), "image.no_archive", &["empty"]);
    place.refused(
        &place.write("text.tar", &b"hello world, this is text\n".repeat(100)),
        "image.no_archive",
        &["no tar"],
    );
    place.refused(&place.write("short.tar", b"hi"), "image.source", &["cut off"]);
    place.refused(&place.write("a.tar.xz", b"\xfd7zXZ\0abc"), "image.compression", &["xz"]);
    place.refused(&place.write("a.tar.bz2", b"BZh91AY&SY"), "image.compression", &["bzip2"]);
    fs::create_dir(place.at("dir")).unwrap();
    place.refused(&place.at("dir"), "image.no_archive", &["index.json"]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let err = place.import(&place.at("fifo")).unwrap_err();
    assert!(err.to_string().contains("FIFO"), "{err}");
}

#[test]
fn an_archive_that_is_cut_off_anywhere() {
    let place = Place::new();
    let layout = layout(&place.at("l"), "data:v1", &layers());
    let whole = layout.tar(true);
    let mut ends: Vec<usize> = (100..whole.len() - 1024).step_by(487).collect();
    ends.push(whole.len() - 1025);
    let path = place.at("cut.tar");
    let codes: Vec<_> = ends
        .iter()
        .map(|&end| {
            fs::write(&path, &whole[..end]).unwrap();
            let err = place.import(&path).expect_err("it is not whole");
            assert!(!err.is_host_fault(), "{end}: {err}");
            assert!(err.to_string().contains("cut"), "{end}: {err}");
            err.code()
        })
        .collect();
    assert!(codes.iter().all(|code| *code == "image.source"), "{codes:?}");
    assert!(place.store.list().unwrap().is_empty());
    assert_eq!(fs::read_dir(place.store.path().join("tmp")).unwrap().count(), 0);
    let gz = gzip(&whole);
    for end in [5, gz.len() / 2, gz.len() - 1] {
        place.refused(&place.write("cut.tar.gz", &gz[..end]), "image.source", &["cut"]);
    }
}

/// Nobody says what digest a plain archive has to have: that it is whole shows only in its end.
#[test]
fn a_root_file_system_that_is_cut_off_between_two_entries() {
    let place = Place::new();
    let tar = Tar::new().dir("usr/", 0o755).file("usr/数据.csv", "年,额\n").file("usr/b", "b").end();
    place.refused(&place.write("cut.tar", &tar[..512 * 3]), "image.source", &["no end mark", "cut off"]);
    place.import(&place.write("whole.tar", &tar)).unwrap();
}

/// A layout with one image, changed by the test before its index is written.
fn broken(place: &Place, change: impl FnOnce(&mut Value, &mut Value)) -> PathBuf {
    let mut layout = Layout::new(&place.at("broken"));
    let layers = layers();
    let here = Target::here();
    let diff_ids: Vec<_> = layers.iter().map(|l| l.diff_id).collect();
    let mut config = json!({
        "architecture": here.architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let parts: Vec<Value> = layers.iter().map(|l| layout.descriptor(&l.media, &l.blob)).collect();
    let mut manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": parts});
    change(&mut manifest, &mut config);
    if manifest.get("config").is_none() {
        manifest["config"] = layout.descriptor(CONFIG, config.to_string().as_bytes());
    }
    let entry = layout.descriptor(MANIFEST, manifest.to_string().as_bytes());
    layout.add(entry, Some("b:v1"));
    layout.dir
}

#[test]
fn documents_that_do_not_hold_together() {
    type Change = fn(&mut Value, &mut Value);
    let cases: [(&str, &[&str], Change); 16] = [
        ("image.wrong_diff_id", &["layer 2 of 2"], |_, c| {
            c["rootfs"]["diff_ids"][1] = json!(Digest::of(b"other"));
        }),
        ("image.document", &["1 diff_ids", "2 layers"], |_, c| {
            c["rootfs"]["diff_ids"].as_array_mut().unwrap().pop();
        }),
        ("image.document", &["0 diff_ids"], |_, c| c["rootfs"] = Value::Null),
        ("image.wrong_size", &["layer 1 of 2"], |m, _| m["layers"][0]["size"] = json!(1)),
        ("image.wrong_size", &["layer 1 of 2"], |m, _| m["layers"][0]["size"] = json!(1_u64 << 40)),
        ("image.document", &["sha256"], |m, _| {
            m["layers"][0]["digest"] = json!(format!("sha256:../../{}", "a".repeat(58)));
        }),
        ("image.document", &["../x"], |m, _| m["layers"][0]["digest"] = json!("sha512:../x")),
        ("image.entry_refused", &["layer 2", "not there"], |m, _| {
            m["layers"][1]["digest"] = json!(Digest::of(b"no"))
        }),
        ("image.layer_refused", &["foreign"], |m, _| {
            m["layers"][1]["mediaType"] =
                json!("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip");
        }),
        ("image.layer_refused", &["encrypted"], |m, _| {
            m["layers"][1]["mediaType"] = json!("application/vnd.oci.image.layer.v1.tar+gzip+encrypted");
        }),
        ("image.layer_refused", &["gzip or zstd"], |m, _| {
            m["layers"][0]["mediaType"] = json!("application/x-\u{1b}[2J");
        }),
        ("image.document", &["manifest and an index"], |m, _| m["manifests"] = json!([])),
        ("image.platform", &["linux/riscv128"], |_, c| c["architecture"] = json!("riscv128")),
        ("image.platform", &["windows/"], |_, c| c["os"] = json!("windows")),
        ("image.document", &["type"], |_, c| c["rootfs"]["type"] = json!("other")),
        ("image.document", &[""], |m, _| m["layers"] = json!("none")),
    ];
    for (code, words, change) in cases {
        let place = Place::new();
        let dir = broken(&place, change);
        place.refused(&dir, code, words);
    }
    let place = Place::new();
    let dir = broken(&place, |m, _| {
        m["config"] = json!({"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": Digest::of(b"{}"), "size": 2});
    });
    fs::write(dir.join("blobs/sha256").join(Digest::of(b"{}").hex()), "{}").unwrap();
    place.refused(&dir, "image.document", &["no image"]);
}

#[test]
fn a_blob_that_was_changed_is_named() {
    let place = Place::new();
    let layers = layers();
    let layout = layout(&place.at("l"), "data:v1", &layers);
    let path = layout.path(&Digest::of(&layers[1].blob));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    place.refused(&layout.dir, "image.wrong_digest", &["layer 2 of 2"]);
    place.refused(&place.write("l.tar", &layout.tar(true)), "image.wrong_digest", &["blobs/sha256/"]);
    // A layer that is damaged inside, with digests that hold.
    let mut half = layers.clone();
    let middle = half[0].blob.len() / 2;
    half[0].blob.truncate(middle);
    let layout = images::layout(&place.at("half"), "data:v1", &half);
    place.refused(&layout.dir, "image.layer_compression", &["layer 1 of 2"]);
}

#[test]
fn blobs_that_are_no_files() {
    let place = Place::new();
    let layers = layers();
    let layout = layout(&place.at("l"), "data:v1", &layers);
    let path = layout.path(&Digest::of(&layers[0].blob));
    let kept = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(place.at("elsewhere"), &kept).unwrap();
    std::os::unix::fs::symlink(place.at("elsewhere"), &path).unwrap();
    place.refused(&layout.dir, "image.entry_refused", &["layer 1 of 2", "symlink"]);
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let err = place.import(&layout.dir).unwrap_err();
    assert!(err.to_string().contains("not a regular file"), "{err}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    place.refused(&layout.dir, "image.entry_refused", &["not a regular file"]);
    // The directory of blobs as a link to somewhere.
    fs::rename(layout.dir.join("blobs"), place.at("blobs")).unwrap();
    std::os::unix::fs::symlink("../blobs", layout.dir.join("blobs")).unwrap();
    place.refused(&layout.dir, "image.entry_refused", &["symlink"]);
    fs::rename(layout.dir.join("index.json"), place.at("index.json")).unwrap();
    std::os::unix::fs::symlink("../index.json", layout.dir.join("index.json")).unwrap();
    place.refused(&layout.dir, "image.entry_refused", &["index.json", "symlink"]);
}

#[test]
fn entries_of_an_archive_that_are_refused() {
    let place = Place::new();
    let hex = "a".repeat(64);
    let blob = format!("blobs/sha256/{hex}");
    let start = || Tar::new().file("oci-layout", "{}");
    let two = start().file("index.json", "{}").file("index.json", "{}");
    for (tar, word) in [
        (start().symlink(&blob, "/etc/shadow"), "link"),
        (start().hardlink(&blob, "oci-layout"), "link"),
        (start().fifo(&blob), "neither a file"),
        (start().file("../x", ""), "leads out"),
        (start().file("/x", ""), "leads out"),
        (start().file("a/../../x", ""), "leads out"),
        (start().symlink("x/layer.tar", "../../../etc/shadow"), "outside"),
        (start().symlink("x/layer.tar", "/etc/shadow"), "outside"),
        (start().symlink("manifest.json", "x"), "link"),
        (start().file(&format!("x/{}", "长".repeat(200)), ""), "512"),
        (two, "twice"),
        (start().file("x", "1").file("x", "2"), "twice"),
    ] {
        place.refused(&place.write("e.tar", &tar.end()), "image.entry_refused", &["entry", word]);
    }
    let wrong = start().file(&blob, "content");
    place.refused(&place.write("w.tar", &wrong.end()), "image.wrong_digest", &[&hex]);
    // What nobody asks for is passed over.
    let odd = start()
        .file("blobs/sha256/../sha256/x", "")
        .file("blobs/sha512/x", "")
        .file("index.json", r#"{"schemaVersion":2,"manifests":[]}"#);
    place.refused(&place.write("o.tar", &odd.end()), "image.not_found", &["no image"]);
    for (config, layer) in
        [("../../etc/passwd", "x"), ("config.json", "/etc/shadow"), ("config.json", "missing")]
    {
        let manifest = json!([{"Config": config, "RepoTags": ["a:v1"], "Layers": [layer]}]).to_string();
        let tar = Tar::new().file("manifest.json", manifest).file("config.json", "{}").end();
        let path = place.write("m.tar", &tar);
        let code = if layer == "missing" { "image.blob_missing" } else { "image.entry_refused" };
        place.refused(&path, code, &["manifest.json"]);
    }
    let manifest = json!([{"Config": format!("{hex}.json"), "Layers": []}]).to_string();
    let tar = Tar::new().file("manifest.json", manifest).file(&format!("{hex}.json"), "{}").end();
    place.refused(&place.write("c.tar", &tar), "image.wrong_digest", &["configuration"]);
}

#[test]
fn an_index_that_names_itself_ends() {
    // A real loop needs a digest that contains itself; the archive can only claim one.
    let place = Place::new();
    let mut layout = Layout::new(&place.at("l"));
    let digest = Digest::of(b"loop");
    let entry = json!({"mediaType": INDEX, "digest": digest, "size": 0});
    let text = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    fs::write(layout.path(&digest), &text).unwrap();
    layout.add(json!({"mediaType": INDEX, "digest": digest, "size": text.len()}), Some("x:v1"));
    place.refused(&layout.dir, "image.wrong_digest", &[&digest.hex()]);
}

#[test]
fn documents_without_measure() {
    let place = Place::new();
    let mut layout = Layout::new(&place.at("l"));
    let huge = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 30).unwrap();
    let digest = Digest::of(b"huge");
    huge(&layout.path(&digest));
    layout.add(json!({"mediaType": MANIFEST, "digest": digest, "size": 1 << 30}), Some("x:v1"));
    let err = place.import(&layout.dir).unwrap_err();
    assert_eq!(err.code(), "image.document", "{err}");
    // One whose size is a lie is read no further than that size.
    layout.entries[0]["size"] = json!(100);
    layout.write();
    assert_eq!(place.import(&layout.dir).unwrap_err().code(), "image.wrong_size");
    fs::remove_file(layout.path(&digest)).unwrap();
    huge(&layout.dir.join("index.json"));
    let err = place.import(&layout.dir).unwrap_err();
    assert_eq!(
        (err.code(), err.to_string()),
        ("image.document", "index.json is larger than 4194304 bytes".to_owned())
    );
    fs::remove_file(layout.dir.join("index.json")).unwrap();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    fs::write(layout.dir.join("index.json"), &deep).unwrap();
    place.refused(&layout.dir, "image.document", &["index.json"]);
    layout.entries.clear();
    // Nested in what is asked for, and in what nobody asks for.
    for (text, word) in
        [(format!(r#"{{"layers":{deep}}}"#), "manifest"), (format!(r#"{{"x":{deep}}}"#), "manifest")]
    {
        let manifest = layout.descriptor(MANIFEST, text.as_bytes());
        layout.entries.clear();
        layout.add(manifest, Some("x:v1"));
        place.refused(&layout.dir, "image.document", &[word]);
    }
    // In an archive: the size in the header counts.
    let big = vec![b' '; (4 << 20) + 1];
    let tar = Tar::new().file("manifest.json", &big).end();
    place.refused(&place.write("big.tar", &tar), "image.document", &["manifest.json", "4194304"]);
    let tar = Tar::new().file("manifest.json", &big[1..]).end();
    place.refused(&place.write("fits.tar", &tar), "image.document", &["not valid"]);
}

#[test]
fn hostile_layers_are_refused_by_name() {
    let place = Place::new();
    let outside = place.at("outside");
    fs::create_dir(&outside).unwrap();
    for tar in [
        Tar::new().file("../../../outside/x", "x"),
        Tar::new().file(outside.join("x").to_str().unwrap(), "x"),
        Tar::new().symlink("a", outside.to_str().unwrap()).file("a/x", "x"),
        Tar::new().hardlink("a", "/etc/shadow"),
    ] {
        let layout = layout(&place.at("l"), "evil:v1", &[Layer::of(TAR, &tar.end())]);
        let result = place.import(&layout.dir);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        if let Err(err) = result {
            assert!(err.code().starts_with("image.layer_") && !err.is_host_fault(), "{err}");
            assert!(place.store.list().unwrap().is_empty());
            assert_eq!(fs::read_dir(place.store.path().join("tmp")).unwrap().count(), 0);
        }
        fs::remove_dir_all(layout.dir).unwrap();
    }
}
