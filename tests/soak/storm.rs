//! The storm itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use creel::executor::report::Report;
use creel::executor::service::{CancelOutcome, Config, Executor, Refused, Running, Submission};
use creel::executor::spawner::Spawner;

use crate::common::footprint::children as children_of;
use crate::host::{self, Seen};
use crate::kinds::STDIN;
use crate::plan::{Dice, Mode, Planned, plan};
use crate::request::{pool, request};
use crate::strike::{stray, strike_run};
use crate::verdict::{Circumstances, end, judge};

/// Runs at once, and that may wait: fewer than clients, so that some are told to come back.
const RUNNING: usize = 4;
const QUEUE: usize = 2;
const CLIENTS: usize = 8;
/// No run may take so long, whatever it does.
const HANG: Duration = Duration::from_secs(90);
/// The stream of the dice that the killer has.
const KILLER: u64 = u64::MAX;
/// What the process and the spawner may grow by from the second third of the storm to the last.
const GROWTH_KIB: u64 = 8 << 10;

struct World {
    root: PathBuf,
    seed: u64,
    bound: Bound,
    image: String,
    executor: Executor,
    spawner: u32,
    next: AtomicU64,
    since: Instant,
    over: AtomicBool,
    /// Ids of runs that live.
    busy: Mutex<BTreeSet<String>>,
    /// Strikes at nobody's run so far.
    strays: AtomicU64,
    seen: Mutex<Seen>,
    counts: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    Runs(u64),
    Minutes(f64),
}

impl Bound {
    fn of_environment() -> Bound {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<f64>().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
        };
        match (number("CREEL_SOAK_RUNS"), number("CREEL_SOAK_MINUTES")) {
            (Some(runs), _) => Bound::Runs(runs as u64),
            (None, Some(minutes)) => Bound::Minutes(minutes),
            (None, None) => Bound::Runs(300),
        }
    }

    /// How much of it is done, from 0 to 1.
    fn part(self, runs: u64, time: Duration) -> f64 {
        match self {
            Bound::Runs(all) => runs as f64 / all.max(1) as f64,
            Bound::Minutes(minutes) => time.as_secs_f64() / (minutes * 60.0),
        }
    }
}

/// The process of the storm.
pub fn main(root: PathBuf) -> ExitCode {
    let fds_before = host::descriptors(std::process::id());
    // Whoever loses its parent becomes a child of this process, and is found at the end.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let spawner = Spawner::start().unwrap();
    let pid = children_of(std::process::id())[0];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut wrong = runtime.block_on(storm(root, spawner, pid));
    drop(runtime);
    let fds = host::descriptors(std::process::id());
    if fds != fds_before {
        wrong.push(format!("{fds_before} descriptors became {fds}"));
    }
    for line in &wrong {
        println!("soak: WRONG: {line}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn storm(root: PathBuf, spawner: Spawner, pid: u32) -> Vec<String> {
    let seed = std::env::var("CREEL_SOAK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(random);
    let bound = Bound::of_environment();
    let image = std::env::var("CREEL_SOAK_IMAGE").unwrap_or_else(|_| "host".into());
    let preload = std::env::var("CREEL_SOAK_PRELOAD").unwrap_or_else(|_| "json,random,decimal,email".into());
    let preload: Vec<String> = preload.split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect();
    println!("soak: seed {seed}, {bound:?}, image {image}, preload {preload:?}");
    fs::write(root.join("stdin"), vec![b'x'; STDIN]).unwrap();
    fs::write(root.join("表 一.csv"), "甲,1\n").unwrap();
    fs::create_dir(root.join("技能")).unwrap();
    fs::write(root.join("技能/说明.md"), "画图\n").unwrap();

    let pools = [Mode::Zygote, Mode::Warm].map(|mode| pool(&image, &preload, mode)).to_vec();
    let executor =
        Executor::new(spawner, Config { running: RUNNING, queue: QUEUE, refills: 2, pools }).unwrap();
    let mut wrong = Vec::new();
    for number in 0..2 {
        if let Err(stop) = executor.filled(number).await {
            wrong.push(format!("pool {number} does not fill: {}", stop.error.message));
        }
    }
    let world = Arc::new(World {
        root,
        seed,
        bound,
        image,
        executor,
        spawner: pid,
        next: AtomicU64::new(0),
        since: Instant::now(),
        over: AtomicBool::new(!wrong.is_empty()),
        busy: Mutex::default(),
        strays: AtomicU64::new(0),
        seen: Mutex::default(),
        counts: Mutex::default(),
        wrong: Mutex::new(wrong),
    });
    let killer = tokio::spawn(kill_at_random(Arc::clone(&world)));
    let watcher = tokio::spawn(watch(Arc::clone(&world)));
    let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(client(Arc::clone(&world)))).collect();
    for client in clients {
        client.await.unwrap();
    }
    world.over.store(true, Ordering::Relaxed);
    killer.await.unwrap();
    let flat = watcher.await.unwrap();
    finish(world, flat).await
}

/// Takes one run after the other.
async fn client(world: Arc<World>) {
    while !world.over.load(Ordering::Relaxed) {
        let n = world.next.fetch_add(1, Ordering::Relaxed);
        if world.bound.part(n, world.since.elapsed()) >= 1.0 {
            return;
        }
        let planned = plan(world.seed, n);
        if let Err(why) = one(&world, n, &planned).await {
            let what = format!("run {n} ({}, {}): {why}", planned.kind.name, planned.mode.name());
            println!("soak: WRONG: {what}");
            world.wrong.lock().unwrap().push(what);
        }
    }
}

/// One run, from the submission to the verdict.
async fn one(world: &World, n: u64, planned: &Planned) -> Result<(), String> {
    let before = world.strays.load(Ordering::SeqCst);
    let running = submit(world, n, planned).await?;
    let id = running.run_id.clone();
    world.seen.lock().unwrap().add(&id);
    let mut around = Circumstances::default();
    let lived = tokio::time::timeout(HANG, live(world, n, planned, running, &mut around)).await;
    world.busy.lock().unwrap().remove(&id);
    let report = lived.map_err(|_| format!("no report after {} s", HANG.as_secs()))??;
    around.strayed = world.strays.load(Ordering::SeqCst) > before;
    let (category, code, exit) = end(&report);
    {
        let mut counts = world.counts.lock().unwrap();
        let mut count = |what: String| *counts.entry(what).or_default() += 1;
        count(format!("started {} where {} was meant", report.start, planned.mode.name()));
        count(format!("ended {category} {code}"));
        if let Some(strike) = planned.strike.filter(|_| around.struck) {
            count(strike.name().to_owned());
        }
    }
    let verdict = judge(n, planned, around, &report);
    let _ = fs::remove_dir_all(world.root.join(format!("out-{n}")));
    if verdict == Ok(true) && category != "cancelled" {
        *world.counts.lock().unwrap().entry("hit by what was killed at random".into()).or_default() += 1;
    }
    verdict.map(drop).map_err(|why| {
        let said: String = report.stderr.chars().take(300).collect();
        format!("{why}; it is {category} {code} {exit:?}, {around:?}, {:?}, stderr {said:?}", report.error)
    })
}

async fn submit(world: &World, n: u64, planned: &Planned) -> Result<Running, String> {
    loop {
        let request = request(&world.root, &world.image, n, planned);
        // Before it is there: the killer must not take its launcher for a slot's.
        let id = request.run_id.clone();
        world.busy.lock().unwrap().insert(id.clone());
        match world.executor.submit(Submission { request, tenant: None }) {
            Ok(running) => return Ok(running),
            Err(Refused::Full { retry_after }) => {
                world.busy.lock().unwrap().remove(&id);
                *world.counts.lock().unwrap().entry("told to come back".into()).or_default() += 1;
                tokio::time::sleep(retry_after.min(Duration::from_secs(1))).await;
            }
            Err(other) => return Err(other.to_string()),
        }
    }
}

async fn live(
    world: &World,
    n: u64,
    planned: &Planned,
    running: Running,
    around: &mut Circumstances,
) -> Result<Report, String> {
    let id = running.run_id.clone();
    let (mut chunks, report) = running.split();
    if let Some(victim) = planned.strike {
        // It says that it is on, or it never was.
        if chunks.recv().await.is_some() {
            let spawner = world.spawner;
            let struck = tokio::task::spawn_blocking(move || strike_run(spawner, n, victim)).await;
            around.struck = struck.map_err(|e| e.to_string())?;
            if !around.struck {
                // It was a stray's victim before.
                around.cancelled = world.executor.cancel(&id).await == CancelOutcome::Cancelled;
            }
        }
        return Ok(report.await);
    }
    tokio::pin!(report);
    let Some(delay) = planned.cancel else { return Ok(report.await) };
    tokio::select! {
        report = &mut report => return Ok(report),
        () = tokio::time::sleep(delay) => {}
    }
    around.cancelled = world.executor.cancel(&id).await == CancelOutcome::Cancelled;
    // "Returns when its report is there."
    tokio::time::timeout(Duration::from_secs(5), report)
        .await
        .map_err(|_| "cancelled, and there is no report".to_owned())
}

/// Kills something that is made ahead, now and then: the intervals are part of the storm.
async fn kill_at_random(world: Arc<World>) {
    let mut dice = Dice::new(world.seed, KILLER);
    while !world.over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(200 + dice.below(1200))).await;
        let busy: Vec<String> = world.busy.lock().unwrap().iter().cloned().collect();
        let (spawner, mut own) = (world.spawner, Dice::new(dice.next(), 0));
        // Counted before: a run that ends at once must know of it.
        world.strays.fetch_add(1, Ordering::SeqCst);
        let killed = tokio::task::spawn_blocking(move || stray(spawner, &busy, &mut own)).await.unwrap();
        // A run that was submitted while it looked may have been hit too.
        world.strays.fetch_add(1, Ordering::SeqCst);
        if let Some(what) = killed {
            *world.counts.lock().unwrap().entry(format!("killed at random: {what}")).or_default() += 1;
        }
    }
}

/// The least that the process and the spawner had in the second third of the storm, and in the last: descriptors of the spawner, KiB of both. The
/// least, because output on its way is memory too.
#[derive(Default)]
struct Flat {
    middle: Option<[u64; 3]>,
    last: Option<[u64; 3]>,
}

fn least(so_far: Option<[u64; 3]>, now: [u64; 3]) -> Option<[u64; 3]> {
    Some(so_far.map_or(now, |old| [0, 1, 2].map(|i| old[i].min(now[i]))))
}

/// Looks at the host all along, and says how far it is.
async fn watch(world: Arc<World>) -> Flat {
    let (mut flat, mut told) = (Flat::default(), Instant::now());
    loop {
        let last = world.over.load(Ordering::Relaxed);
        let own = Arc::clone(&world);
        tokio::task::spawn_blocking(move || own.seen.lock().unwrap().look(own.spawner)).await.unwrap();
        let me = std::process::id();
        let now = [host::descriptors(world.spawner) as u64, host::memory(me), host::memory(world.spawner)];
        let runs = world.next.load(Ordering::Relaxed);
        match world.bound.part(runs, world.since.elapsed()) {
            part if part > 0.67 => flat.last = least(flat.last, now),
            part if part > 0.33 => flat.middle = least(flat.middle, now),
            _ => {}
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("soak: {} s, {runs} runs, {now:?}", world.since.elapsed().as_secs());
        }
        if last {
            return flat;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Shuts down, looks whether everything is as it was, and prints the counts. Gives what was wrong.
async fn finish(world: Arc<World>, flat: Flat) -> Vec<String> {
    let pools = world.executor.pools();
    let shut = tokio::time::timeout(HANG, world.executor.shutdown()).await;
    let Some(world) = Arc::into_inner(world) else { panic!("a task of the storm lives on") };
    drop(world.executor);
    let mut wrong = world.wrong.into_inner().unwrap();
    if shut.is_err() {
        wrong.push("the shutdown hangs".into());
    }
    if let (Some(middle), Some(last)) = (flat.middle, flat.last) {
        let [fds, kib, spawner_kib] = [0, 1, 2].map(|i| last[i].saturating_sub(middle[i]));
        println!(
            "soak: the least of the second third {middle:?}, of the last {last:?} (spawner's descriptors, KiB, KiB)"
        );
        for (grown, most, what) in [
            (fds, 4, "descriptors of the spawner"),
            (kib, GROWTH_KIB, "KiB of the daemon"),
            (spawner_kib, GROWTH_KIB, "KiB of the spawner"),
        ] {
            if grown > most {
                wrong.push(format!("{what}: {grown} more than in the second third of the storm"));
            }
        }
    }
    wrong.extend(host::children().into_iter().map(|child| format!("left behind: {child}")));
    let seen = world.seen.into_inner().unwrap();
    wrong.extend(seen.rest().into_iter().map(|what| format!("left behind: {what}")));
    println!(
        "soak: {} runs in {} s, {} sandboxes seen",
        world.next.into_inner().min(match world.bound {
            Bound::Runs(all) => all,
            Bound::Minutes(_) => u64::MAX,
        }),
        world.since.elapsed().as_secs(),
        seen.sandboxes()
    );
    for pool in pools {
        println!("soak: pool: {:?}, last error {:?}", pool.counts, pool.last_error);
    }
    for (what, count) in world.counts.into_inner().unwrap() {
        println!("soak: {count:6} {what}");
    }
    println!("soak: {} wrong; CREEL_SOAK_SEED={} repeats the choices", wrong.len(), world.seed);
    wrong
}

fn random() -> u64 {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
    u64::from(u32::from_le_bytes(bytes))
}
