//! The queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use creel::executor::service::{CancelOutcome, Refused, Submission};

use crate::support::{assert_ok, line, submit, tests};

const HOLD: &str = "import sys, time\nprint('on', flush=True)\ntime.sleep(100)";

tests! {
    async fn its_bound_holds(world) {
        let executor = world.executor(1, 1);
        let mut first = submit(&executor, world.python("a", HOLD));
        line(&mut first).await;
        let second = submit(&executor, world.python("b", "print('二')"));
        assert_eq!(executor.load(), (1, 1));
        let third = Submission { request: world.python("c", "print(3)"), tenant: None };
        match executor.submit(third) {
            Err(Refused::Full { retry_after }) => assert!(retry_after > Duration::ZERO),
            other => panic!("{other:?}"),
        }
        assert_eq!(executor.cancel(&first.run_id).await, CancelOutcome::Cancelled);
        let report = second.report().await;
        assert_ok(&report);
        assert!(report.timings_ms.queue > 0.0);
        // And there is room again.
        assert_ok(&submit(&executor, world.python("c", "print(3)")).report().await);
        executor.shutdown().await;
    }

    async fn first_come_first_served(world) {
        let executor = world.executor(1, 8);
        let order = Arc::new(Mutex::new(Vec::new()));
        let runs: Vec<_> = (0..8)
            .map(|n| {
                let running = submit(&executor, world.bash(&n.to_string(), "true"));
                let order = Arc::clone(&order);
                tokio::spawn(async move {
                    assert_ok(&running.report().await);
                    order.lock().unwrap().push(n);
                })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
        executor.shutdown().await;
    }

    async fn no_run_twice(world) {
        let executor = world.executor(2, 2);
        let mut first = submit(&executor, world.python("a", HOLD));
        line(&mut first).await;
        let mut request = world.python("b", "print(1)");
        request.run_id.clone_from(&first.run_id);
        let twice = executor.submit(Submission { request, tenant: None }).unwrap_err();
        assert_eq!(twice, Refused::Duplicate { run_id: first.run_id.clone() });
        executor.shutdown().await;
    }
}
