//! Sandboxes that are made ahead.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use creel::executor::report::Report;
use creel::executor::request::{Input, Request, Skill};
use creel::executor::service::{Config, Executor, PoolConfig, Submission};
use rustix::process::Signal;

use crate::common::footprint::{children, command_line, tree};
use crate::common::{kill, wait_until};
use crate::support::{World, assert_ok, end, submit, tests};

const SOON: Duration = Duration::from_secs(20);

/// A pool for the requests of [`World::python`].
fn pool(world: &World, zygote: bool) -> PoolConfig {
    let like = world.python("x", "");
    PoolConfig {
        image: like.image,
        limits: like.limits,
        seccomp: like.seccomp,
        env: like.env,
        allow_unenforced: like.allow_unenforced,
        preload: vec!["json".into(), "decimal".into()],
        zygote,
        per_tenant: false,
        size: 1,
        hot: 0,
        patience: Duration::ZERO,
        max_age: Duration::from_secs(600),
        zygote_forks: 1000,
        zygote_age: Duration::from_secs(600),
    }
}

async fn filled(world: &mut World, pools: Vec<PoolConfig>) -> Executor {
    let n = pools.len();
    let executor = world.executor_of(Config { running: 2, queue: 10, refills: 1, pools });
    for number in 0..n {
        executor.filled(number).await.unwrap();
    }
    executor
}

async fn run(executor: &Executor, request: Request) -> Report {
    let report = submit(executor, request).report().await;
    assert_ok(&report);
    report
}

/// Runs what says where it is, from a slot.
async fn hit(world: &World, executor: &Executor) -> Report {
    // A failure that is being mended is none to wait for.
    assert!(wait_until(|| executor.pools()[0].ready > 0, SOON));
    let report =
        run(executor, world.python("x", "import os\nprint(os.getpid(), os.getppid(), hash('汉'))")).await;
    assert!(report.stdout.starts_with("2 1 "), "{}", report.stdout);
    report
}

/// Host pids of the waiting Pythons (and zygotes) below this process.
fn pythons() -> Vec<u32> {
    let mut pids = tree(std::process::id());
    pids.retain(|pid| command_line(*pid).starts_with("python3"));
    pids
}

fn is_in_pid_namespace(pid: u32) -> bool {
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|ns| ns != own)
}

/// Of the slot that waits.
fn waiting() -> u32 {
    // A fork is not a child of its launcher: it is found by what it is.
    let mut found: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| command_line(*pid).starts_with("python3") && is_in_pid_namespace(*pid))
        .filter(|pid| tree(std::process::id()).contains(pid))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

tests! {
    async fn runs_are_hits_in_both_kinds(world) {
        let pools = vec![pool(&world, true)];
        let executor = filled(&mut world, pools).await;
        for n in 0..3 {
            executor.filled(0).await.unwrap();
            let mut request = world.python(&n.to_string(), "
                import os, sys
                text = open('/inputs/00-数据.txt').read() + open('/skill/pdf/说明.md').read()
                open('/outputs/结果.txt', 'w').write(text + os.environ['名'] + sys.argv[1] + sys.stdin.read())
                print(text)
            ");
            let input = world.root.join("数据.txt");
            fs::write(&input, "数").unwrap();
            let skill = world.root.join("skill");
            fs::create_dir_all(&skill).unwrap();
            fs::write(skill.join("说明.md"), "明").unwrap();
            request.inputs.push(Input { path: input.clone(), name: None });
            request.skills.push(Skill { dir: skill, id: "pdf".into() });
            request.env.insert("名".into(), "值".into());
            if let creel::executor::request::Program::Script { args, .. } = &mut request.program {
                args.push("参".into());
            }
            request.stdin = creel::executor::request::Stdin::File(fs::File::open(&input).unwrap());
            let output = request.output_dir.clone();
            let report = run(&executor, request).await;
            assert_eq!((report.start, report.stdout.as_str()), ("zygote", "数明\n"));
            assert_eq!(report.enforced["host_paths"], "hidden");
            assert_eq!(fs::read_to_string(output.join("结果.txt")).unwrap(), "数明值参数");
        }
        assert_eq!(executor.pools()[0].counts.hits, 3);
        executor.shutdown().await;
    }

    async fn a_slot_serves_once_and_is_replaced(world) {
        let pools = vec![pool(&world, false)];
        let executor = filled(&mut world, pools).await;
        let first = waiting();
        let report = run(&executor, world.python("x", "open('/work/留', 'w').write('x')\nopen('/tmp/留', 'w')")).await;
        assert_eq!(report.start, "warm");
        let there = "import os\nprint(os.listdir('/work'), os.listdir('/tmp'))";
        executor.filled(0).await.unwrap();
        assert_ne!(waiting(), first);
        let report = run(&executor, world.python("x", there)).await;
        assert_eq!((report.start, report.stdout.as_str()), ("warm", "['entry.py'] []\n"));
        executor.shutdown().await;
    }

    async fn a_slot_that_died_is_replaced(world) {
        let pools = vec![pool(&world, true)];
        let executor = filled(&mut world, pools).await;
        kill(waiting(), Signal::KILL);
        assert!(wait_until(|| executor.pools()[0].counts.died == 1, SOON));
        assert_eq!(hit(&world, &executor).await.start, "zygote");
        executor.shutdown().await;
    }

    async fn a_slot_that_was_tampered_with_is_not_used(world) {
        let pools = vec![pool(&world, true)];
        let executor = filled(&mut world, pools).await;
        // Stopped from outside.
        let slot = waiting();
        kill(slot, Signal::STOP);
        let status = || fs::read_to_string(format!("/proc/{slot}/status")).unwrap();
        assert!(wait_until(|| status().contains("State:\tT"), SOON));
        let report = run(&executor, world.python("x", "print('好')")).await;
        // Cold, or in the slot that was made meanwhile.
        assert_eq!(report.stdout, "好\n");
        assert!(report.notes.iter().any(|n| n.contains("is in state T")), "{:?}", report.notes);
        assert_eq!(executor.pools()[0].counts.died, 1);
        // Somebody else is in its cgroup.
        executor.filled(0).await.unwrap();
        let mut guest = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
        let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", waiting())).unwrap();
        let place = cgroups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let path = path.contains("run_").then(|| path.trim_start_matches('/'))?;
            let mount = if controllers.is_empty() { Path::new("/sys/fs/cgroup").into() } else {
                let first = controllers.split(',').next()?;
                Path::new("/sys/fs/cgroup").join(first)
            };
            let procs = mount.join(path).join("cgroup.procs");
            (controllers.is_empty() || controllers.contains("pids")).then_some(procs).filter(|p| p.exists())
        });
        fs::write(place.expect("the slot's cgroup"), guest.id().to_string()).unwrap();
        run(&executor, world.python("x", "print('好')")).await;
        assert_eq!(executor.pools()[0].counts.died, 2);
        // Nothing of anybody else's is ended with the slot but by the cgroup's own kill.
        let _ = guest.kill();
        guest.wait().unwrap();
        assert_eq!(hit(&world, &executor).await.start, "zygote");
        executor.shutdown().await;
    }

    async fn a_slot_that_is_too_old_is_replaced(world) {
        let old = PoolConfig { max_age: Duration::from_millis(300), ..pool(&world, true) };
        let pools = vec![old];
        let executor = filled(&mut world, pools).await;
        assert!(wait_until(|| executor.pools()[0].counts.expired >= 2, SOON));
        assert_eq!(hit(&world, &executor).await.start, "zygote");
        executor.shutdown().await;
    }

    async fn a_zygote_is_recycled(world) {
        let few = PoolConfig { zygote_forks: 2, ..pool(&world, true) };
        let pools = vec![few];
        let executor = filled(&mut world, pools).await;
        // Brothers have the seed of their hashes in common, and only they.
        let mut seeds = Vec::new();
        for _ in 0..6 {
            let report = hit(&world, &executor).await;
            assert_eq!(report.start, "zygote");
            seeds.push(report.stdout);
        }
        seeds.dedup();
        assert!((3..6).contains(&seeds.len()), "{seeds:?}");
        executor.shutdown().await;
    }

    async fn a_zygote_that_dies_takes_no_run_with_it(world) {
        let pools = vec![PoolConfig { size: 2, ..pool(&world, true) }];
        let executor = filled(&mut world, pools).await;
        assert!(wait_until(|| executor.pools()[0].ready == 2, SOON));
        let mut running = submit(&executor, world.python("x", "print('始')\nimport sys\nprint(sys.stdin.read() + '终')"));
        crate::support::line(&mut running).await;
        let zygote: Vec<u32> = pythons().into_iter().filter(|pid| !is_in_pid_namespace(*pid)).collect();
        assert_eq!(zygote.len(), 1, "{zygote:?}");
        kill(zygote[0], Signal::KILL);
        let report = running.report().await;
        assert_ok(&report);
        assert_eq!((report.start, report.stdout.as_str()), ("zygote", "始\n终\n"));
        assert!(wait_until(|| executor.pools()[0].zygote.is_some_and(|z| z.ready && z.age < SOON), SOON));
        for _ in 0..3 {
            assert_eq!(hit(&world, &executor).await.start, "zygote");
        }
        executor.shutdown().await;
    }

    async fn a_tenant_has_a_zygote_of_its_own(world) {
        let own = PoolConfig { per_tenant: true, ..pool(&world, true) };
        let executor = world.executor_of(Config { running: 2, queue: 2, refills: 2, pools: vec![own] });
        let mut seeds = Vec::new();
        for tenant in ["甲", "乙", "甲", "乙"] {
            let ask = || {
                let request = world.python("x", "print(hash('汉'))");
                executor.submit(Submission { request, tenant: Some(tenant.into()) }).unwrap()
            };
            // The first one only makes the tenant known.
            let mut report = ask().report().await;
            let ready = || executor.pools().iter().any(|p| p.tenant.as_deref() == Some(tenant) && p.ready > 0);
            assert!(wait_until(ready, SOON));
            if report.start == "cold" {
                report = ask().report().await;
            }
            assert_ok(&report);
            assert_eq!(report.start, "zygote");
            seeds.push(report.stdout);
        }
        assert_ne!(seeds[0], seeds[1]);
        assert_eq!((&seeds[0], &seeds[1]), (&seeds[2], &seeds[3]));
        executor.shutdown().await;
    }

    async fn what_cannot_be_imported_is_told(world) {
        let missing = PoolConfig { preload: vec!["没有这个模块".into()], ..pool(&world, true) };
        let executor = world.executor_of(Config { running: 1, queue: 1, refills: 1, pools: vec![missing] });
        let stop = executor.filled(0).await.unwrap_err();
        assert_eq!(stop.error.code, "sandbox.slot");
        assert!(stop.error.message.contains("No module named '没有这个模块'"), "{}", stop.error.message);
        assert_eq!(run(&executor, world.python("x", "print(1)")).await.start, "cold");
        executor.shutdown().await;
    }

    async fn a_module_with_threads_is_refused(world) {
        let bundle = crate::common::images::with_module(
            &world.root,
            "线程",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
        );
        let threads = PoolConfig {
            image: bundle.to_str().unwrap().into(),
            preload: vec!["线程".into()],
            ..pool(&world, true)
        };
        let executor = world.executor_of(Config { running: 1, queue: 1, refills: 1, pools: vec![threads] });
        let stop = executor.filled(0).await.unwrap_err();
        assert!(stop.error.message.contains("started threads, so it can't be forked"), "{}", stop.error.message);
        executor.shutdown().await;
    }

    async fn other_requests_go_cold(world) {
        let pools = vec![pool(&world, true)];
        let executor = filled(&mut world, pools).await;
        let mut others = vec![world.bash("x", "echo 1"), world.python("x", "print(1)"), world.python("x", "print(1)")];
        others[1].limits.memory += 1 << 20;
        others[2].env.insert("PYTHONHASHSEED".into(), "0".into());
        for request in others {
            assert_eq!(run(&executor, request).await.start, "cold");
        }
        let mut request = world.python("x", "import time\ntime.sleep(100)");
        request.limits.timeout = Duration::from_millis(200);
        let report = submit(&executor, request).report().await;
        assert_eq!((end(&report).0.as_str(), report.start), ("timeout", "zygote"));
        assert!(children(std::process::id()).len() == 1);
        executor.shutdown().await;
    }
}
