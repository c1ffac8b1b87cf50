//! `creel image pull` against registries that stop, lie, and stall. After each failure the store is as it was, but for `partial/`.

mod registry;

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use creel::image::pull::Options;
use creel::image::registry::{Access, Limits, Login, Secret};
use registry::fake::{Fake, Reply, Request, Site};
use registry::image::{TestImage, digest, here, index, noise};
use registry::{Counted, Place, most_memory, quick};
use serde_json::json;

/// More memory than a pull of these sizes may ever need, the test's own included.
const MEMORY: u64 = 100 << 20;

fn login() -> Access {
    Access { login: Some(Login::new("anna", Secret::new("hunter2")).unwrap()), ..quick() }
}

/// A site that is honest but for what `change` answers.
fn unless(image: &TestImage, change: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Fake {
    let site = Site::of(image);
    Fake::start(move |request| change(request).unwrap_or_else(|| site.answer(request)))
}

/// The registry's answer to every manifest.
fn manifests(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Fake {
    Fake::start(move |_| reply())
}

fn head(stream: &mut TcpStream, length: usize) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
}

// ---- login ----

#[test]
fn a_token_that_runs_out_is_renewed() {
    let image = TestImage::new(&[1000, 2000, 3000]);
    let site = Site::of(&image);
    // The first token runs out when the first layer is asked for; the others with it get 401 too, whichever come first.
    let (given, ran_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let layer = image.layer(0);
    let fake = Fake::start(move |request| {
        if request.path.starts_with("/token") {
            let n = given.fetch_add(1, Ordering::SeqCst) + 1;
            return Reply::new(200, json!({ "access_token": format!("t{n}"), "expires_in": 1 }).to_string());
        }
        if request.path.ends_with(&layer) {
            ran_out.store(1, Ordering::SeqCst);
        }
        let good = if ran_out.load(Ordering::SeqCst) == 0 { "Bearer t1" } else { "Bearer t2" };
        if request.header("authorization") == Some(good) {
            return site.answer(request);
        }
        let host = request.header("host").unwrap();
        let challenge = format!(
            "Bearer realm=\"http://{host}/token?x=1\",service=\"the \\\"registry\\\"\",scope=\"repository:team/x:pull\""
        );
        Reply::new(401, "{}").with("WWW-Authenticate", challenge)
    });
    let place = Place::new();
    let installed = place.pull(&fake.name(), login()).unwrap();
    assert_eq!(installed.manifest.to_string(), image.digest());
    let asked: Vec<_> = fake.requests().into_iter().filter(|r| r.path.starts_with("/token")).collect();
    // Of two downloads whose token ran out only one asks for a new one.
    assert_eq!(asked.len(), 2);
    for request in asked {
        assert_eq!(
            request.path,
            "/token?x=1&service=the%20%22registry%22&scope=repository%3Ateam%2Fx%3Apull&account=anna"
        );
        assert_eq!(request.header("authorization"), Some("Basic YW5uYTpodW50ZXIy"));
    }
    // The password itself went to the token server only.
    let others = fake.requests().into_iter().filter(|r| !r.path.starts_with("/token"));
    assert!(
        others.filter_map(|r| r.header("authorization").map(str::to_owned)).all(|a| a.starts_with("Bearer "))
    );
}

#[test]
fn an_anonymous_token() {
    let image = TestImage::new(&[1000]);
    let fake = unless(&image, |request| {
        if request.path.starts_with("/token") {
            return Some(Reply::new(200, r#"{"token":"tok","access_token":""}"#));
        }
        let host = request.header("host").unwrap();
        (request.header("authorization") != Some("Bearer tok")).then(|| {
            Reply::new(401, "").with("www-authenticate", format!("bearer realm=http://{host}/token"))
        })
    });
    Place::new().pull(&fake.name(), quick()).unwrap();
    let token = fake.requests().into_iter().find(|r| r.path.starts_with("/token")).unwrap();
    assert_eq!(token.path, "/token?scope=repository%3Ateam%2Fx%3Apull");
    assert_eq!(token.header("authorization"), None);
}

#[test]
fn logins_that_fail() {
    let bearer = |request: &Request| {
        let realm = format!("Bearer realm=\"http://{}/token\"", request.header("host").unwrap());
        Reply::new(401, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#).with("WWW-Authenticate", realm)
    };
    let place = Place::new();
    let with_token = |body: &'static str, status: u16| {
        Fake::start(move |r| match r.path.starts_with("/token") {
            true => Reply::new(status, body),
            false => bearer(r),
        })
    };
    for (body, status, code, word) in [
        (r#"{"token":"x"}"#, 200, "image.registry_login", "UNAUTHORIZED"),
        (
            r#"{"details":"incorrect username or password"}"#,
            401,
            "image.registry_login",
            "incorrect username",
        ),
        ("{}", 200, "image.registry_malformed", "neither token nor access_token"),
        ("<html>", 200, "image.registry_malformed", "no JSON"),
        (r#"{"token":"a\r\nX: y"}"#, 200, "image.registry_malformed", "characters that no token has"),
    ] {
        let fake = with_token(body, status);
        let (found, text) = place.fails(&fake.name(), login());
        assert_eq!(found, code, "{text}");
        assert!(text.contains(word) && text.contains(&fake.address.to_string()), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    // A token server that never stops talking.
    let fake = Fake::start(move |r| match r.path.starts_with("/token") {
        true => Reply::raw(endless),
        false => bearer(r),
    });
    assert_eq!(place.fails(&fake.name(), login()).0, "image.registry_too_large");
    // 403: known, and not allowed.
    let denied = r#"{"errors":[{"code":"DENIED","message":"requested access is denied"}]}"#;
    let fake = manifests(move || Reply::new(403, denied));
    let (code, text) = place.fails(&fake.name(), login());
    assert_eq!(code, "image.registry_login");
    assert!(text.contains("403, DENIED: requested access is denied") && text.contains("\"anna\""), "{text}");
    let (_, text) = place.fails(&fake.name(), quick());
    assert!(text.contains("--user"), "{text}");
}

// ---- going on ----

#[test]
fn a_download_that_breaks_goes_on_where_it_was() {
    let image = TestImage::new(&[4_000_000]);
    let (layer, size) = (image.layer(0), image.layers[0].len());
    let served = Arc::new(AtomicUsize::new(0));
    let (blob, counter, wanted) = (image.layers[0].clone(), Arc::clone(&served), layer.clone());
    let fake = unless(&image, move |request| {
        if !request.path.ends_with(&wanted) {
            return None;
        }
        let (blob, counter) = (blob.clone(), Arc::clone(&counter));
        let from = request.from().unwrap_or(0);
        Some(Reply::raw(move |stream| {
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\n\r\n",
                blob.len() - from,
                blob.len() - 1,
                blob.len()
            )?;
            // A million bytes, then the line is cut.
            let part = &blob[from..blob.len().min(from + 1_000_000)];
            counter.fetch_add(part.len(), Ordering::SeqCst);
            stream.write_all(part)
        }))
    });
    let place = Place::new();
    let progress = Counted::default();
    let options = Options { access: quick(), progress: &progress, ..Options::default() };
    let installed = place.pull_with(&fake.name(), options).unwrap();
    assert_eq!(installed.manifest.to_string(), image.digest());
    let ranges: Vec<_> =
        fake.requests().iter().filter(|r| r.path.ends_with(&layer)).map(Request::from).collect();
    assert_eq!(ranges, [None, Some(1_000_000), Some(2_000_000), Some(3_000_000), Some(4_000_000)]);
    assert_eq!(served.load(Ordering::SeqCst), size);
    assert_eq!((progress.get().received, progress.get().discarded), (progress.get().bytes, 0));
}

#[test]
fn one_that_stops_for_good_is_taken_up_by_the_next_pull() {
    let image = TestImage::new(&[300_000]);
    let (layer, part) = (image.layer(0), image.layers[0][..100_000].to_vec());
    let (wanted, size) = (layer.clone(), image.layers[0].len());
    let fake = unless(&image, move |request| {
        let (from, part) = (request.from(), part.clone());
        request.path.ends_with(&wanted).then(|| {
            Reply::raw(move |stream| match from {
                None => head(stream, size).and_then(|()| stream.write_all(&part)),
                // Not even an answer.
                Some(_) => Ok(()),
            })
        })
    });
    let place = Place::new();
    let (code, text) = place.fails(&fake.name(), quick());
    assert_eq!(code, "image.download_interrupted");
    for part in [
        layer.as_str(),
        "100.0 kB of 31",
        "are kept",
        "the same command goes on",
        &fake.address.to_string(),
        "team/x",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!(place.kept(&layer), 100_000);
    // First try, three retries.
    let asked = fake.requests().iter().filter(|r| r.path.ends_with(&layer)).count();
    assert!((4..=8).contains(&asked), "{asked}");

    let fake = Fake::honest(Site::of(&image));
    place.pull(&fake.name(), quick()).unwrap();
    let ranges: Vec<_> =
        fake.requests().iter().filter(|r| r.path.ends_with(&layer)).map(Request::from).collect();
    assert_eq!(ranges, [Some(100_000)]);
    assert_eq!(place.kept(&layer), 0);
}

#[test]
fn what_was_kept_is_not_trusted() {
    let image = TestImage::new(&[300_000]);
    let (layer, bytes) = (image.layer(0), &image.layers[0]);
    // Garbage; the whole, damaged; more than the whole; all of it already.
    for (kept, ranges) in [
        (noise(1000, 77), vec![Some(1000), None]),
        (noise(bytes.len(), 77), vec![None]),
        (noise(bytes.len() + 5, 77), vec![None]),
        (bytes.clone(), vec![]),
        (bytes[..5].to_vec(), vec![Some(5)]),
    ] {
        let place = Place::new();
        place.keep(&layer, &kept);
        let fake = Fake::honest(Site::of(&image));
        place.pull(&fake.name(), quick()).unwrap();
        let found: Vec<_> =
            fake.requests().iter().filter(|r| r.path.ends_with(&layer)).map(Request::from).collect();
        assert_eq!(found, ranges);
    }
}

#[test]
fn registries_that_do_not_know_ranges() {
    let image = TestImage::new(&[300_000]);
    let layer = image.layer(0);
    for answer in ["whole", "416", "other part"] {
        let (wanted, blob) = (layer.clone(), image.layers[0].clone());
        let fake = unless(&image, move |request| {
            let from = request.from().filter(|_| request.path.ends_with(&wanted))?;
            Some(match answer {
                "whole" => Reply::new(200, blob.clone()),
                "416" => Reply::new(416, ""),
                _ => Reply::new(206, &blob[from - 1..])
                    .with("Content-Range", format!("bytes {}-{}/{}", from - 1, blob.len() - 1, blob.len())),
            })
        });
        let place = Place::new();
        place.keep(&layer, &image.layers[0][..1000]);
        if answer == "other part" {
            let (code, text) = place.fails(&fake.name(), quick());
            assert_eq!(code, "image.registry_malformed");
            assert!(text.contains("not the part that was asked for"), "{text}");
        } else {
            place.pull(&fake.name(), quick()).unwrap();
        }
    }
}

#[test]
fn two_at_once_and_no_more() {
    let image = TestImage::new(&[1000, 1001, 1002, 1003, 1004]);
    let layers: Vec<_> = (0..5).map(|n| image.layer(n)).collect();
    let (both, now, most) = (Barrier::new(2), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::clone(&most);
    let fake = unless(&image, move |request| {
        let n = layers.iter().position(|l| request.path.ends_with(l))?;
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Neither of the first two is answered before the other is asked for.
        if n < 2 {
            both.wait();
        }
        now.fetch_sub(1, Ordering::SeqCst);
        None
    });
    Place::new().pull(&fake.name(), quick()).unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(fake.blob_requests(), 6);
}

#[test]
fn a_failure_ends_the_other_download_too() {
    let image = TestImage::new(&[1_000_000, 1_000_001]);
    let (slow, broken) = (image.layer(0), image.layer(1));
    let (wanted, blob) = (slow.clone(), image.layers[0].clone());
    let begun = Barrier::new(2);
    let begun = Arc::new(begun);
    let fake = unless(&image, move |request| {
        if request.path.ends_with(&broken) {
            begun.wait();
            return Some(Reply::new(404, ""));
        }
        let (blob, begun) = (blob.clone(), Arc::clone(&begun));
        request.path.ends_with(&wanted).then(|| {
            Reply::raw(move |stream| {
                head(stream, blob.len())?;
                stream.write_all(&blob[..200_000])?;
                begun.wait();
                // Slowly on, for as long as anyone listens.
                for chunk in blob[200_000..].chunks(10) {
                    stream.write_all(chunk)?;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            })
        })
    });
    let place = Place::new();
    let (code, text) = place.fails(&fake.name(), quick());
    assert_eq!(code, "image.not_found", "{text}");
    let kept = place.kept(&slow);
    assert!((1..1_000_000).contains(&kept), "{kept}");
}

// ---- lies ----

#[test]
fn blobs_that_are_not_what_they_should_be() {
    let image = TestImage::new(&[300_000]);
    let layer = image.layer(0);
    let size = image.layers[0].len();
    let bad = |reply: fn(usize) -> Reply| {
        let wanted = layer.clone();
        unless(&image, move |request| request.path.ends_with(&wanted).then(|| reply(size)))
    };
    for (what, reply, code, word) in [
        (
            "other bytes",
            (|n| Reply::new(200, noise(n, 9))) as fn(usize) -> Reply,
            "image.digest_mismatch",
            "is not it",
        ),
        ("shorter", |n| Reply::new(200, noise(n - 1, 0)), "image.download_interrupted", "ended after"),
        ("empty", |_| Reply::new(200, ""), "image.download_interrupted", "ended after 0 of"),
        ("longer", |n| Reply::new(200, noise(n + 1, 0)), "image.registry_too_large", "larger than"),
        ("longer than it says", |_| Reply::raw(endless), "image.registry_too_large", "larger than"),
        (
            "no HTTP",
            |_| Reply::raw(|s| s.write_all(b"SSH-2.0-x\r\n\r\n")),
            "image.registry_malformed",
            "makes no sense",
        ),
        ("an error", |_| Reply::new(500, ""), "image.registry_status", "500"),
        ("nothing", |_| Reply::new(204, ""), "image.registry_status", "204"),
    ] {
        let place = Place::new();
        let (found, text) = place.fails(&bad(reply).name(), quick());
        assert_eq!(found, code, "{what}: {text}");
        assert!(text.contains(word), "{what}: {text}");
        // What surely is not the blob is not kept either.
        if found != "image.download_interrupted" {
            assert_eq!(place.kept(&layer), 0, "{what}");
        }
    }
    assert!(most_memory() < MEMORY, "{}", most_memory());
}

/// A body without an end.
fn endless(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    let block = [b' '; 64 << 10];
    loop {
        stream.write_all(&block)?;
    }
}

#[test]
fn manifests_that_are_none() {
    let place = Place::new();
    let image = TestImage::new(&[10]);
    let traversal = image.tampered(|m| m["layers"][0]["digest"] = "sha256:../../../../tmp/x".into());
    let config = image.tampered(|m| m["config"]["digest"] = "../x".into());
    for (reply, code, word) in [
        (Reply::new(200, "{\"config\":"), "image.registry_malformed", "no manifest"),
        (Reply::new(200, "<html>\u{1b}[2J"), "image.registry_malformed", "no manifest"),
        (Reply::new(200, [0xff; 100]), "image.registry_malformed", "no manifest"),
        (Reply::new(200, ""), "image.registry_malformed", "no manifest"),
        (Reply::new(200, traversal.manifest), "image.registry_malformed", "sha256:../"),
        (Reply::new(200, config.manifest), "image.registry_malformed", "not a sha256 digest"),
        (
            Reply::new(200, image.manifest.clone()).with("Docker-Content-Digest", digest(b"other")),
            "image.digest_mismatch",
            "is not it",
        ),
        (
            Reply::raw(|s| {
                write!(s, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")?;
                s.write_all(&[b' '; 100_000])
            }),
            "image.registry_too_large",
            "4194304 bytes",
        ),
        (Reply::raw(endless), "image.registry_too_large", "4194304 bytes"),
        (
            Reply::raw(|s| {
                s.write_all(b"HTTP/1.1 200 OK\r\n")?;
                loop {
                    s.write_all(b"X-Pad: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")?;
                }
            }),
            "image.registry_malformed",
            "the answer makes no sense",
        ),
        (
            Reply::raw(|s| {
                s.write_all(b"HTTP/1.1 200 OK\r\nX: ")?;
                loop {
                    s.write_all(&[b'a'; 4096])?;
                }
            }),
            "image.registry_malformed",
            "the answer makes no sense",
        ),
        (Reply::raw(|s| head(s, 500)), "image.registry_unreachable", "broke off"),
        (Reply::raw(|_| Ok(())), "image.registry_unreachable", "can't be reached"),
    ] {
        let reply = Mutex::new(Some(reply));
        let fake = manifests(move || reply.lock().unwrap().take().unwrap_or_else(|| Reply::raw(|_| Ok(()))));
        let (found, text) = place.fails(&fake.name(), quick());
        assert_eq!(found, code, "{text}");
        assert!(text.contains(word) && text.contains(&fake.address.to_string()), "{word:?} in {text}");
    }
    assert!(most_memory() < MEMORY, "{}", most_memory());
}

#[test]
fn another_manifest_than_the_digest_says() {
    let (image, other) = (TestImage::new(&[10]), TestImage::new(&[20]));
    let manifest = other.manifest.clone();
    let fake = manifests(move || Reply::new(200, manifest.clone()));
    let (code, text) = Place::new().fails(&format!("{}@{}", fake.name(), image.digest()), quick());
    assert_eq!(code, "image.digest_mismatch");
    assert!(text.contains(&image.digest()) && text.contains(&other.digest()), "{text}");
}

#[test]
fn what_the_registry_says_is_escaped_and_cut() {
    let message = format!("\u{1b}]0;pwned\u{7}\r\n\u{202e}{}", "界".repeat(5000));
    let body = json!({ "errors": [{ "code": "DENIED\n", "message": message }] }).to_string();
    let fake = manifests(move || Reply::new(418, body.clone()));
    let (code, text) = Place::new().fails(&fake.name(), quick());
    assert_eq!(code, "image.registry_status");
    assert!(text.contains("418, DENIED\\n: \\u{1b}]0;pwned\\u{7}") && !text.contains('\u{202e}'), "{text}");
    assert!(text.chars().count() < 600, "{}", text.len());
}

#[test]
fn indexes_without_an_end_or_a_platform() {
    let image = TestImage::new(&[10]);
    let nested = |depth: usize| {
        let mut site = Site::default();
        site.add(&image);
        let mut entry = image.entry(here());
        let mut top = Vec::new();
        for _ in 0..depth {
            top = index(&[entry]);
            site.add_index(&top, None);
            entry = registry::image::descriptor(registry::image::INDEX, &top);
        }
        site.add_index(&top, Some("latest"));
        Fake::honest(site)
    };
    Place::new().pull(&nested(4).name(), quick()).unwrap();
    let (code, text) = Place::new().fails(&nested(5).name(), quick());
    assert_eq!(code, "image.registry_malformed");
    assert!(text.contains("more than 4 deep"), "{text}");

    let mut site = Site::default();
    let mut attestation = image.entry("unknown");
    attestation["platform"]["os"] = "unknown".into();
    site.add_index(&index(&[image.entry("\u{1b}[2Jarch"), attestation]), Some("latest"));
    let (code, text) = Place::new().fails(&Fake::honest(site).name(), quick());
    assert_eq!(code, "image.no_platform");
    assert!(text.contains("there are linux/\\u{1b}[2Jarch"), "{text}");
}

#[test]
fn more_than_the_disk_holds() {
    let image = TestImage::new(&[10]);
    let large = image.tampered(|m| {
        let layers = (0..200u32).map(|n| {
            json!({ "mediaType": m["layers"][0]["mediaType"], "digest": digest(&n.to_le_bytes()), "size": 32u64 << 30 })
        });
        m["layers"] = layers.collect();
    });
    let fake = Fake::honest(Site::of(&large));
    let (code, text) = Place::new().fails(&fake.name(), quick());
    assert_eq!(code, "host.disk_full");
    assert!(text.contains("not enough room") && text.contains("are free"), "{text}");
    assert_eq!(fake.blob_requests(), 0);
}

#[test]
fn foreign_urls_are_not_fetched() {
    let trap = manifests(|| Reply::new(200, ""));
    let image = TestImage::new(&[1000]);
    let url = format!("http://{}/layer", trap.address);
    let image = image.tampered(|m| {
        m["layers"][0]["urls"] = json!([url]);
        m["config"]["urls"] = json!([url]);
    });
    let fake = Fake::honest(Site::of(&image));
    Place::new().pull(&fake.name(), quick()).unwrap();
    assert_eq!(trap.requests().len(), 0);
}

// ---- redirects ----

#[test]
fn the_login_stays_with_its_host() {
    let image = TestImage::new(&[5000]);
    let site = Site::of(&image);
    let honest = site.clone();
    let cdn = Fake::start(move |request| {
        // A login here is not answered.
        match request.path.contains("login") {
            true => Reply::new(401, "").with("WWW-Authenticate", "Basic realm=\"cdn\""),
            false => honest.answer(request),
        }
    });
    let cdn_address = cdn.address;
    let start = |prefix: &'static str, site: Site| {
        Fake::start(move |request| {
            if request.header("authorization") != Some("Basic YW5uYTpodW50ZXIy") {
                return Reply::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\"");
            }
            match request.is_blob() {
                // First within the host, then away from it.
                true if !request.path.contains("?again") => {
                    Reply::redirect(format!("{}?again", request.path))
                }
                true => {
                    let path = request.path.trim_end_matches("?again");
                    Reply::redirect(format!("http://{cdn_address}{prefix}{path}"))
                }
                false => site.answer(request),
            }
        })
    };
    let fake = start("", site.clone());
    let place = Place::new();
    place.pull(&fake.name(), login()).unwrap();
    let away = cdn.requests();
    assert_eq!(away.len(), 2);
    assert!(away.iter().all(|r| r.header("authorization").is_none()), "{away:?}");
    // Within the host it was sent.
    let within: Vec<_> = fake.requests().into_iter().filter(|r| r.path.contains("?again")).collect();
    assert!(!within.is_empty() && within.iter().all(|r| r.header("authorization").is_some()));

    let fake = start("/login", site);
    let (code, text) = Place::new().fails(&fake.name(), login());
    assert_eq!(code, "image.registry_login", "{text}");
    assert!(cdn.requests().iter().all(|r| r.header("authorization").is_none()));
}

#[test]
fn redirects_that_are_not_followed() {
    let place = Place::new();
    let long = "a".repeat(50);
    for (location, word) in [
        (Some("/v2/team/x/manifests/latest"), "more than 5"),
        (Some("file:/etc/passwd"), "a redirect is not followed"),
        (Some("ftp://127.0.0.1/x"), "neither http nor https"),
        (Some("http://anna:hunter2@127.0.0.1:1/"), "a user in its address"),
        (Some("http://"), "names no address"),
        (Some(""), "names no address"),
        (None, "names no address"),
        (Some(long.as_str()), "more than 5"),
    ] {
        let location = location.map(str::to_owned);
        let fake = manifests(move || match &location {
            Some(location) => Reply::redirect(location.clone()),
            None => Reply::new(302, ""),
        });
        let (code, text) = place.fails(&fake.name(), login());
        assert!(code == "image.registry_redirect", "{code}: {text}");
        assert!(text.contains(word) && !text.contains("hunter2"), "{text}");
        assert!(fake.requests().len() <= 6, "{}", fake.requests().len());
    }
}

#[test]
fn never_from_https_to_http() {
    let image = TestImage::new(&[1000]);
    let plain = Fake::honest(Site::of(&image));
    let secure = registry::docker::Answers::start(
        "v2/team/x/manifests/latest",
        &format!(
            "HTTP/1.0 302 Found\r\nLocation: http://{}/v2/team/x/manifests/latest\r\n\r\n",
            plain.address
        ),
    );
    let access = Access { ca: Some(secure.ca()), ..login() };
    let (code, text) = Place::new().fails(&format!("{}/team/x", secure.address), access);
    assert_eq!(code, "image.registry_redirect", "{text}");
    assert!(text.contains("from https to http"), "{text}");
    assert_eq!(plain.requests().len(), 0);
}

// ---- time ----

#[test]
fn a_registry_that_puts_us_off() {
    let image = TestImage::new(&[1000]);
    for status in [429, 503] {
        let first = AtomicUsize::new(0);
        let fake = unless(&image, move |_| {
            // Every other answer.
            first
                .fetch_add(1, Ordering::SeqCst)
                .is_multiple_of(2)
                .then(|| Reply::new(status, "").with("Retry-After", "0"))
        });
        Place::new().pull(&fake.name(), quick()).unwrap();
        assert_eq!(fake.requests().len(), 6);
    }
    let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"pull rate limit"}]}"#;
    let place = Place::new();
    // Too long to wait: said at once.
    let fake = manifests(move || Reply::new(429, body).with("Retry-After", "31"));
    let (code, text) = place.fails(&fake.name(), quick());
    assert_eq!((code, fake.requests().len()), ("image.registry_busy", 1));
    assert!(text.contains("TOOMANYREQUESTS: pull rate limit; it asks to wait 31 s"), "{text}");
    // For ever: the first, and three more.
    let fake = manifests(|| Reply::new(503, ""));
    let (code, text) = place.fails(&fake.name(), quick());
    assert_eq!((code, fake.requests().len()), ("image.registry_busy", 4));
    assert!(text.contains("503") && text.contains("try again later"), "{text}");
}

#[test]
fn registries_that_stall_or_trickle() {
    let image = TestImage::new(&[300_000]);
    let layer = image.layer(0);
    let limits = Limits {
        stall: Duration::from_millis(300),
        answer: Duration::from_millis(900),
        pace: Duration::from_millis(300),
        slowest: 10_000,
        retries: 1,
        backoff: Duration::from_millis(1),
        ..Limits::default()
    };
    let access = || Access { limits: limits.clone(), ..Access::default() };
    // Waits until the client has gone away.
    fn hang(stream: &mut TcpStream) -> std::io::Result<()> {
        std::io::copy(stream, &mut std::io::sink()).map(drop)
    }
    fn trickle(stream: &mut TcpStream) -> std::io::Result<()> {
        loop {
            stream.write_all(b" ")?;
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let place = Place::new();
    for (reply, word) in [
        ((|| Reply::raw(hang)) as fn() -> Reply, "nothing came for 0.3 s"),
        (|| Reply::raw(|s| head(s, 100).and_then(|()| hang(s))), "broke off"),
        (|| Reply::raw(|s| head(s, 100_000).and_then(|()| trickle(s))), "broke off"),
        (|| Reply::raw(|s| s.write_all(b"HTTP/1.1 200 OK\r\nX: ").and_then(|()| trickle(s))), "within 0.9 s"),
    ] {
        let (code, text) = place.fails(&manifests(reply).name(), access());
        assert_eq!(code, "image.registry_unreachable");
        assert!(text.contains(word), "{word:?} in {text}");
    }
    for (reply, word) in [
        (
            (|| Reply::raw(|s| head(s, 300_000).and_then(|()| hang(s)))) as fn() -> Reply,
            "nothing came for 0.3 s",
        ),
        (|| Reply::raw(|s| head(s, 300_000).and_then(|()| trickle(s))), "too slow"),
    ] {
        let wanted = layer.clone();
        let fake = unless(&image, move |request| request.path.ends_with(&wanted).then(reply));
        let (code, text) = place.fails(&fake.name(), access());
        assert_eq!(code, "image.download_interrupted");
        assert!(text.contains(word), "{word:?} in {text}");
    }
}
