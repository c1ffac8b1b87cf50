//! A test's own executor, and requests for it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use creel::executor::report::Report;
use creel::executor::request::{Lang, Program, Request, Stdin};
use creel::executor::run_id::new_run_id;
use creel::executor::service::{Chunk, Config, Executor, Running, Stream, Submission};
use creel::executor::spawner::Spawner;

use crate::common::footprint::children;
use crate::common::{HANG, dedent};

/// A test: it is given its world once the runtime is up.
pub type Test = fn(World) -> Pin<Box<dyn Future<Output = ()>>>;

/// Where the directory of the test is.
pub const ROOT: &str = "CREEL_TEST_ROOT";

/// What a test has.
pub struct World {
    pub root: PathBuf,
    spawner: Option<Spawner>,
}

impl World {
    /// Forks the spawner, starts the runtime, runs the test.
    pub fn enter(test: &Test) {
        let spawner = Spawner::start().unwrap();
        let root = PathBuf::from(std::env::var_os(ROOT).unwrap());
        let world = World { root, spawner: Some(spawner) };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(HANG, test(world)).await.expect("the test hangs") });
        assert!(children(std::process::id()).is_empty(), "a child was left");
    }

    /// The executor, without pools.
    pub fn executor(&mut self, running: usize, queue: usize) -> Executor {
        self.executor_of(Config { running, queue, refills: 1, pools: Vec::new() })
    }

    pub fn executor_of(&mut self, config: Config) -> Executor {
        Executor::new(self.spawner.take().expect("one executor a test"), config).unwrap()
    }

    /// A request of the default profile in the image `host`; output to `out-<word>`.
    pub fn request(&self, word: &str, lang: Lang, code: &str) -> Request {
        let profile = creel::profile::load("default").unwrap();
        let mut limits = profile.limits;
        limits.timeout = Duration::from_secs(100);
        Request {
            run_id: new_run_id().unwrap(),
            image: "host".into(),
            program: Program::Script { lang, code: dedent(code).into_bytes(), args: Vec::new() },
            inputs: Vec::new(),
            skills: Vec::new(),
            stdin: Stdin::Null,
            env: profile.env,
            limits,
            seccomp: profile.seccomp,
            output_dir: self.root.join(format!("out-{word}")),
            allow_unenforced: BTreeSet::new(),
            pass_through: false,
            notes: Vec::new(),
        }
    }

    pub fn python(&self, word: &str, code: &str) -> Request {
        self.request(word, Lang::Python, code)
    }

    pub fn bash(&self, word: &str, code: &str) -> Request {
        self.request(word, Lang::Bash, code)
    }
}

/// Submits what there must be a place for.
#[track_caller]
pub fn submit(executor: &Executor, request: Request) -> Running {
    executor.submit(Submission { request, tenant: None }).unwrap()
}

/// The next output of a run, up to the end of a line.
pub async fn line(running: &mut Running) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        let Some(Chunk { stream: Stream::Stdout, bytes, missed: 0 }) = running.chunks.recv().await else {
            panic!("no line came, only {:?}", String::from_utf8_lossy(&text));
        };
        text.extend(bytes);
    }
    String::from_utf8(text).unwrap().trim_end().to_owned()
}

/// Category and error code.
pub fn end(report: &Report) -> (String, String) {
    let category = serde_json::to_value(report.error_category).unwrap();
    let code = report.error.as_ref().map_or(String::new(), |e| e.code.clone());
    (category.as_str().unwrap().to_owned(), code)
}

/// Asserts an ordinary success.
#[track_caller]
pub fn assert_ok(report: &Report) {
    assert_eq!(end(report), ("ok".into(), String::new()), "{report:#?}");
}

/// Makes a test of an async function.
macro_rules! tests {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident) $body:block)*) => {
        $($(#[$doc])* pub fn $name(
            #[allow(unused_mut)] mut $world: $crate::support::World,
        ) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move $body)
        })*
    };
}
pub(crate) use tests;
