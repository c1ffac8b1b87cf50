//! `creel image pull` against registries that stop and lie. After each failure the store is as it was, but for `partial/`.

mod registry;

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use creel::image::pull::Options;
use registry::fake::{Fake, Reply, Request, Site};
use registry::image::{TestImage, digest, here, index, noise};
use registry::{Counted, Place, most_memory, quick};
use serde_json::json;

/// More memory than a pull of these sizes may ever need, the test's own included.
const MEMORY: u64 = 100 << 20;

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
