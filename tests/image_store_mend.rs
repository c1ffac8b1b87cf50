//! The image store: damage that is mended, several names of one image, names that none can have, and layers of creel's own.

use std::fs;

use creel::image::import::Options;
use creel::image::oci::Digest;
use creel::image::store::Expected;
use images::place::Place;
use images::{GZIP, Layer, Tar, ZSTD, assert_store_valid, layout};

#[path = "images/mod.rs"]
mod images;

#[test]
fn an_import_mends_a_blob_that_was_cut_off() {
    let place = Place::new();
    let layers = [Layer::of(GZIP, &Tar::new().file("数", "1").end())];
    let image = place.install("a:v1", &layers);
    let path = place.store.path().join("blobs/sha256").join(Digest::of(&layers[0].blob).hex());
    fs::write(&path, "cut").unwrap();
    assert_eq!(place.install("a:v1", &layers).manifest, image.manifest);
    assert_store_valid(place.store.path());
    fs::write(&path, "cut").unwrap();
    let tar = layout(&place.at("again"), "a:v1", &layers).tar(false);
    place.import(&place.write("a.tar", &tar)).unwrap();
    assert_store_valid(place.store.path());
}

#[test]
fn several_names_of_one_image_are_removed_at_once() {
    let place = Place::new();
    let layers = [Layer::tar(Tar::new().file("a", "1"))];
    let image = place.install("q:v1", &layers);
    place.install("z:v1", &layers);
    place.install("other:v1", &[Layer::tar(Tar::new().file("b", "2"))]);
    let short = &image.manifest.hex()[..8].to_owned();
    let removed = place.store.remove(&["q:v1", "z:v1", short, "q:v1"]).unwrap();
    assert_eq!((removed.names, removed.default_gone), (vec!["q:v1".to_owned(), "z:v1".to_owned()], true));
    assert!(!place.store.remove(&["other:v1", "other:v1"]).unwrap().default_gone);
    assert_eq!((place.count("bundles"), place.count("layers")), (0, 0));
}

#[test]
fn no_image_is_called_host() {
    let place = Place::new();
    let layers = [Layer::tar(Tar::new().file("a", "1"))];
    for name in ["host", "host:latest", "host:v1"] {
        let source = layout(&place.at("host"), "x:v1", &layers).dir;
        let options = Options { name: Some(name.parse().unwrap()), ..Options::default() };
        place.refused_with(&source, &options, "image.name_reserved", &["/usr", "--name"]);
    }
    place.refused(&layout(&place.at("own"), "host:v1", &layers).dir, "image.name_reserved", &["/usr"]);
    place.install("registry.example/host:v1", &layers);
}

#[test]
fn only_trusted_work_takes_a_layer_that_unpacks_to_very_much() {
    let place = Place::new();
    let zeros =
        layout(&place.at("l"), "x:v1", &[Layer::of(ZSTD, &Tar::new().file("0", vec![0; 80 << 20]).end())]);
    place.refused(&zeros.dir, "image.layer_limit", &["300 times"]);
    let mut work = place.store.begin_staged().unwrap();
    work.trust();
    for entry in fs::read_dir(zeros.dir.join("blobs/sha256")).unwrap() {
        let mut file = fs::File::open(entry.unwrap().path()).unwrap();
        work.put_blob(Expected::default(), &mut file).unwrap();
    }
    let manifest = zeros.entries[0]["digest"].as_str().unwrap().parse().unwrap();
    work.commit(&manifest, &["x:v1".parse().unwrap()]).unwrap();
    drop(work);
    // The plain tar of a root file system is looked through before it is an image.
    let plain = images::zstd(&Tar::new().file("usr/0", vec![0; 80 << 20]).end());
    place.refused(
        &place.write("bomb.tar.zst", &plain),
        "image.layer_limit",
        &["300 times", "the archive is refused"],
    );
}
