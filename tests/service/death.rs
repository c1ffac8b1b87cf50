//! Somebody dies.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::common::footprint::{Footprint, children, command_line};
use crate::common::{kill, read_line, wait_until};
use crate::support::{assert_ok, end, line, submit, tests};

const HOLD: &str = "import time\nprint('on')\ntime.sleep(100)";

/// Says to a process of [`of_the_daemon`] that it is the daemon.
const DAEMON: &str = "CREEL_SERVICE_TEST_DAEMON";

tests! {
    async fn of_a_launcher(world) {
        let executor = world.executor(2, 0);
        let mut running = submit(&executor, world.python("x", HOLD));
        line(&mut running).await;
        let footprint = Footprint::of(std::process::id());
        kill(launcher(&running.run_id), Signal::KILL);
        let report = running.report().await;
        assert_eq!(end(&report), ("sandbox_error".into(), "sandbox.lost".into()));
        assert_eq!((report.exit_code, report.stdout.as_str()), (None, "on\n"));
        // The others go on.
        assert_ok(&submit(&executor, world.python("x", "print(1)")).report().await);
        executor.shutdown().await;
        assert!(footprint.has_cgroups());
        let rest = footprint.alive_besides(std::process::id());
        assert!(rest.is_empty(), "{rest:?}");
    }

    async fn of_the_spawner(world) {
        let executor = world.executor(2, 0);
        let mut running = submit(&executor, world.python("x", "print('on')\nimport sys\nprint(sys.stdin.read())"));
        line(&mut running).await;
        let mut held = submit(&executor, world.python("y", HOLD));
        line(&mut held).await;
        let me = std::process::id();
        let footprint = Footprint::of(me);
        kill(children(me)[0], Signal::KILL);
        // What runs goes on and can be ended, and what comes is told so.
        assert_ok(&running.report().await);
        executor.cancel(&held.run_id).await;
        assert_eq!(end(&held.report().await), ("cancelled".into(), "run.cancelled".into()));
        let report = submit(&executor, world.python("x", "print(1)")).report().await;
        assert_eq!(end(&report), ("sandbox_error".into(), "sandbox.spawner".into()));
        executor.shutdown().await;
        // Nobody is left to tell when its launchers are through with tidying up.
        assert!(wait_until(|| footprint.alive_besides(me).is_empty(), Duration::from_secs(10)));
    }

    async fn of_the_daemon(world) {
        if std::env::var_os(DAEMON).is_some() {
            let executor = world.executor(3, 0);
            let mut live: Vec<_> =
                (0..3).map(|n| submit(&executor, world.python(&n.to_string(), HOLD))).collect();
            for running in &mut live {
                line(running).await;
            }
            println!("up");
            std::io::stdout().flush().unwrap();
            std::future::pending::<()>().await;
        }
        let mut daemon = Command::new(std::env::current_exe().unwrap());
        let mut daemon = daemon.env(DAEMON, "1").stdout(Stdio::piped()).spawn().unwrap();
        let mut out = daemon.stdout.take().unwrap();
        assert_eq!(read_line(&mut out), "up");
        let footprint = Footprint::of(daemon.id());
        assert!(footprint.processes() >= 2 + 3 * 3 && footprint.has_cgroups());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        footprint.assert_gone();
        // Nobody held its standard output.
        assert_eq!(out.read(&mut [0; 1]).unwrap(), 0);
        world.executor(1, 0).shutdown().await;
    }
}

/// The launcher of a run, below this process.
fn launcher(run_id: &str) -> u32 {
    let mut found = None;
    let title = format!("creel-launcher {run_id}");
    let spawner = children(std::process::id())[0];
    let there = wait_until(
        || {
            found = children(spawner).into_iter().find(|pid| command_line(*pid).starts_with(&title[..30]));
            found.is_some()
        },
        Duration::from_secs(10),
    );
    assert!(there, "no launcher");
    found.unwrap()
}
