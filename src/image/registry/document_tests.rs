use serde_json::{Value, json};

use super::*;

const HEX: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn read(json: &Value, content_type: Option<&str>) -> Result<Document, String> {
    let bytes = json.to_string().into_bytes();
    let digest = Digest::of(&bytes);
    parse(bytes, digest, content_type)
}

fn blob(media_type: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": digest, "size": size })
}

fn manifest() -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": blob(CONFIGS[0], HEX, 2),
        "layers": [blob("application/vnd.oci.image.layer.v1.tar+gzip", HEX, 2)],
    })
}

fn reason(json: &Value) -> String {
    read(json, None).unwrap_err()
}

#[test]
fn manifests_and_indexes() {
    let Document::Image(image) = read(&manifest(), Some("application/json; charset=utf-8")).unwrap() else {
        panic!("no image")
    };
    assert_eq!(image.config, Blob { digest: HEX.parse().unwrap(), size: 2 });
    assert_eq!(image.layers, [image.config]);

    let entries = json!({ "schemaVersion": 2, "manifests": [blob(OCI_MANIFEST, HEX, 7)] });
    for content_type in [None, Some(OCI_INDEX), Some(DOCKER_LIST), Some("text/plain")] {
        assert!(
            matches!(read(&entries, content_type), Ok(Document::Index(e)) if e.len() == 1),
            "{content_type:?}"
        );
    }
    // Docker's, which names its type; an old OCI one, which does not.
    let mut docker = manifest();
    docker["mediaType"] = DOCKER_MANIFEST.into();
    docker["config"]["mediaType"] = CONFIGS[1].into();
    assert!(read(&docker, Some(DOCKER_MANIFEST)).is_ok());
    let mut old = manifest();
    old.as_object_mut().unwrap().remove("mediaType");
    assert!(read(&old, Some(OCI_MANIFEST)).is_ok());
}

#[test]
fn a_document_is_one_thing_only() {
    // CVE-2021-41190
    let mut both = manifest();
    both["manifests"] = json!([]);
    assert!(reason(&both).contains("both a manifest and an index"));
    let error = read(&manifest(), Some(OCI_INDEX)).unwrap_err();
    assert!(error.contains("came as"), "{error}");
}

#[test]
fn digests_and_sizes() {
    for bad in ["sha256:../../../etc/passwd", "sha512:00", "", "sha256:E3", "../x"] {
        let mut hostile = manifest();
        hostile["layers"][0]["digest"] = bad.into();
        assert!(reason(&hostile).contains("digest"), "{}", reason(&hostile));
    }
    let mut large = manifest();
    large["layers"][0]["size"] = (MAX_BLOB + 1).into();
    assert!(reason(&large).contains("more than the"));
    large["layers"][0]["size"] = json!(-1);
    assert!(reason(&large).contains("no image manifest"));
    let mut two = manifest();
    two["layers"][0]["size"] = 3.into();
    assert!(reason(&two).contains("two sizes"));
    let mut config = manifest();
    config["config"]["size"] = (MAX_CONFIG + 1).into();
    assert!(reason(&config).contains("more than the"));
}

#[test]
fn too_many() {
    let mut many = manifest();
    many["layers"] = vec![manifest()["layers"][0].clone(); MAX_LAYERS].into();
    assert!(read(&many, None).is_ok());
    many["layers"].as_array_mut().unwrap().push(manifest()["layers"][0].clone());
    assert!(reason(&many).contains("layers, more than"));
    let entries = json!({ "manifests": vec![blob(OCI_MANIFEST, HEX, 7); MAX_ENTRIES + 1] });
    assert!(reason(&entries).contains("entries, more than"));
}

#[test]
fn what_is_no_image() {
    for (document, expected) in [
        (json!({ "schemaVersion": 1, "fsLayers": [] }), "schema 1"),
        (json!({ "schemaVersion": 3, "config": {}, "layers": [] }), "not 2"),
        (json!({ "mediaType": "application/x\u{1b}[2J" }), "none of an image"),
        (json!({}), "no image manifest"),
        (json!([]), "no manifest"),
        (json!("x"), "no manifest"),
    ] {
        let error = reason(&document);
        assert!(error.contains(expected) && !error.contains('\u{1b}'), "{error}");
    }
    let mut chart = manifest();
    chart["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json".into();
    assert!(reason(&chart).contains("no image to run"));
}

#[test]
fn nesting_has_an_end() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let bytes = format!("{{\"x\":{deep}}}").into_bytes();
    let digest = Digest::of(&bytes);
    assert!(parse(bytes, digest, None).is_err());
}
