//! `creel image pull` against the registry of the distribution project, filled by skopeo.

mod registry;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use creel::image::pull::Options;
use creel::image::registry::{Access, Login, Secret};
use registry::docker::{Docker, Setup, certificates};
use registry::image::{INDEX, MANIFEST, TestImage, digest, here, index, write_layout};
use registry::{Counted, Counts, Place};
use tempfile::TempDir;

fn layout(image: &TestImage) -> TempDir {
    let dir = TempDir::with_prefix("creel-test-").unwrap();
    write_layout(dir.path(), MANIFEST, &image.manifest, &[image]);
    dir
}

/// Is `数据/0` in the bundle the image's own?
fn holds(bundle: &Path, image: &TestImage) {
    let bytes = fs::read(bundle.join("rootfs/数据/0")).unwrap();
    assert!(!bytes.is_empty());
    let config = fs::read_to_string(bundle.join("config.json")).unwrap();
    assert!(config.contains("/bin/sh"), "{config}");
    assert!(!image.layers.is_empty());
}

#[test]
fn by_tag_and_by_digest_and_nothing_twice() {
    let docker = Docker::start(&Setup::default());
    let image = TestImage::new(&[300_000, 10, 70_000]);
    docker.fill(layout(&image).path(), "team/data:v1");

    let place = Place::new();
    let total: usize = image.blobs().map(Vec::len).sum();
    let progress = Counted::default();
    let options = Options { progress: &progress, ..Options::default() };
    let installed = place.pull_with(&docker.name("team/data:v1"), options).unwrap();
    assert_eq!(installed.name, docker.name("team/data:v1"));
    assert_eq!(installed.manifest.to_string(), image.digest());
    holds(&installed.bundle, &image);
    let bytes = total as u64;
    assert_eq!(progress.get(), Counts { bytes, blobs: 4, received: bytes, discarded: 0, ended: true });
    assert_eq!(fs::read_dir(place.store.path().join("partial/sha256")).unwrap().count(), 0);

    // By digest, under its own name: all is there already.
    let by_digest = format!("{}@{}", docker.name("team/data"), image.digest());
    let progress = Counted::default();
    let options = Options { progress: &progress, ..Options::default() };
    let again = place.pull_with(&by_digest, options).unwrap();
    assert_eq!((again.name.as_str(), again.manifest), (by_digest.as_str(), installed.manifest));
    assert_eq!(progress.get(), Counts { ended: true, ..Counts::default() });

    // Under another name, and with the blobs gone at the registry: nothing but the manifest is asked for.
    let blobs = docker.dir.path().join("storage/docker/registry/v2/repositories/team/data/_layers");
    fs::remove_dir_all(blobs).unwrap();
    let name = Some("mine:1".parse().unwrap());
    let options = Options { name, ..Options::default() };
    assert_eq!(place.pull_with(&docker.name("team/data:v1"), options).unwrap().name, "mine:1");
    assert!(Place::new().pull(&docker.name("team/data:v1"), registry::quick()).is_err());
}

#[test]
fn what_is_not_there() {
    let docker = Docker::start(&Setup::default());
    let image = TestImage::new(&[10]);
    docker.fill(layout(&image).path(), "team/data:v1");
    let place = Place::new();
    for (name, word) in [("team/data:v2", "v2"), ("team/other:v1", "team/other")] {
        let (code, text) = place.fails(&docker.name(name), registry::quick());
        assert_eq!(code, "image.not_found");
        for part in [docker.address.as_str(), word, "404", "MANIFEST_UNKNOWN", "check the name"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
    let absent = format!("{}@{}", docker.name("team/data"), digest(b"absent"));
    assert_eq!(place.fails(&absent, registry::quick()).0, "image.not_found");
}

#[test]
fn this_machines_image_of_an_index() {
    let docker = Docker::start(&Setup::default());
    let (own, other) = (TestImage::new(&[1000]), TestImage::of("s390x", &[2000]));
    let list = index(&[other.entry("s390x"), own.entry(here())]);
    let dir = TempDir::with_prefix("creel-test-").unwrap();
    write_layout(dir.path(), INDEX, &list, &[&own, &other]);
    docker.fill(dir.path(), "multi:latest");

    let place = Place::new();
    let installed = place.pull(&docker.name("multi"), registry::quick()).unwrap();
    assert_eq!(installed.manifest.to_string(), own.digest());
    let by_digest = format!("{}@{}", docker.name("multi"), digest(&list));
    let installed = place.pull(&by_digest, registry::quick()).unwrap();
    assert_eq!((installed.name, installed.manifest.to_string()), (by_digest, own.digest()));
    // The other one by its own digest: it is not this machine's, and is not installed.
    let foreign = format!("{}@{}", docker.name("multi"), other.digest());
    assert!(place.fails(&foreign, registry::quick()).1.contains("s390x"));

    let foreign_only = index(&[other.entry("s390x")]);
    let dir = TempDir::with_prefix("creel-test-").unwrap();
    write_layout(dir.path(), INDEX, &foreign_only, &[&other]);
    docker.fill(dir.path(), "foreign:latest");
    let (code, text) = place.fails(&docker.name("foreign"), registry::quick());
    assert_eq!(code, "image.no_platform");
    assert!(text.contains("there are linux/s390x"), "{text}");
}

#[test]
fn basic_login() {
    let docker = Docker::start(&Setup { login: Some(("anna", "hunter2 密码")), ..Setup::default() });
    let image = TestImage::new(&[1000]);
    docker.fill(layout(&image).path(), "data:v1");
    let place = Place::new();
    let name = docker.name("data:v1");
    let with = |password: &str| Access {
        login: Some(Login::new("anna", Secret::new(password)).unwrap()),
        ..registry::quick()
    };

    let (code, text) = place.fails(&name, registry::quick());
    assert_eq!(code, "image.registry_login_refused");
    assert!(text.contains("asks for a user") && text.contains("--user"), "{text}");

    let (code, text) = place.fails(&name, with("wrong-secret"));
    assert_eq!(code, "image.registry_login");
    for part in ["401", "UNAUTHORIZED", "\"anna\"", &docker.address] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(!text.contains("wrong-secret"), "{text}");

    let installed = place.pull(&name, with("hunter2 密码")).unwrap();
    assert_eq!(installed.manifest.to_string(), image.digest());
}

#[test]
fn an_authority_of_ones_own() {
    let docker = Docker::start(&Setup { tls: true, ..Setup::default() });
    let image = TestImage::new(&[1000]);
    docker.fill(layout(&image).path(), "data:v1");
    let place = Place::new();
    let name = docker.name("data:v1");
    let with = |ca: Option<PathBuf>| Access { ca, ..registry::quick() };

    // This machine is asked by http: the registry says what it thinks of it.
    let (code, text) = place.fails(&name, with(None));
    assert_eq!(code, "image.registry_status");
    assert!(text.contains("give --ca FILE"), "{text}");
    // Another authority's certificate does not help.
    let other = TempDir::with_prefix("creel-test-").unwrap();
    certificates(other.path());
    let (code, text) = place.fails(&name, with(Some(other.path().join("ca.pem"))));
    assert_eq!(code, "image.registry_tls");
    assert!(text.contains("certificate") && text.contains("--ca FILE"), "{text}");
    // Nor does a name that the certificate is not for.
    let port = docker.address.rsplit(':').next().unwrap();
    let (code, _) = place.fails(&format!("127.0.0.2:{port}/data:v1"), with(Some(docker.ca())));
    assert!(["image.registry_tls", "image.registry_unreachable"].contains(&code), "{code}");

    let installed = place.pull(&name, with(Some(docker.ca()))).unwrap();
    assert_eq!(installed.manifest.to_string(), image.digest());
    let localhost = format!("localhost:{port}/data:v1");
    assert_eq!(place.pull(&localhost, with(Some(docker.ca()))).unwrap().name, localhost);
}

/// The program itself.
fn creel(state: &Path, args: &[&str], stdin: &str, env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_creel"));
    command.args(["image", "pull"]).args(args).env("CREEL_STATE_DIR", state);
    for name in ["CREEL_REGISTRY_USER", "CREEL_REGISTRY_PASSWORD", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG"] {
        command.env_remove(name);
    }
    // No login of whoever runs the tests.
    command.env("HOME", state);
    command.envs(env.iter().copied());
    let pipes = [Stdio::piped(), Stdio::piped(), Stdio::piped()];
    let [stdin_pipe, out, err] = pipes;
    let mut child = command.stdin(stdin_pipe).stdout(out).stderr(err).spawn().unwrap();
    // It may not want it.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn the_command_and_its_logins() {
    let docker = Docker::start(&Setup { login: Some(("anna", "hunter2")), ..Setup::default() });
    let image = TestImage::new(&[1000]);
    docker.fill(layout(&image).path(), "data:v1");
    let state = TempDir::with_prefix("creel-test-").unwrap();
    let name = docker.name("data:v1");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pulled = |out: Output, name: &str| {
        assert!(out.status.success(), "{}", text(&out.stderr));
        let line = format!("{name}  {}  ", &image.digest()[7..19]);
        assert!(text(&out.stdout).starts_with(&line), "{}", text(&out.stdout));
        text(&out.stderr)
    };

    let out = creel(state.path(), &[&name, "--user", "anna", "--password-stdin"], "hunter2\n", &[]);
    assert_eq!(pulled(out, &name), "");
    let out = creel(state.path(), &[&name, "--user", "anna:hunter2"], "", &[]);
    let warning = pulled(out, &name);
    assert!(warning.contains("--password-stdin") && !warning.contains("hunter2"), "{warning}");
    let env = [("CREEL_REGISTRY_USER", "anna"), ("CREEL_REGISTRY_PASSWORD", "hunter2")];
    assert_eq!(pulled(creel(state.path(), &[&name, "--name", "mine"], "", &env), "mine:latest"), "");

    // Files of docker and podman.
    let auths = format!(r#"{{"auths":{{"{}":{{"auth":"YW5uYTpodW50ZXIy"}}}}}}"#, docker.address);
    fs::write(state.path().join("config.json"), &auths).unwrap();
    let dir = state.path().to_str().unwrap();
    pulled(creel(state.path(), &[&name], "", &[("DOCKER_CONFIG", dir)]), &name);
    let file = format!("{dir}/config.json");
    pulled(creel(state.path(), &[&name], "", &[("REGISTRY_AUTH_FILE", &file)]), &name);
    fs::create_dir(state.path().join(".docker")).unwrap();
    fs::rename(&file, state.path().join(".docker/config.json")).unwrap();
    pulled(creel(state.path(), &[&name], "", &[]), &name);

    assert_eq!(pulled(creel(state.path(), &[&name, "--quiet"], "", &env), &name), "");
}

#[test]
fn the_command_refuses() {
    let state = TempDir::with_prefix("creel-test-").unwrap();
    let long = "x".repeat(20_000);
    for (args, stdin, word) in [
        (vec!["../x"], "", "no image name"),
        (vec!["Data"], "", "lower-case"),
        (vec!["localhost:1/x", "--name", "a b"], "", "no image name"),
        (vec!["localhost:1/x", "--user", "anna"], "", "--password-stdin"),
        (vec!["localhost:1/x", "--user", "a:hunter2", "--password-stdin"], "hunter2", "twice"),
        (vec!["localhost:1/x", "--user", "anna", "--password-stdin"], "", "empty"),
        (vec!["localhost:1/x", "--user", "anna", "--password-stdin"], "a\nb\n", "more than one line"),
        (vec!["localhost:1/x", "--user", "anna", "--password-stdin"], &long, "16 KiB"),
        (vec!["localhost:1/x", "--ca", "/nonexistent"], "", "/nonexistent"),
        (vec!["localhost:1/x", "--ca", "/etc/passwd"], "", "no certificate"),
        (vec!["localhost:1/x"], "", "can't be reached: connection refused;"),
        (vec!["no-such-host.invalid/x"], "", "no-such-host.invalid"),
    ] {
        let out = creel(state.path(), &args, stdin, &[]);
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(126), "{args:?}: {err}");
        assert!(
            err.contains(word) && err.starts_with("creel: ") && err.lines().count() == 1,
            "{args:?}: {err}"
        );
        assert!(!err.contains("hunter2"), "{err}");
    }
    let proxy = [("HTTPS_PROXY", "::not a proxy::")];
    let out = creel(state.path(), &["r.example/x"], "", &proxy);
    assert!(String::from_utf8(out.stderr).unwrap().contains("HTTPS_PROXY is no address"));
    let helper = r#"{"credsStore":"desktop"}"#;
    fs::write(state.path().join("config.json"), helper).unwrap();
    let dir = state.path().to_str().unwrap();
    let out = creel(state.path(), &["localhost:1/x"], "", &[("DOCKER_CONFIG", dir)]);
    assert!(String::from_utf8(out.stderr).unwrap().contains("creel runs no helpers"));
}
