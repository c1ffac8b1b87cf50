//! Cancelling: afterwards nothing of the run lives.

use creel::executor::service::{CancelOutcome, Refused, Submission};

use crate::common::footprint::{Footprint, with_marker};
use crate::common::marker;
use crate::support::{assert_ok, end, line, submit, tests};

const HOLD: &str = "import time\nprint('on')\ntime.sleep(100)";

fn cancelled() -> (String, String) {
    ("cancelled".into(), "run.cancelled".into())
}

tests! {
    async fn while_it_waits(world) {
        let executor = world.executor(1, 3);
        let mut first = submit(&executor, world.python("a", HOLD));
        line(&mut first).await;
        let second = submit(&executor, world.python("b", "print('never')"));
        let third = submit(&executor, world.python("c", "print('三')"));
        assert_eq!(executor.cancel(&second.run_id).await, CancelOutcome::Cancelled);
        assert_eq!(executor.load(), (1, 1));
        let id = second.run_id.clone();
        let report = second.report().await;
        assert_eq!(end(&report), cancelled());
        assert_eq!((report.stdout.as_str(), report.exit_code), ("", None));
        // It is over, and others never were.
        assert_eq!(executor.cancel(&id).await, CancelOutcome::Unknown);
        assert_eq!(executor.cancel("run_0").await, CancelOutcome::Unknown);
        assert_eq!(executor.cancel(&first.run_id).await, CancelOutcome::Cancelled);
        assert_ok(&third.report().await);
        executor.shutdown().await;
    }

    async fn while_it_starts(world) {
        let executor = world.executor(4, 0);
        for n in 0..30 {
            let running = submit(&executor, world.python("x", HOLD));
            // At every moment of the start: after so many turns of the runtime.
            for _ in 0..n * 40 {
                tokio::task::yield_now().await;
            }
            assert_eq!(executor.cancel(&running.run_id).await, CancelOutcome::Cancelled);
            let report = running.report().await;
            assert_eq!(end(&report), cancelled(), "{report:#?}");
        }
        executor.shutdown().await;
    }

    async fn with_children_that_ignore_signals(world) {
        let executor = world.executor(2, 0);
        let word = marker("deaf");
        let code = format!(
            "trap '' TERM INT HUP\nfor n in 1 2 3; do (exec -a {word} setsid bash -c 'trap \"\" TERM INT HUP; \
             while :; do read -t 100 < /dev/zero; done; :' {word}) & done\n\
             until [ $(grep -l {word} /proc/[0-9]*/cmdline 2>/dev/null | wc -l) -ge 3 ]; do :; done\necho 好\nwait"
        );
        let mut running = submit(&executor, world.bash("x", &code));
        assert_eq!(line(&mut running).await, "好");
        let footprint = Footprint::of(std::process::id());
        assert!(with_marker(&word).len() >= 3);
        assert_eq!(executor.cancel(&running.run_id).await, CancelOutcome::Cancelled);
        // At once, not after a while.
        assert!(with_marker(&word).is_empty(), "a child lives on");
        let report = running.report().await;
        assert_eq!(end(&report), cancelled());
        assert_eq!(report.stdout, "好\n");
        // The test itself is in it, and stays.
        assert!(footprint.has_cgroups());
        executor.shutdown().await;
        assert!(footprint.alive_besides(std::process::id()).is_empty(), "{:?}", footprint.alive_besides(std::process::id()));
    }

    async fn shutdown_ends_everything(world) {
        let executor = world.executor(3, 3);
        let mut live: Vec<_> = (0..3).map(|n| submit(&executor, world.python(&n.to_string(), HOLD))).collect();
        for running in &mut live {
            line(running).await;
        }
        live.extend((3..6).map(|n| submit(&executor, world.python(&n.to_string(), HOLD))));
        let footprint = Footprint::of(std::process::id());
        // This process, the spawner, and for each launcher, init and program.
        assert!(footprint.processes() >= 2 + 3 * 3 && footprint.has_cgroups());
        let handle = executor.clone();
        executor.shutdown().await;
        for running in live {
            assert_eq!(end(&running.report().await), cancelled());
        }
        assert!(footprint.alive_besides(std::process::id()).is_empty(), "{:?}", footprint.alive_besides(std::process::id()));
        let late = Submission { request: world.python("x", "print(1)"), tenant: None };
        assert_eq!(handle.submit(late).unwrap_err(), Refused::ShuttingDown);
        // A second time there is nothing to do.
        handle.shutdown().await;
    }
}
