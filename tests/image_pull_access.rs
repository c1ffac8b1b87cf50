//! `creel image pull` against registries that want a login, send elsewhere, put off, and stall. After each failure the store is as it was, but for `partial/`.

mod registry;

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use creel::image::registry::{Access, Limits, Login, Secret};
use registry::fake::{Fake, Reply, Request, Site};
use registry::image::TestImage;
use registry::{Place, quick};
use serde_json::json;

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

/// A body without an end.
fn endless(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    let block = [b' '; 64 << 10];
    loop {
        stream.write_all(&block)?;
    }
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
