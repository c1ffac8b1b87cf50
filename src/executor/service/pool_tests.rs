//! The pools, over a spawner that is a thread of the test and makes no sandboxes: what launchers say is said by it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::config::example;
use super::*;
use crate::executor::job::{Answer, Job, Planned, What};
use crate::executor::request::{Lang, Program};
use crate::executor::run_id::new_run_id;
use crate::sandbox::channel;
use crate::sandbox::outcome::{Delivery, End, Event, Order, Outcome, Parcel};

/// What the launchers of slots and zygotes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Wait, and run what is delivered.
    Well,
    /// Say that the slot is dead when something is delivered.
    DeadAtDelivery,
    /// Go without a word then.
    GoneAtDelivery,
    /// End before they are ready.
    NeverReady,
}

/// The spawner's place.
struct Fake {
    act: Mutex<Act>,
    /// Of what is made ahead: control sockets of those who live, so that a test can end one.
    waiting: Mutex<Vec<OwnedFd>>,
    /// What was delivered.
    delivered: Mutex<Vec<(Delivery, Parcel)>>,
    zygotes: AtomicUsize,
}

fn world(act: Act, pools: Vec<PoolConfig>) -> (Executor, Arc<Fake>) {
    let (ours, theirs) = channel::pair().unwrap();
    let fake = Arc::new(Fake {
        act: Mutex::new(act),
        waiting: Mutex::default(),
        delivered: Mutex::default(),
        zygotes: AtomicUsize::new(0),
    });
    let spawning = Arc::clone(&fake);
    std::thread::spawn(move || {
        let socket = Arc::new(theirs);
        loop {
            let (packet, fds) = channel::receive(socket.as_fd(), channel::LONG).unwrap_or_default();
            if packet.is_empty() {
                return;
            }
            let (fake, socket) = (Arc::clone(&spawning), Arc::clone(&socket));
            std::thread::spawn(move || {
                fake.launcher(&packet, fds);
                let id = Job::run_id_of(&packet).unwrap();
                let _ = channel::send(socket.as_fd(), id.as_bytes(), &[]);
            });
        }
    });
    // Whose end nobody has to wait for: it is no child of ours.
    let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    let spawner = Spawner { socket: ours, pidfd: pidfd.unwrap() };
    let config = Config { running: 4, queue: 4, refills: 1, pools };
    (Executor::new(spawner, config).unwrap(), fake)
}

impl Fake {
    fn launcher(&self, packet: &[u8], fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let control = fds.next().unwrap();
        let (job, _, attached) = Job::unpack(packet, &mut fds).unwrap();
        let act = *self.act.lock().unwrap();
        let planned = Planned {
            enforced: Default::default(),
            limits: job.limits.clone(),
            notes: Vec::new(),
            owner: 0,
            program: "python3".into(),
            path_env: "/bin".into(),
            env: vec![("图".into(), "像".into())],
        };
        // Who asked may have given up.
        let _ = Answer::Planned(planned).send(control.as_fd());
        let (go, _) = channel::receive(control.as_fd(), channel::LONG).unwrap_or_default();
        if go.first() != Some(&(Order::Go as u8)) {
            return;
        }
        if let What::Run { .. } = job.what {
            return run(&control, attached.output);
        }
        if matches!(job.what, What::Zygote { .. }) {
            self.zygotes.fetch_add(1, Ordering::SeqCst);
        }
        if act == Act::NeverReady {
            let end = End::SetUp { step: "import 没有".into(), errno: libc::ENOENT };
            return say(&control, &Event::Ended(outcome(end)));
        }
        self.waiting.lock().unwrap().push(control.try_clone().unwrap());
        say(&control, &Event::Ready);
        let (order, fds) = channel::receive(control.as_fd(), channel::LONG).unwrap_or_default();
        if order.first() != Some(&(Order::Deliver as u8)) {
            return;
        }
        let delivery: Delivery = serde_json::from_slice(&order[1..]).unwrap();
        let mut fds = fds.into_iter();
        let mut text = Vec::new();
        let mut parcel = std::fs::File::from(fds.next().unwrap());
        io::Read::read_to_end(&mut parcel, &mut text).unwrap();
        self.delivered.lock().unwrap().push((delivery, Parcel::from_bytes(&text).unwrap()));
        match act {
            Act::DeadAtDelivery => say(&control, &Event::Ended(outcome(End::Lost("tampered with".into())))),
            Act::GoneAtDelivery => drop(rustix::net::shutdown(&control, rustix::net::Shutdown::Both)),
            _ => run(&control, fds.take(2).collect()),
        }
    }

    /// Ends the launcher that has waited longest.
    fn end_one(&self) {
        let control = self.waiting.lock().unwrap().remove(0);
        rustix::net::shutdown(&control, rustix::net::Shutdown::Both).unwrap();
    }

    fn set(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }
}

fn run(control: &OwnedFd, output: Vec<OwnedFd>) {
    say(control, &Event::Started);
    rustix::io::write(&output[0], "好\n".as_bytes()).unwrap();
    drop(output);
    say(control, &Event::Ended(outcome(End::Exited)));
    // Until the outputs are harvested.
    while channel::receive(control.as_fd(), channel::SHORT).is_ok_and(|(data, _)| !data.is_empty()) {}
}

fn say(control: &OwnedFd, event: &Event) {
    let _ = channel::send(control.as_fd(), &serde_json::to_vec(event).unwrap(), &[]);
}

fn outcome(end: End) -> Outcome {
    Outcome {
        end,
        status: Some(0),
        wall_us: 1000,
        cpu_us: None,
        memory_peak: None,
        pids_peak: None,
        oom_kills: 0,
        paths_hidden: true,
    }
}

/// Runs what fits the pool; how it started.
async fn start_of(executor: &Executor, pool: &PoolConfig, tenant: Option<&str>) -> &'static str {
    let mut request = pool.request();
    request.run_id = new_run_id().unwrap();
    request.program = Program::Script { lang: Lang::Python, code: "代码".into(), args: vec!["参".into()] };
    request.env.insert("键".into(), "值".into());
    request.limits.timeout = Duration::from_millis(1500);
    let tenant = tenant.map(str::to_owned);
    let report = executor.submit(Submission { request, tenant }).unwrap().report().await;
    assert_eq!((report.error_category, report.stdout.as_str()), (Category::Ok, "好\n"), "{report:#?}");
    assert_eq!(report.limits.timeout, Duration::from_millis(1500));
    report.start
}

/// Waits until a pool is as it should be.
async fn until(executor: &Executor, what: &str, condition: impl Fn(&PoolStatus) -> bool) {
    let waiting = async {
        while !executor.pools().iter().any(&condition) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(came.is_ok(), "never {what}: {:?}", executor.pools());
}

fn full(pool: &PoolConfig) -> impl Fn(&PoolStatus) -> bool {
    let size = pool.size;
    move |s| (s.ready, s.starting) == (size, 0)
}

#[tokio::test]
async fn a_run_takes_a_slot_and_the_shelf_is_filled_again() {
    let pool = example();
    let (executor, fake) = world(Act::Well, vec![pool.clone()]);
    until(&executor, "full", full(&pool)).await;
    assert_eq!(start_of(&executor, &pool, None).await, "warm");
    until(&executor, "full again", full(&pool)).await;
    let (delivery, parcel) = fake.delivered.lock().unwrap()[0].clone();
    assert_eq!(delivery, Delivery { timeout_ms: 1500, stdin: false, inputs: false, skills: vec![] });
    assert_eq!((parcel.code, parcel.args), ("代码".into(), vec!["参".into()]));
    // As a cold start would have it: fixed, the image's, the request's.
    for name in ["HOME=/work", "PATH=/bin", "图=像", "键=值"] {
        assert!(parcel.env.contains(&name.as_bytes().to_vec()), "{name}");
    }
    let counts = executor.pools()[0].counts;
    assert_eq!(counts, Counts { hits: 1, ..Counts::default() });
    // One that does not fit is no miss.
    let mut other = pool.clone();
    other.limits.memory += 1;
    assert_eq!(start_of(&executor, &other, None).await, "cold");
    assert_eq!(executor.pools()[0].counts, counts);
    executor.shutdown().await;
}

#[tokio::test]
async fn a_slot_that_fails_at_delivery_costs_no_run() {
    for act in [Act::DeadAtDelivery, Act::GoneAtDelivery] {
        let pool = example();
        let (executor, fake) = world(act, vec![pool.clone()]);
        until(&executor, "full", full(&pool)).await;
        executor.stop_refilling();
        // Both slots are tried, and then it goes cold.
        assert_eq!(start_of(&executor, &pool, None).await, "cold");
        assert_eq!(fake.delivered.lock().unwrap().len(), 2);
        let counts = executor.pools()[0].counts;
        assert_eq!((counts.hits, counts.misses, counts.died), (2, 1, 2));
        executor.shutdown().await;
    }
}

#[tokio::test]
async fn a_slot_whose_launcher_ends_is_replaced() {
    let pool = example();
    let (executor, fake) = world(Act::Well, vec![pool.clone()]);
    until(&executor, "full", full(&pool)).await;
    fake.end_one();
    until(&executor, "noticed", |s| s.counts.died == 1).await;
    until(&executor, "full again", full(&pool)).await;
    executor.shutdown().await;
}

#[tokio::test]
async fn a_slot_that_is_too_old_is_replaced_and_not_used() {
    let pool = PoolConfig { size: 1, max_age: Duration::from_millis(30), ..example() };
    let (executor, _) = world(Act::Well, vec![pool.clone()]);
    until(&executor, "expired", |s| s.counts.expired >= 2).await;
    assert_eq!(executor.pools()[0].counts.died, 0);
    executor.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_made_is_reported_and_runs_go_cold() {
    for zygote in [false, true] {
        let pool = PoolConfig { zygote, ..example() };
        let (executor, fake) = world(Act::NeverReady, vec![pool.clone()]);
        let stop = executor.filled(0).await.unwrap_err();
        assert_eq!(stop.error.code, "sandbox.slot");
        assert!(stop.error.message.contains("import 没有"), "{}", stop.error.message);
        assert_eq!(start_of(&executor, &pool, None).await, "cold");
        assert!(executor.pools()[0].last_error.as_ref().unwrap().contains("import 没有"));
        // It is tried again, after a pause.
        fake.set(Act::Well);
        until(&executor, "full", full(&pool)).await;
        assert_eq!(executor.pools()[0].last_error, None);
        executor.shutdown().await;
    }
}

#[tokio::test]
async fn a_zygote_is_replaced_after_its_forks_and_when_it_ends() {
    let pool = PoolConfig { zygote: true, size: 1, zygote_forks: 2, ..example() };
    let (executor, fake) = world(Act::Well, vec![pool.clone()]);
    for _ in 0..4 {
        until(&executor, "full", full(&pool)).await;
        assert_eq!(start_of(&executor, &pool, None).await, "zygote");
    }
    until(&executor, "full", full(&pool)).await;
    assert!(fake.zygotes.load(Ordering::SeqCst) >= 2);
    executor.shutdown().await;

    let pool = PoolConfig { zygote: true, size: 1, ..example() };
    let (executor, fake) = world(Act::Well, vec![pool.clone()]);
    until(&executor, "full", full(&pool)).await;
    // The first that waited is the zygote.
    fake.end_one();
    until(&executor, "noticed", |s| s.last_error.is_some() || s.zygote.is_some_and(|z| !z.ready)).await;
    // Its slot is as good as before.
    assert_eq!(start_of(&executor, &pool, None).await, "zygote");
    until(&executor, "there again", |s| s.zygote.is_some_and(|z| z.ready)).await;
    assert_eq!(fake.zygotes.load(Ordering::SeqCst), 2);
    executor.shutdown().await;
}

#[tokio::test]
async fn tenants_share_no_slots() {
    let pool = PoolConfig { per_tenant: true, ..example() };
    let (executor, _) = world(Act::Well, vec![pool.clone()]);
    assert!(executor.pools().is_empty());
    // The first run of a tenant finds nothing, and has slots made for those after it.
    assert_eq!(start_of(&executor, &pool, Some("甲")).await, "cold");
    until(&executor, "full", |s| s.tenant.as_deref() == Some("甲") && full(&pool)(s)).await;
    assert_eq!(start_of(&executor, &pool, Some("乙")).await, "cold");
    assert_eq!(start_of(&executor, &pool, Some("甲")).await, "warm");
    executor.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_what_waits() {
    let pool = PoolConfig { zygote: true, size: 5, ..example() };
    let (executor, fake) = world(Act::Well, vec![pool.clone()]);
    until(&executor, "full", full(&pool)).await;
    // Returns only when the spawner has told of the end of all six.
    executor.shutdown().await;
    for control in fake.waiting.lock().unwrap().iter() {
        assert!(channel::receive(control.as_fd(), 1).is_ok_and(|(data, _)| data.is_empty()));
    }
    assert!(executor.submit(Submission { request: pool.request(), tenant: None }).is_err());
}
