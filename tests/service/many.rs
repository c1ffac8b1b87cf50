//! Many runs.

use std::fs;
use std::time::Duration;

use creel::executor::service::{Config, PoolConfig, Submission};

use crate::common::footprint::children;
use crate::support::{assert_ok, end, submit, tests};

const RUNS: usize = 40;

tests! {
    async fn runs_at_once_do_not_disturb_each_other(world) {
        let executor = world.executor(8, RUNS);
        let code = |n: usize| format!(
            "import os\nassert os.listdir('/work') == ['entry.py'] and not os.listdir('/outputs')\n\
             others = [p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', str(os.getpid()))]\n\
             open('/outputs/结果.txt', 'w').write('{n}')\nprint('第', {n}, others, os.getuid())"
        );
        let runs: Vec<_> = (0..RUNS).map(|n| submit(&executor, world.python(&n.to_string(), &code(n)))).collect();
        assert!(executor.load().0 <= 8);
        for (n, running) in runs.into_iter().enumerate() {
            let report = running.report().await;
            assert_ok(&report);
            assert_eq!(report.stdout, format!("第 {n} [] 10001\n"));
            assert_eq!((report.start, report.produced.len()), ("cold", 1));
            let kept = fs::read_to_string(world.root.join(format!("out-{n}/结果.txt"))).unwrap();
            assert_eq!(kept, n.to_string());
        }
        assert_eq!(executor.load(), (0, 0));
        executor.shutdown().await;
    }

    async fn two_hundred_runs_leave_it_flat(world) {
        let executor = world.executor(8, 200);
        let me = std::process::id();
        let spawner = children(me)[0];
        let mut before = None;
        // The first ones fill caches and start the runtime's threads.
        for count in [40, 200] {
            for _ in 0..count / 20 {
                // Not all at once: those that wait hold memory, as they should.
                let runs: Vec<_> = (0..20).map(|_| submit(&executor, world.bash("x", "echo 好"))).collect();
                for running in runs {
                    assert_eq!(running.report().await.stdout, "好\n");
                }
            }
            let now = [me, spawner].map(|pid| (descriptors(pid), memory(pid)));
            let Some(before) = before.replace(now) else { continue };
            for ((fds_before, kib_before), (fds, kib)) in before.into_iter().zip(now) {
                assert!(fds <= fds_before + 4, "{fds_before} descriptors became {fds}");
                assert!(kib <= kib_before + 4096, "{kib_before} KiB became {kib} KiB");
            }
        }
        executor.shutdown().await;
    }

    async fn different_ends(world) {
        let executor = world.executor(3, 20);
        let cases = [
            ("print('a')", "ok", "", Some(0)),
            ("raise SystemExit(9)", "script_error", "", Some(9)),
            ("import os; os.abort()", "script_error", "", Some(134)),
            ("x = bytearray(400 << 20)", "oom", "run.oom", Some(-2)),
            ("import time; time.sleep(100)", "timeout", "run.timeout", Some(-1)),
            ("open('/outputs/x', 'wb').write(bytes(1 << 20 | 1))", "rejected", "outputs.too_large", None),
        ];
        let runs: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(n, (code, ..))| {
                let mut request = world.python(&format!("end-{n}"), code);
                request.limits.memory = 128 << 20;
                request.limits.output = 1 << 20;
                // Long for the others even on a machine that is busy.
                request.limits.timeout = Duration::from_secs(if n == 4 { 1 } else { 100 });
                (n, submit(&executor, request))
            })
            .collect();
        for (n, running) in runs {
            let report = running.report().await;
            let (code, category, error, exit) = cases[n];
            assert_eq!(end(&report), (category.into(), error.into()), "{code}: {report:#?}");
            assert_eq!(report.exit_code, exit, "{code}");
            assert!(report.timings_ms.total > 0.0 && report.timings_ms.launch > 0.0);
        }
        executor.shutdown().await;
    }

    async fn a_plan_that_fails(world) {
        let executor = world.executor(2, 2);
        let mut request = world.python("x", "print(1)");
        request.image = "没有".into();
        let report = submit(&executor, request).report().await;
        assert_eq!(end(&report), ("rejected".into(), "image.not_found".into()));
        let mut request = world.python("x", "print(1)");
        request.seccomp.json = "{".into();
        let report = submit(&executor, request).report().await;
        assert_eq!(end(&report), ("rejected".into(), "profile.seccomp".into()));
        let mut request = world.python("x", "print(1)");
        request.inputs.push(creel::executor::request::Input { path: "/不存在".into(), name: None });
        let report = submit(&executor, request).report().await;
        assert_eq!(end(&report), ("rejected".into(), "input.unreadable".into()));
        // More than fits into a packet.
        let mut request = world.python("x", &format!("print(len('{}'))", "汉".repeat(100_000)));
        request.env.insert("大".into(), "x".repeat(100_000));
        let report = submit(&executor, request).report().await;
        assert_eq!(report.stdout, "100000\n");
        executor.shutdown().await;
    }

    async fn a_pool_that_cannot_be_filled(world) {
        let like = world.python("x", "");
        let pool = PoolConfig {
            image: like.image,
            limits: like.limits,
            seccomp: like.seccomp,
            env: like.env,
            allow_unenforced: like.allow_unenforced,
            preload: vec!["没有这个模块".into()],
            zygote: false,
            per_tenant: false,
            size: 1,
            hot: 1,
            patience: Duration::ZERO,
            max_age: Duration::from_secs(60),
            zygote_forks: 10,
            zygote_age: Duration::from_secs(60),
        };
        let executor =
            world.executor_of(Config { running: 2, queue: 2, refills: 1, pools: vec![pool] });
        let stop = executor.filled(0).await.unwrap_err();
        assert_eq!(stop.error.code, "sandbox.slot");
        let request = world.python("x", "print('冷')");
        let report =
            executor.submit(Submission { request, tenant: Some("甲".into()) }).unwrap().report().await;
        assert_ok(&report);
        assert_eq!((report.start, report.stdout.as_str()), ("cold", "冷\n"));
        let status = &executor.pools()[0];
        assert_eq!((status.ready, status.counts.hits, status.counts.misses), (0, 0, 1));
        assert!(status.last_error.is_some() && status.zygote.is_none());
        executor.shutdown().await;
    }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// KiB that are this process's alone.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
