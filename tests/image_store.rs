//! The image store: what is named is whole, layers are shared, what is in use stays, and what nothing names goes.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use creel::image::import::{Options, import};
use creel::image::oci::{Digest, Reference};
use creel::image::store::{Expected, Store, StoreError};
use images::place::Place;
use images::{GZIP, Layer, Layout, TAR, Tar, ZSTD, assert_store_valid, layout, tree};
use serde_json::json;
use tempfile::TempDir;

#[path = "images/mod.rs"]
mod images;

fn names(store: &Store) -> Vec<String> {
    store.list().unwrap().into_iter().map(|i| i.name).collect()
}

#[test]
fn a_blob_that_is_not_what_was_promised_is_not_kept() {
    let place = Place::new();
    let before = tree(place.store.path());
    let work = place.store.begin().unwrap();
    let expect = |digest, size| Expected { digest, size, what: "层".to_owned() };
    let content = b"content".to_vec();
    let put = |expected, mut bytes: &[u8]| work.put_blob(expected, &mut bytes);
    let err = put(expect(Some(Digest::of(b"other")), None), &content).unwrap_err();
    assert_eq!(err.code(), "image.wrong_digest");
    assert!(err.to_string().contains("层") && err.to_string().contains(&Digest::of(&content).hex()), "{err}");
    for size in [6, 8] {
        let err = put(expect(None, Some(size)), &content).unwrap_err();
        assert_eq!(err.code(), "image.wrong_size", "{err}");
    }
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let err = work.put_blob(expect(None, None), &mut Broken).unwrap_err();
    assert_eq!((err.code(), err.is_host_fault()), ("image.source", false));
    // A source without an end is read no further than the promised size.
    let err = work.put_blob(expect(None, Some(1 << 20)), &mut io::repeat(0)).unwrap_err();
    assert_eq!(err.code(), "image.wrong_size");
    let blob = put(expect(Some(Digest::of(&content)), Some(7)), &content).unwrap();
    assert_eq!(blob.digest, Digest::of(&content));
    // One that is there is not read again, and its size still has to be right.
    assert!(work.put_blob(expect(Some(blob.digest), None), &mut Broken).is_ok());
    assert_eq!(put(expect(Some(blob.digest), Some(9)), b"").unwrap_err().code(), "image.wrong_size");
    // One of another size than promised is damaged: the good content takes its place.
    let kept = place.store.path().join("blobs/sha256").join(blob.digest.hex());
    fs::write(&kept, "cut").unwrap();
    assert_eq!(put(expect(Some(blob.digest), Some(7)), &content).unwrap(), blob);
    assert_eq!(fs::read(&kept).unwrap(), content);
    drop(work);
    assert_eq!(place.count("blobs/sha256"), 1);
    assert_eq!(place.store.gc().unwrap().in_use, []);
    let after: Vec<_> = tree(place.store.path()).into_iter().filter(|(p, _)| p != "lock").collect();
    assert_eq!(after, before.into_iter().filter(|(p, _)| p != "lock").collect::<Vec<_>>());
}

#[test]
fn staged_work_that_is_not_committed_leaves_nothing() {
    let place = Place::new();
    let work = place.store.begin_staged().unwrap();
    let blob = work.put_blob(Expected::default(), &mut &b"x"[..]).unwrap();
    assert!(work.blob(&blob.digest).unwrap().is_some());
    assert!(place.store.blob(&blob.digest).unwrap().is_none());
    drop(work);
    assert_eq!((place.count("tmp"), place.count("blobs/sha256")), (0, 0));
}

#[test]
fn layers_are_unpacked_once_and_shared_by_images() {
    let place = Place::new();
    let base = Tar::new().dir("usr/", 0o755).file("usr/基", "base").symlink("usr/link", "/etc/shadow").end();
    let (gz, zst) = (Layer::of(GZIP, &base), Layer::of(ZSTD, &base));
    let one = place.install("one:v1", &[gz, Layer::tar(Tar::new().file("a", "1"))]);
    let two = place.install("two:v1", &[zst, Layer::tar(Tar::new().file("b", "2"))]);
    assert_eq!(place.count("layers"), 3);
    let layer = place.store.layer(&Digest::of(&base)).join("fs/usr");
    for name in ["基", "link"] {
        let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
        let shared = inode(&layer.join(name));
        for image in [&one, &two] {
            assert_eq!(inode(&place.root(image).join("usr").join(name)), shared, "{name}");
        }
    }
    assert_eq!(place.store.sharing().unwrap()[&Digest::of(&base)], ["one:v1", "two:v1"]);
    assert_store_valid(place.store.path());
}

#[test]
fn whiteouts_opaque_directories_and_replaced_entries() {
    let place = Place::new();
    let base = Tar::new()
        .dir("d/", 0o750)
        .file("d/a", "a")
        .file("d/b", "b")
        .dir("o/", 0o755)
        .file("o/old", "old")
        .dir("o/sub/", 0o755)
        .file("o/sub/x", "x")
        .file("f", "file")
        .dir("g/", 0o700)
        .file("g/in", "in")
        .symlink("l", "d")
        .file("kept", "kept")
        .dir("closed/", 0o000);
    let upper = Tar::new()
        .file("d/.wh.a", "")
        .file("d/新", "new")
        .dir("o/", 0o711)
        .file("o/.wh..wh..opq", "")
        .file("o/fresh", "fresh")
        .dir("f/", 0o755)
        .file("f/now-a-dir", "")
        .file("g", "now a file")
        .dir("l/", 0o755)
        .file("l/.wh.a", "")
        .file("l/real", "real")
        .file(".wh.nothing", "");
    let image = place.install("w:v1", &[Layer::tar(base), Layer::tar(upper)]);
    let paths: Vec<_> = tree(&place.root(&image)).into_iter().map(|(p, _)| p).collect();
    let want =
        ["closed/", "d/", "d/b", "d/新", "f/", "f/now-a-dir", "g", "kept", "l/", "l/real", "o/", "o/fresh"];
    assert_eq!(paths, want);
    let mode = |name: &str| fs::metadata(place.root(&image).join(name)).unwrap().mode() & 0o7777;
    // The upper layer has no entry for d: its mode stays. The unpacker decides how closed a directory can be.
    assert_eq!((mode("d"), mode("o")), (0o750, 0o711));
    let layer = place.store.layer(&Digest::of(b"")).parent().unwrap().to_owned();
    let unpacked: Vec<_> = tree(&layer).into_iter().filter(|(p, _)| p.contains("wh.")).collect();
    assert_eq!(unpacked, [], "whiteouts are no files");
}

#[test]
fn an_opaque_root_and_a_layer_twice() {
    let place = Place::new();
    let base = Layer::tar(Tar::new().file("a", "1").dir("d/", 0o755).file("d/x", "x"));
    let opaque = Layer::tar(Tar::new().file(".wh..wh..opq", "").file("b", "2"));
    let image = place.install("o:v1", &[base.clone(), opaque.clone()]);
    assert_eq!(tree(&place.root(&image)).len(), 1);
    let image = place.install("twice:v1", &[base.clone(), opaque, base.clone(), base]);
    let paths: Vec<_> = tree(&place.root(&image)).into_iter().map(|(p, _)| p).collect();
    assert_eq!(paths, ["a", "b", "d/", "d/x"]);
}

#[test]
fn what_a_run_holds_is_not_removed() {
    let place = Place::new();
    let image = place.install("a:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    let held = place.store.resolve(&"a:v1".parse().unwrap()).unwrap().unwrap();
    assert_eq!(held.bundle, place.store.bundle(&image.manifest));
    assert!(rustix::io::fcntl_getfd(&held.lock).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    let err = place.store.remove(&["a:v1"]).unwrap_err();
    assert_eq!((err.code(), err.is_host_fault()), ("image.in_use", false));
    assert_eq!(err.to_string(), "image a:v1 is in use by a run: try again when the run is over");
    assert_eq!(names(&place.store), ["a:v1"]);
    // Another name of it can go.
    let work = place.store.begin().unwrap();
    work.commit(&image.manifest, &["b:v1".parse::<Reference>().unwrap()]).unwrap();
    drop(work);
    assert_eq!(place.store.remove(&["b"]).unwrap_err().code(), "image.not_found");
    assert_eq!(place.store.remove(&["b:v1"]).unwrap().names, ["b:v1"]);
    drop(held);
    assert!(place.store.remove(&["a:v1"]).unwrap().bytes > 0);
    assert_eq!((place.count("bundles"), place.count("layers"), place.count("blobs/sha256")), (0, 0, 0));
    assert_eq!(place.store.default_name().unwrap(), None);
}

#[test]
fn a_replaced_image_in_use_is_kept_by_gc_and_freed_later() {
    let place = Place::new();
    place.install("a:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    let held = place.store.lookup("a:v1").unwrap().unwrap();
    fs::remove_dir_all(place.at("layout-a-v1")).unwrap();
    let new = place.install("a:v1", &[Layer::tar(Tar::new().file("a", "2"))]);
    let collected = place.store.gc().unwrap();
    assert_eq!(collected.in_use, [held.manifest]);
    assert!(held.bundle.join("rootfs/a").is_file(), "what a run uses stays");
    assert_eq!(place.count("layers"), 1, "its layer's files live on in the bundle");
    drop(held);
    assert_eq!(place.store.gc().unwrap().in_use, []);
    assert_eq!(place.count("bundles"), 1);
    assert_eq!(place.store.lookup("a:v1").unwrap().unwrap().manifest, new.manifest);
    assert_store_valid(place.store.path());
}

#[test]
fn nothing_is_removed_while_somebody_works() {
    let place = Place::new();
    place.install("a:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    let work = place.store.begin().unwrap();
    for err in [place.store.gc().unwrap_err(), place.store.remove(&["a:v1"]).unwrap_err()] {
        assert!(matches!(err, StoreError::Busy));
        assert_eq!(err.to_string(), "another creel is working on the images: try again when it is done");
    }
    // A second work goes on beside it, and takes nothing of the first for a leftover.
    let blob = work.put_blob(Expected::default(), &mut &b"x"[..]).unwrap();
    let staged = place.store.begin_staged().unwrap();
    let other = staged.put_blob(Expected::default(), &mut &b"y"[..]).unwrap();
    let third = place.store.begin().unwrap();
    drop(third);
    assert!(staged.blob(&other.digest).unwrap().is_some() && work.blob(&blob.digest).unwrap().is_some());
    drop((work, staged));
    place.store.gc().unwrap();
    assert_eq!(place.count("tmp"), 0);
}

#[test]
fn what_dead_processes_left_is_cleared_by_the_next_work_or_gc() {
    let place = Place::new();
    let litter = || {
        let dir = place.store.path().join("tmp/0123456789abcdef");
        fs::create_dir_all(dir.join("building/rootfs/文")).unwrap();
        fs::write(dir.join("building/rootfs/文/f"), [7; 100_000]).unwrap();
        fs::set_permissions(dir.join("building/rootfs/文"), fs::Permissions::from_mode(0o000)).unwrap();
    };
    litter();
    drop(place.store.begin().unwrap());
    assert_eq!(place.count("tmp"), 0);
    litter();
    fs::write(place.store.path().join("partial/sha256/half"), [1; 50_000]).unwrap();
    let collected = place.store.gc().unwrap();
    assert!(collected.bytes >= 150_000, "{}", collected.bytes);
    assert_eq!((place.count("tmp"), place.count("partial/sha256")), (0, 0));
}

#[test]
fn gc_counts_shared_files_once_and_keeps_what_is_reached() {
    let place = Place::new();
    let big = Layer::tar(Tar::new().file("big", vec![1; 1 << 20]));
    let small = Layer::tar(Tar::new().file("small", vec![2; 1 << 16]));
    place.install("keep:v1", std::slice::from_ref(&small));
    let gone = place.install("gone:v1", &[small.clone(), big.clone()]);
    let cache = place.store.path().join("cache");
    let entry = |name: &str, layer: &Layer| {
        let json = json!({"layer": Digest::of(&layer.blob), "diff_id": layer.diff_id, "step": "pip"});
        fs::write(cache.join(name), json.to_string()).unwrap();
    };
    entry("a.json", &small);
    entry("b.json", &big);
    fs::write(cache.join("odd.json"), "no json").unwrap();
    let collected = place.store.remove(&[&gone.manifest.hex()[..12]]).unwrap();
    assert_eq!(collected.names, ["gone:v1"]);
    // The blob and the unpacked file, which has two names.
    let two = 2 << 20;
    assert!((two..two + 200_000).contains(&collected.bytes), "{}", collected.bytes);
    assert_eq!((place.count("layers"), place.count("bundles"), place.count("cache")), (1, 1, 1));
    assert!(cache.join("a.json").exists());
    assert_eq!(place.store.gc().unwrap().bytes, 0);
    assert_store_valid(place.store.path());
}

#[test]
fn names_and_digests() {
    let place = Place::new();
    let image = place.install("a:latest", &[Layer::tar(Tar::new().file("a", "1"))]);
    let hex = image.manifest.hex();
    let found = |text: &str| place.store.lookup(text).unwrap().map(|i| i.manifest);
    for text in ["a", "a:latest", &hex, &hex[..6], &format!("sha256:{hex}"), &format!("sha256:{}", &hex[..8])]
    {
        assert_eq!(found(text), Some(image.manifest), "{text}");
    }
    assert_eq!(found(&format!("a@{}", image.manifest)), Some(image.manifest));
    for text in ["b", "a:v2", &hex[..5], "", "../a", "图", &hex.to_uppercase(), "ffffff", &format!("{hex}0")]
    {
        assert_eq!(found(text), None, "{text}");
    }
    let by_digest: Reference = format!("other@{}", image.manifest).parse().unwrap();
    assert!(place.store.resolve(&by_digest).unwrap().is_some());
    let err = place.store.meaning("b").unwrap_err();
    assert_eq!(err.to_string(), "no image \"b\": installed are a:latest");
}

#[test]
fn short_digits_that_several_images_begin_with() {
    let place = Place::new();
    // Documents whose digests begin alike, found by trying.
    let mut seen = std::collections::HashMap::new();
    let (prefix, pair) = (0..)
        .find_map(|n: u32| {
            let manifest = json!({"n": n}).to_string();
            let prefix = Digest::of(manifest.as_bytes()).hex()[..6].to_owned();
            let other = seen.insert(prefix.clone(), n)?;
            Some((prefix, [other, n]))
        })
        .unwrap();
    // They are no images; the index alone decides what digits mean.
    let entries: Vec<_> = pair
        .iter()
        .map(|n| {
            let digest = Digest::of(json!({ "n": n }).to_string().as_bytes());
            json!({"mediaType": images::MANIFEST, "digest": digest, "size": 1,
                   "annotations": {"org.opencontainers.image.ref.name": format!("n{n}:v1")}})
        })
        .collect();
    let index = json!({"schemaVersion": 2, "mediaType": images::INDEX, "manifests": entries});
    fs::write(place.store.path().join("index.json"), index.to_string()).unwrap();
    let err = place.store.lookup(&prefix).unwrap_err();
    assert_eq!(err.code(), "image.ambiguous", "{err}");
    assert_eq!(place.store.remove(&[&prefix]).unwrap_err().code(), "image.ambiguous");
}

#[test]
fn the_first_image_becomes_the_default() {
    let place = Place::new();
    place.install("a:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    place.install("b:v1", &[Layer::tar(Tar::new().file("b", "1"))]);
    assert_eq!(place.store.default_name().unwrap().as_deref(), Some("a:v1"));
    assert_eq!(place.store.set_default(Some("b:v1")).unwrap().as_deref(), Some("b:v1"));
    assert_eq!(place.store.set_default(Some("c:v1")).unwrap_err().code(), "image.not_found");
    place.store.remove(&["a:v1"]).unwrap();
    assert_eq!(place.store.default_name().unwrap().as_deref(), Some("b:v1"));
    place.store.remove(&["b:v1"]).unwrap();
    assert_eq!(place.store.default_name().unwrap(), None);
}

#[test]
fn a_store_that_others_may_write_to_is_refused() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    assert!(Store::existing(&state).unwrap().is_none());
    assert!(!state.join("images").exists(), "a look makes nothing");
    Store::open(&state).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&state.join("images")), 0o700);
    for dir in [state.clone(), state.join("images")] {
        let before = mode(&dir);
        for bad in [0o770, 0o707] {
            fs::set_permissions(&dir, fs::Permissions::from_mode(bad)).unwrap();
            for err in [Store::open(&state).unwrap_err(), Store::existing(&state).unwrap_err()] {
                assert_eq!((err.code(), err.is_host_fault()), ("image.store_not_ours", true), "{err}");
                assert!(err.to_string().contains("0700"), "{err}");
            }
        }
        fs::set_permissions(&dir, fs::Permissions::from_mode(before)).unwrap();
    }
    // A link to a directory of somebody's choice is no store.
    fs::rename(state.join("images"), state.join("elsewhere")).unwrap();
    symlink("elsewhere", state.join("images")).unwrap();
    assert_eq!(Store::existing(&state).unwrap_err().code(), "image.store_not_ours");
}

#[test]
fn a_damaged_store_says_so_and_removes_nothing() {
    let place = Place::new();
    let image = place.install("a:v1", &[Layer::tar(Tar::new().file("a", "1"))]);
    place.install("b:v1", &[Layer::tar(Tar::new().file("b", "1"))]);
    fs::write(place.store.path().join("blobs/sha256").join(image.manifest.hex()), "{").unwrap();
    let err = place.store.gc().unwrap_err();
    assert_eq!((err.code(), err.is_host_fault()), ("image.store_damaged", true), "{err}");
    assert_eq!((place.count("layers"), place.count("bundles")), (2, 2));
    // The way out that the message names.
    place.store.remove(&["a:v1"]).unwrap();
    assert_eq!((place.count("layers"), place.count("bundles")), (1, 1));
    assert_store_valid(place.store.path());
    fs::write(place.store.path().join("index.json"), "[]").unwrap();
    let err = place.store.names().unwrap_err();
    assert_eq!(err.code(), "image.store_damaged");
    let text = err.to_string();
    assert!(
        text.contains("index.json") && text.contains("move it away") && !text.contains("image rm"),
        "{text}"
    );
}

#[test]
fn a_blob_must_hold_the_layer_that_it_is_said_to_hold() {
    let place = Place::new();
    let good = Layer::of(GZIP, &Tar::new().file("a", "good").end());
    place.install("good:v1", std::slice::from_ref(&good));
    // Another blob under the diff_id of a layer that is unpacked already.
    let bad = Layer { diff_id: good.diff_id, ..Layer::of(TAR, &Tar::new().file("a", "evil").end()) };
    let layout = layout(&place.at("bad"), "bad:v1", &[bad]);
    let err = import(&place.store, &layout.dir, &Options::default()).unwrap_err();
    assert_eq!(err.code(), "image.wrong_diff_id", "{err}");
    assert!(err.to_string().contains("layer 1 of 1"), "{err}");
    assert_eq!(names(&place.store), ["good:v1"]);
}

#[test]
fn installed_packages_come_from_the_manifest() {
    let place = Place::new();
    let mut layout = Layout::new(&place.at("p"));
    let entry = layout.image(&[Layer::tar(Tar::new().file("a", "1"))], json!({}));
    let path = layout.dir.join("blobs/sha256").join(&entry["digest"].as_str().unwrap()[7..]);
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    manifest["annotations"] = json!({"io.creel.installed-packages": r#"{"pandas":"3.1.1"}"#});
    let entry = layout.descriptor(images::MANIFEST, manifest.to_string().as_bytes());
    layout.add(entry, Some("p:v1"));
    let image = import(&place.store, &layout.dir, &Options::default()).unwrap().remove(0);
    let file = place.store.bundle(&image.manifest).join("installed-packages.json");
    assert_eq!(fs::read_to_string(file).unwrap(), r#"{"pandas":"3.1.1"}"#);
}
