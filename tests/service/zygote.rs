//! Forks of one zygote are strangers: no random state in common, and none of them reaches another, the zygote or the launcher.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use creel::executor::request::Stdin;
use creel::executor::service::{Config, PoolConfig};
use serde_json::Value;

use crate::common::HANG;
use crate::support::{assert_ok, line, submit, tests};

/// Whether `image`'s Python, this host's, has numpy.
fn has_numpy() -> bool {
    Command::new("/usr/bin/python3").args(["-c", "import numpy"]).output().unwrap().status.success()
}

/// A configuration with one zygote and `size` forks of it that wait.
fn config(size: usize) -> Config {
    let profile = creel::profile::load("default").unwrap();
    let mut preload: Vec<String> =
        crate::common::mode::PRELOAD.split(',').map(|m| m.trim().to_owned()).collect();
    if has_numpy() {
        preload.push("numpy.random".into());
    } else {
        println!("numpy.random is not among them: this host's python3 has no numpy");
    }
    let pool = PoolConfig {
        image: "host".into(),
        limits: profile.limits,
        seccomp: profile.seccomp,
        env: profile.env,
        allow_unenforced: BTreeSet::new(),
        preload,
        zygote: true,
        per_tenant: false,
        size,
        hot: 0,
        patience: std::time::Duration::ZERO,
        max_age: HANG * 10,
        zygote_forks: u64::MAX,
        zygote_age: HANG * 10,
    };
    Config { running: 4, queue: 200, refills: 2, pools: vec![pool] }
}

/// Everything that must not be the same in two fresh interpreters.
const DRAWN: &str = r#"
import hashlib, json, multiprocessing, os, random, secrets, ssl, sys, tempfile, uuid
drawn = {
    "random": random.random(),
    "randbytes": random.randbytes(8).hex(),
    "a state of its own": random.Random().random(),
    "uuid4": str(uuid.uuid4()),
    "uuid1": str(uuid.uuid1()),
    "node": uuid.getnode(),
    "secrets": secrets.token_hex(8),
    "urandom": os.urandom(8).hex(),
    "ssl": ssl.RAND_bytes(8).hex(),
    "authkey": bytes(multiprocessing.current_process().authkey).hex(),
    "mkdtemp": tempfile.mkdtemp(),
    "mktemp": tempfile.mktemp(),
    "candidate": next(tempfile._get_candidate_names()),

    "message id": __import__("email.utils").utils.make_msgid(),
}
import email.generator
drawn["boundary"] = email.generator._make_boundary()
if "numpy.random" in sys.modules:
    import numpy
    drawn["numpy"] = numpy.random.rand()
    drawn["numpy generator"] = numpy.random.default_rng().random()
with multiprocessing.get_context("fork").Pool(1) as pool:
    drawn["in a child"] = pool.apply(random.random)
lock = multiprocessing.get_context("spawn").Lock()
drawn["semaphore"] = lock._semlock.name
print(json.dumps(drawn))
"#;

tests! {
    /// A hundred forks draw a hundred different values.
    async fn a_hundred_draw_differently(world) {
        let executor = world.executor_of(config(4));
        executor.filled(0).await.unwrap();
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut forks = 0;
        // In turns, so that the pool keeps up and every run has a fork.
        for n in 0..100 {
            executor.filled(0).await.unwrap();
            let report = submit(&executor, world.python(&format!("抽{n}"), DRAWN)).report().await;
            assert_ok(&report);
            forks += usize::from(report.start == "zygote");
            let drawn: BTreeMap<String, Value> = serde_json::from_str(&report.stdout).unwrap();
            for (what, value) in drawn {
                values.entry(what).or_default().insert(value.to_string());
            }
        }
        executor.shutdown().await;
        assert_eq!(forks, 100, "not all were forks of the zygote");
        let same: Vec<String> =
            values.iter().filter(|(_, v)| v.len() != 100).map(|(k, v)| format!("{k}: {}", v.len())).collect();
        assert!(values.len() >= 15 && same.is_empty(), "different values of 100: {same:?}");
    }

    /// What one fork does to whatever it can name is not felt by another, and the zygote goes on forking.
    async fn siblings_are_out_of_reach(world) {
        let executor = world.executor_of(config(3));
        executor.filled(0).await.unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut quiet = world.python("静", "print('在', flush=True)\nimport sys\nprint(sys.stdin.read(), end='')");
        quiet.stdin = Stdin::File(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        let mut quiet = submit(&executor, quiet);
        assert_eq!(line(&mut quiet).await, "在");
        let probe = |name: &str| {
            std::fs::read_to_string(format!("{}/tests/escape/{name}.py", env!("CARGO_MANIFEST_DIR"))).unwrap()
        };
        for name in ["slot", "processes"] {
            executor.filled(0).await.unwrap();
            let mut request = world.python(name, "");
            request.program = creel::executor::request::Program::Script {
                lang: creel::executor::request::Lang::Python,
                code: format!("{}\n{}", probe("lib"), probe(name)).into_bytes(),
                args: Vec::new(),
            };
            let report = submit(&executor, request).report().await;
            assert_ok(&report);
            assert_eq!(report.start, "zygote", "{report:#?}");
            let escaped: Vec<&str> =
                report.stdout.lines().filter(|l| !l.contains("\"escaped\": false")).collect();
            assert!(escaped.is_empty(), "{name} got out:\n{}", escaped.join("\n"));
            assert!(report.stdout.lines().count() >= 20, "{name}: {}", report.stdout);
        }
        let before = executor.pools();
        drop(writer);
        let report = quiet.report().await;
        assert_ok(&report);
        assert_eq!(report.start, "zygote");
        // The same zygote makes the next one.
        executor.filled(0).await.unwrap();
        let report = submit(&executor, world.python("后", "print('好')")).report().await;
        assert_ok(&report);
        assert_eq!((report.start, report.stdout.as_str()), ("zygote", "好\n"));
        println!("{before:?}");
        executor.shutdown().await;
    }
}
