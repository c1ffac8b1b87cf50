//! Promise: an ordinary user without a delegated cgroup is told both ways on, and with `--allow-unenforced` gets a
//! sandbox in which everything else holds.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::footprint::{Footprint, assert_no_marker, assert_state_clean};
use crate::common::user::{UID, User};
use crate::common::{Report, finish, kill, read_line, spawn};
use rustix::process::Signal;

fn probe(name: &str) -> String {
    let file =
        |n: &str| fs::read_to_string(format!("{}/tests/escape/{n}.py", env!("CARGO_MANIFEST_DIR"))).unwrap();
    format!("{}\n{}", file("lib"), file(name))
}

#[test]
fn without_delegation_one_line_names_both_ways() {
    let Some(user) = User::new() else { return };
    let ran = user.run(&["-c", "print('started')"]);
    assert!(matches!(ran.code, Some(125 | 126)), "exit {:?}: {}", ran.code, ran.err());
    assert!(ran.stdout.is_empty(), "{}", ran.out());
    let err = ran.err();
    assert_eq!(err.trim_end().lines().count(), 1, "one line: {err}");
    assert!(err.contains("--allow-unenforced memory,pids,cpu"), "{err}");
    assert!(err.contains("systemd") || err.contains("Delegate"), "{err}");
    // Allowing a part is not allowing all.
    let ran = user.run(&["--allow-unenforced", "cpu", "-c", "print('started')"]);
    assert!(matches!(ran.code, Some(125 | 126)) && ran.stdout.is_empty(), "{:?} {}", ran.code, ran.err());
    assert_state_clean(&user.state());
}

#[test]
fn python_and_bash_run_and_the_report_is_honest() {
    let Some(user) = User::new() else { return };
    let report = user
        .python(&[], "import os\nprint(os.getuid(), os.getgid(), os.getgroups(), os.getpid() < 20)")
        .expect_ok();
    assert_eq!(report.stdout(), "10001 10001 [] True\n");
    let enforced = &report.json["enforced"];
    for limit in ["memory", "pids", "cpu"] {
        assert_eq!(enforced[limit], "unenforced", "{report}");
    }
    for rest in ["seccomp", "landlock", "network", "user"] {
        assert!(
            enforced[rest].as_str().is_some_and(|v| v != "unenforced" && v != "none"),
            "{rest}: {report}"
        );
    }
    let report =
        user.json(&["--lang", "bash", "-c", "id -un; echo $HOME; exit 4"]).expect("script_error", 4, Some(4));
    assert_eq!(report.stdout(), "sandbox\n/work\n");
    assert_state_clean(&user.state());
}

#[test]
fn inputs_come_in_and_outputs_belong_to_the_user() {
    let Some(user) = User::new() else { return };
    let input = user.write("private.csv", "a,b\n1,2\n");
    fs::set_permissions(&input, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let code = r#"
        import os
        print(open('/inputs/00-private.csv').read().strip())
        os.makedirs('/outputs/sub')
        open('/outputs/sub/result.txt', 'w').write('made inside')
        try:
            open('/inputs/00-private.csv', 'a')
            print('WRITABLE')
        except OSError:
            pass
    "#;
    let report = user.python(&["--input", "private.csv"], code).expect_ok();
    assert_eq!(report.stdout(), "a,b\n1,2\n");
    let file = user.path("cwd/outputs/sub/result.txt");
    assert_eq!(fs::read_to_string(&file).unwrap(), "made inside");
    for path in [&file, &user.path("cwd/outputs/sub"), &user.path("cwd/outputs")] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (UID, UID), "{}", path.display());
    }
    assert_eq!(fs::read_to_string(input).unwrap(), "a,b\n1,2\n");
}

#[test]
fn what_the_user_may_not_read_stays_unread() {
    let Some(user) = User::new() else { return };
    let secret = user.path("cwd/secret");
    fs::write(&secret, "root's").unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ran =
        user.run(&["--allow-unenforced", "memory,pids,cpu", "--input", "secret", "-c", "print('started')"]);
    let ran = ran.expect_code(126);
    assert!(ran.stdout.is_empty() && ran.err().contains("secret"), "{}", ran.err());
    assert_state_clean(&user.state());
}

#[test]
fn timeout_cancel_and_daemons() {
    let Some(user) = User::new() else { return };
    let marker = crate::common::marker("rootless");
    let daemon = format!(
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('sh', ['sh', '-c', 'sleep 1000; :', '{marker}'])\n"
    );
    user.python(&["--timeout", "2"], &format!("{daemon}time.sleep(1000)")).expect("timeout", 124, Some(-1));
    assert_no_marker(&marker);
    user.python(&[], &format!("{daemon}time.sleep(0.2)")).expect_ok();
    assert_no_marker(&marker);

    let args = ["run", "--allow-unenforced", "memory,pids,cpu", "--timeout", "100", "-c"];
    let code = "import time\nprint('ready')\ntime.sleep(1000)";
    for signal in [Signal::INT, Signal::KILL] {
        let mut child = spawn(&mut user.creel(&[&args[..], &[code]].concat()));
        assert_eq!(read_line(child.stdout.as_mut().unwrap()), "ready");
        let footprint = Footprint::of(child.id());
        assert!(footprint.processes() >= 3, "{footprint:#?}");
        kill(child.id(), signal);
        let ran = finish(child);
        assert_eq!(ran.code, (signal == Signal::INT).then_some(130), "{}", ran.err());
        footprint.assert_gone();
    }
    finish(spawn(&mut user.creel(&["gc"]))).expect_code(0);
    assert_state_clean(&user.state());
}

#[test]
fn privileges_filters_and_descriptors() {
    let Some(user) = User::new() else { return };
    let code = r#"
        import os, socket
        s = dict(l.split(':\t', 1) for l in open('/proc/self/status').read().splitlines())
        print(*(s[k] for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')), s['NoNewPrivs'], s['Seccomp'])
        fds = []
        for n in range(256):
            try:
                os.fstat(n)
                fds.append(n)
            except OSError:
                pass
        print(fds, [n for _, n in socket.if_nameindex()], sorted(p for p in os.listdir('/proc') if p.isdigit())[0])
        print(open('/proc/self/uid_map').read().split()[0] != '')
    "#;
    let report = user.python(&[], code).expect_ok();
    let none = ["0000000000000000"; 5].join(" ");
    assert_eq!(report.stdout(), format!("{none} 1 2\n[0, 1, 2] ['lo'] 1\nTrue\n"));
}

#[test]
fn the_ways_out_are_shut_too() {
    let Some(user) = User::new() else { return };
    let owned = user.path("home/canary");
    fs::write(&owned, "the user's").unwrap();
    std::os::unix::fs::chown(&owned, Some(UID), Some(UID)).unwrap();
    for (name, tried) in [("namespaces", 30), ("mounts", 45), ("calls", 70), ("abi", 22), ("files", 100)] {
        let script = user.write(&format!("{name}.py"), probe(name));
        let args = ["--timeout", "100", script.to_str().unwrap(), "--", owned.to_str().unwrap()];
        let report = user.json(&args).expect_ok();
        let lines: Vec<serde_json::Value> =
            report.stdout().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let escaped: Vec<_> = lines.iter().filter(|l| l["escaped"] != false).collect();
        assert!(escaped.is_empty() && lines.len() >= tried, "{name}: {escaped:#?} of {}", lines.len());
    }
    assert_eq!(fs::read_to_string(owned).unwrap(), "the user's");
}

#[test]
fn processes_of_the_same_user_are_out_of_reach() {
    let Some(user) = User::new() else { return };
    let mut canary = user.command("sleep").arg("1000").spawn().unwrap();
    let script = user.write("processes.py", probe("processes"));
    let pid = canary.id().to_string();
    let report: Report = user.json(&["--timeout", "60", script.to_str().unwrap(), "--", &pid]);
    let alive = canary.try_wait().unwrap().is_none();
    canary.kill().unwrap();
    canary.wait().unwrap();
    assert!(alive, "{report}");
    assert!(!report.expect_ok().stdout().contains("\"escaped\": true"));
}
