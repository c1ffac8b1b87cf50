//! What goes in and comes out.

use std::fs::{self, File};

use creel::executor::request::{Input, Program, Skill, Stdin};
use creel::executor::service::CancelOutcome;

use crate::support::{assert_ok, line, submit, tests};

tests! {
    async fn output_comes_before_the_end(world) {
        let executor = world.executor(1, 0);
        let mut running = submit(&executor, world.python("x", "import time\nprint('先')\ntime.sleep(100)"));
        assert_eq!(line(&mut running).await, "先");
        assert_eq!(executor.load(), (1, 0), "the line came only with the end");
        assert_eq!(executor.cancel(&running.run_id).await, CancelOutcome::Cancelled);
        assert!(running.chunks.recv().await.is_none(), "the channel stays open");
        assert_eq!(running.report().await.stdout, "先\n");
        executor.shutdown().await;
    }

    async fn a_listener_that_sleeps_blocks_nobody(world) {
        let executor = world.executor(1, 0);
        let code = "import sys\nfor n in range(300): sys.stdout.write('é' * 50000)\nsys.stderr.write('错')";
        let (mut chunks, report) = submit(&executor, world.python("x", code)).split();
        let report = report.await;
        assert_ok(&report);
        assert_eq!((report.stdout_bytes, report.stdout_truncated), (30_000_000, true));
        assert!(report.stdout.len() == 256 << 10 && report.stdout.chars().all(|c| c == 'é'));
        assert_eq!((report.stderr.as_str(), report.stderr_bytes), ("错", 3));
        let mut came = 0;
        while let Some(chunk) = chunks.recv().await {
            assert!(chunk.bytes.len() <= 64 << 10);
            came += chunk.bytes.len();
        }
        assert!(came > 0 && came <= 64 * (64 << 10), "{came}");
        executor.shutdown().await;
    }

    async fn inputs_skills_stdin_and_outputs(world) {
        let executor = world.executor(2, 0);
        let at = |name: &str| world.root.join(name);
        fs::write(at("数据.csv"), "甲,1\n").unwrap();
        fs::create_dir(at("技能")).unwrap();
        fs::write(at("技能/SKILL.md"), "说明").unwrap();
        fs::write(at("stdin"), "行\n".repeat(100_000)).unwrap();
        let code = "
            import json, os, sys
            m = json.load(open('/inputs/manifest.json', encoding='utf-8'))[0]
            print(m['displayName'], open(m['path'], encoding='utf-8').read().strip())
            print(open('/skill/draw/SKILL.md', encoding='utf-8').read(), len(sys.stdin.read()), sys.argv[1:])
            print(os.environ['键'], open('/dev/stdin').read(), file=open('/dev/stdout', 'w'))
            os.mkdir('/outputs/图')
            open('/outputs/图/1.txt', 'w').write('好')
        ";
        let mut request = world.python("files", code);
        request.inputs.push(Input { path: at("数据.csv"), name: Some("表.csv".into()) });
        request.skills.push(Skill { dir: at("技能"), id: "draw".into() });
        request.stdin = Stdin::File(File::open(at("stdin")).unwrap());
        request.env.insert("键".into(), "值".into());
        if let Program::Script { args, .. } = &mut request.program {
            args.push("参数".into());
        }
        let report = submit(&executor, request).report().await;
        assert_ok(&report);
        assert_eq!(report.stdout, "表.csv 甲,1\n说明 200000 ['参数']\n值 \n");
        assert_eq!(fs::read_to_string(at("out-files/图/1.txt")).unwrap(), "好");
        assert_eq!(report.produced[0].path, "图/1.txt");

        // A program that does not read, and a source that never ends.
        let mut request = world.python("x", "print('unread')");
        let (read, write) = rustix::pipe::pipe().unwrap();
        request.stdin = Stdin::File(File::from(read));
        let report = submit(&executor, request).report().await;
        assert_eq!(report.stdout, "unread\n");
        drop(write);
        executor.shutdown().await;
    }
}
