//! Promise: no program fills the host's disk or, through a tmpfs, its memory: a full one is ENOSPC, or the run ends.

use crate::common::{Ctx, Report};

/// Writes `TOTAL` MB to the file `PATH`; on a refusal prints its name and exits with 3, else stays to be found.
const FILL: &str = r#"
    import errno, os, sys, time
    f = os.open(PATH, os.O_CREAT | os.O_WRONLY)
    AFTER_OPEN
    chunk = b'x' * (1 << 20)
    for n in range(TOTAL):
        try:
            os.write(f, chunk)
        except OSError as e:
            print(errno.errorcode[e.errno], n)
            sys.exit(3)
    print('written')
    time.sleep(STAY)
"#;

fn fill(path: &str, after_open: &str, total: u32, stay: u32) -> String {
    let code = FILL.replace("PATH", &format!("'{path}'")).replace("AFTER_OPEN", after_open);
    code.replace("TOTAL", &total.to_string()).replace("STAY", &stay.to_string())
}

/// ENOSPC inside (tmpfs, quota), or ended by the watcher: in both cases bounded, and never an OOM kill.
#[track_caller]
fn assert_bounded(report: &Report) {
    assert_eq!(report.json["oom_kills"], 0, "{report}");
    match report.category() {
        "script_error" => {
            let refused = report.stdout().starts_with("ENOSPC") || report.stdout().starts_with("EDQUOT");
            assert!(refused && report.exit_code() == Some(3), "{report}");
        }
        "output_limit" => {
            assert_eq!((report.code, report.exit_code()), (126, None), "{report}");
            assert!(report.json["error"]["code"].is_string(), "{report}");
        }
        _ => panic!("neither refused nor ended: {report}"),
    }
}

#[test]
fn a_full_tmpfs_is_enospc_and_no_oom() {
    let Some(ctx) = Ctx::new() else { return };
    for (dir, size) in [("/tmp", 128), ("/dev/shm", 64), ("/run", 16)] {
        let report = ctx.python(&["--cpus", "1"], &fill(&format!("{dir}/full"), "", size + 50, 0));
        let report = report.expect("script_error", 3, Some(3));
        assert_eq!(report.json["oom_kills"], 0, "{report}");
        let (error, full) = report.stdout().trim().split_once(' ').unwrap();
        assert_eq!(error, "ENOSPC", "{report}");
        let full: u32 = full.parse().unwrap();
        assert!(full <= size && full + 8 >= size, "{dir} is full at {full} MB: {report}");
    }
}

#[test]
fn all_three_full_at_once_leave_room_for_the_program() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import os
        for d in ('/tmp', '/dev/shm', '/run'):
            f = os.open(d + '/full', os.O_CREAT | os.O_WRONLY)
            try:
                while True:
                    os.write(f, bytes(1 << 20))
            except OSError as e:
                print(e.strerror)
        x = bytearray(100 << 20)
        print('and on')
    "#;
    let report = ctx.python(&["--cpus", "1", "--timeout", "60"], code).expect_ok();
    assert_eq!(report.stdout(), format!("{}and on\n", "No space left on device\n".repeat(3)));
}

#[test]
fn the_size_of_tmp_is_a_flag() {
    let Some(ctx) = Ctx::new() else { return };
    let report =
        ctx.python(&["--tmp", "8m"], &fill("/tmp/full", "", 20, 0)).expect("script_error", 3, Some(3));
    assert!(report.stdout().starts_with("ENOSPC"), "{report}");
    let dd = "dd if=/dev/zero of=/tmp/full bs=1M count=20 2>&1 | grep -o 'No space left on device'; exit ${PIPESTATUS[0]}";
    let report = ctx.bash(&["--tmp", "8m"], dd).expect("script_error", 1, Some(1));
    assert_eq!(report.stdout(), "No space left on device\n");
}

#[test]
fn inodes_are_bounded_too() {
    let Some(ctx) = Ctx::new() else { return };
    let code = r#"
        import errno, os
        dirs = ('/tmp', '/dev/shm', '/run')
        sizes = {d: os.statvfs(d).f_files for d in dirs}
        print(*sizes.values())
        d = min(sizes, key=sizes.get)
        try:
            for n in range(sizes[d] + 10 if sizes[d] < 100000 else 0):
                os.close(os.open(f'{d}/{n}', os.O_CREAT))
            print('no end')
        except OSError as e:
            print(errno.errorcode[e.errno])
    "#;
    let report = ctx.python(&["--cpus", "1", "--timeout", "60"], code).expect_ok();
    let lines: Vec<&str> = report.stdout().lines().collect();
    for count in lines[0].split(' ') {
        let count: u64 = count.parse().unwrap();
        assert!(count > 0 && count <= 300_000, "inodes of /tmp, /dev/shm, /run: {report}");
    }
    assert_eq!(lines[1], "ENOSPC", "{report}");
}

#[test]
fn work_is_bounded() {
    let Some(ctx) = Ctx::new() else { return };
    // With much memory a tmpfs may hold it, with little a watcher.
    for memory in ["512m", "1g"] {
        let options = ["--cpus", "1", "--timeout", "60", "--memory", memory];
        assert_bounded(&ctx.python(&options, &fill("/work/big", "", 400, 20)));
    }
    ctx.assert_state_clean();
}

#[test]
fn an_unlinked_open_file_in_work_counts() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx
        .python(&["--cpus", "1", "--timeout", "60"], &fill("/work/big", "os.unlink('/work/big')", 400, 20));
    assert_bounded(&report);
    // Written by mmap, not by write(), and never closed.
    let code = r#"
        import errno, mmap, os, sys, time
        f = os.open('/work/m', os.O_CREAT | os.O_RDWR)
        os.unlink('/work/m')
        try:
            os.posix_fallocate(f, 0, 400 << 20)
        except OSError as e:
            print(errno.errorcode[e.errno])
            sys.exit(3)
        time.sleep(20)
    "#;
    assert_bounded(&ctx.python(&["--cpus", "1", "--timeout", "60"], code));
}

#[test]
fn outputs_are_bounded_while_the_program_runs() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.python(&["--cpus", "1", "--timeout", "60"], &fill("/outputs/big", "", 400, 20));
    if report.category() != "rejected" {
        assert_bounded(&report);
    }
    assert!(!report.produced().contains_key("big") || report.category() == "script_error", "{report}");
    let kept: usize = ctx.outputs().values().map(Vec::len).sum();
    assert!(kept <= 50 << 20, "{kept} bytes kept");
}

#[test]
fn the_files_in_work_are_counted() {
    let Some(ctx) = Ctx::new() else { return };
    let most = ctx.json(&["-c", "pass"]).json["limits"]["work_files"].as_u64().unwrap();
    if most > 100_000 {
        println!("SKIPPED: making more than {most} files takes too long");
        return;
    }
    let code = format!(
        "import errno, os, sys, time\nos.mkdir('/work/d')\nfor n in range({most} + {most} // 4 + 100):\n    try:\n        \
         os.close(os.open(f'/work/d/{{n}}', os.O_CREAT))\n    except OSError as e:\n        \
         print(errno.errorcode[e.errno])\n        sys.exit(3)\ntime.sleep(30)"
    );
    assert_bounded(&ctx.python(&["--cpus", "1", "--timeout", "100"], &code));
    ctx.assert_state_clean();
}

#[test]
fn below_the_limit_work_is_free() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.python(&["--cpus", "1", "--timeout", "60"], &fill("/work/big", "", 150, 0)).expect_ok();
    assert_eq!(report.stdout(), "written\n");
    // Files come and go: what was deleted no longer counts.
    let code = r#"
        import os
        for n in range(8):
            with open('/work/x', 'wb') as f:
                for _ in range(60):
                    f.write(bytes(1 << 20))
            os.unlink('/work/x')
        print('done')
    "#;
    let report = ctx.python(&["--cpus", "1", "--timeout", "100"], code).expect_ok();
    assert_eq!(report.stdout(), "done\n");
}
