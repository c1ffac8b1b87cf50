//! Promise: `creel doctor` says for this host and this user what can be enforced and what mends the rest, and `creel run`
//! says the same line where something is missing.

mod common;

use std::process::{Command, Stdio};

use common::footprint::assert_state_clean;
use common::user::{UID, User};
use common::{Ctx, Ran, finish, spawn};
use serde_json::Value;

const ALLOW: &str = "--allow-unenforced memory,pids,cpu";

/// What `creel doctor --json` said.
struct Doctor {
    json: Value,
    code: i32,
}

impl Doctor {
    #[track_caller]
    fn of(ran: Ran) -> Doctor {
        let json: Value = serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|e| panic!("no JSON ({e}): {}\n{}", ran.out(), ran.err()));
        assert!(ran.err().is_empty(), "{}", ran.err());
        let doctor = Doctor { json, code: ran.code.expect("creel died by a signal") };
        doctor.assert_sound();
        doctor
    }

    fn check(&self, name: &str) -> &Value {
        let checks = self.json["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|c| c["name"] == name)
            .unwrap_or_else(|| panic!("no check {name}: {:#}", self.json))
    }

    fn failed(&self) -> Vec<&str> {
        let checks = self.json["checks"].as_array().unwrap();
        checks.iter().filter(|c| c["status"] == "fail").map(|c| c["name"].as_str().unwrap()).collect()
    }

    /// `found; fix`, as `creel run` must say it too.
    #[track_caller]
    fn line(&self, name: &str) -> String {
        let check = self.check(name);
        assert_eq!(check["status"], "fail", "{:#}", self.json);
        format!("{}; {}", check["found"].as_str().unwrap(), check["fix"].as_str().unwrap())
    }

    /// The shape that holds on every host: exit code, verdict and statuses agree, and whatever is not well has a remedy.
    #[track_caller]
    fn assert_sound(&self) {
        let json = &self.json;
        assert_eq!(self.code, if json["ok"] == true { 0 } else { 1 }, "{json:#}");
        assert_eq!(json["ok"] == true, self.failed().is_empty(), "{json:#}");
        let verdict = json["verdict"].as_str().unwrap();
        assert_eq!(verdict == "the default profile can be fully enforced", json["ok"] == true, "{verdict}");
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        let uname = rustix::system::uname();
        assert_eq!(json["kernel"], uname.release().to_str().unwrap());
        assert_eq!(json["arch"], uname.machine().to_str().unwrap());
        assert!(json["uid"].is_u64());
        for check in json["checks"].as_array().unwrap() {
            let text = |key: &str| check[key].as_str().unwrap_or_else(|| panic!("{key}: {check}"));
            assert!(!text("name").is_empty() && !text("found").is_empty(), "{check}");
            assert!(!text("found").contains('\n'), "{check}");
            match text("status") {
                "ok" => assert!(check["fix"].is_null(), "{check}"),
                "warn" | "fail" => assert!(!text("fix").is_empty() && !text("fix").contains('\n'), "{check}"),
                other => panic!("status {other}"),
            }
        }
        for name in [
            "kernel",
            "architecture",
            "system calls",
            "user namespaces",
            "namespaces",
            "proc",
            "tmpfs",
            "devices",
            "overlay",
            "host ids",
            "limits",
            "swap",
            "seccomp",
            "landlock",
            "apparmor",
            "host image",
            "images",
            "image building",
            "state directory",
            "trial run",
            "warm start",
        ] {
            self.check(name);
        }
    }
}

/// `sh -c script` in a mount namespace of its own, with creel's path as `$CREEL`.
fn in_mounts(ctx: &Ctx, script: &str) -> Ran {
    let mut command = ctx.within(Command::new("unshare"));
    command.args(["--mount", "sh", "-ec", script]).env("CREEL", env!("CARGO_BIN_EXE_creel"));
    finish(spawn(&mut command))
}

/// `sh -c script` as the user in a user namespace where it still has all capabilities, so that it can set limits there.
fn in_userns(user: &User, script: &str) -> Ran {
    let uid = UID.to_string();
    let mut command = user.command("unshare");
    command
        .args(["--user", "--map-user", &uid, "--map-group", &uid, "--keep-caps", "sh", "-ec", script])
        .env("CREEL", user.path("creel"));
    finish(spawn(&mut command))
}

/// Asserts that a run refuses with exactly the doctor's line, in one line.
#[track_caller]
fn assert_says(ran: &Ran, line: &str) {
    let err = ran.err();
    assert_eq!(ran.code, Some(125), "{err}");
    assert!(ran.stdout.is_empty(), "{}", ran.out());
    assert_eq!(err.trim_end().lines().count(), 1, "one line: {err}");
    assert!(err.contains(line), "not the doctor's line:\n{err}\n{line}");
}

#[test]
fn root_learns_what_is_enforced_and_nothing_is_left() {
    let Some(ctx) = Ctx::new() else { return };
    let doctor = Doctor::of(finish(spawn(ctx.creel().args(["doctor", "--json"]))));
    // Where everything can be enforced, a real run agrees; where not, it stops with a line of the doctor's.
    let run = ctx.json(&["--", "/usr/bin/true"]);
    if doctor.json["ok"] == true {
        run.expect_ok();
        let trial = doctor.check("trial run")["found"].as_str().unwrap();
        assert!(trial.contains("a sandbox was made, ran and was removed"), "{trial}");
    } else {
        let message = run.json["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            doctor.failed().iter().any(|name| doctor.line(name) == message),
            "{message}: {:#}",
            doctor.json
        );
    }
    ctx.assert_state_clean();
}

#[test]
fn the_state_directory_is_only_looked_at() {
    let Some(ctx) = Ctx::new() else { return };
    let state = ctx.root().join("some/where/creel");
    let doctor =
        Doctor::of(finish(spawn(ctx.creel().args(["doctor", "--json"]).env("CREEL_STATE_DIR", &state))));
    assert_eq!(doctor.check("state directory")["status"], "ok");
    assert!(!ctx.root().join("some").exists(), "made and not removed");

    // One that others may write to is refused, in the words of a run.
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(state.join("runs")).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
    let doctor =
        Doctor::of(finish(spawn(ctx.creel().args(["doctor", "--json"]).env("CREEL_STATE_DIR", &state))));
    let found = doctor.check("state directory")["found"].as_str().unwrap();
    assert!(doctor.failed().contains(&"state directory") && found.contains("others may write"), "{found}");
    let run = finish(spawn(ctx.run_command(&["--", "/usr/bin/true"]).env("CREEL_STATE_DIR", &state)));
    assert_says(&run, found);
}

#[test]
fn lines_for_people() {
    let Some(ctx) = Ctx::new() else { return };
    let ran = finish(spawn(ctx.creel().arg("doctor")));
    let out = ran.out();
    let (checks, verdict) = out.trim_end().split_once("\n\n").unwrap();
    for line in checks.lines() {
        assert!(["ok    ", "warn  ", "FAIL  "].iter().any(|s| line.starts_with(s)), "{line}");
    }
    assert_eq!(verdict.lines().count(), 1);
    let code = if verdict == "the default profile can be fully enforced" { 0 } else { 1 };
    assert_eq!(ran.code, Some(code), "{out}");

    let help = finish(spawn(ctx.creel().args(["doctor", "--help"]))).expect_code(0).out();
    assert!(help.contains("Exit code: 0 if") && help.contains("1 if not"), "{help}");
    let ran = finish(spawn(ctx.creel().args(["doctor", "--nonsense"])));
    assert_eq!(ran.code, Some(126), "{}", ran.err());
}

#[test]
fn an_ordinary_user_is_told_for_himself() {
    let Some(user) = User::new() else { return };
    let doctor = Doctor::of(finish(spawn(&mut user.creel(&["doctor", "--json"]))));
    assert_eq!(doctor.json["uid"], UID);
    assert!(!user.state().exists() && !user.path("home/state").exists(), "made and not removed");
    // Nothing is delegated to this user.
    assert_eq!(doctor.failed(), ["limits"], "{:#}", doctor.json);
    assert_says(&user.run(&["--", "/usr/bin/true"]), &doctor.line("limits"));
    let trial = doctor.check("trial run")["found"].as_str().unwrap();
    assert!(trial.contains("without memory, pids, cpu"), "{trial}");
    assert_state_clean(&user.state());
}

#[test]
fn user_namespaces_switched_off() {
    let Some(user) = User::new() else { return };
    let off = "echo 0 > /proc/sys/user/max_user_namespaces";
    let doctor = Doctor::of(in_userns(&user, &format!("{off}; exec $CREEL doctor --json")));
    let line = doctor.line("user namespaces");
    assert!(line.ends_with("as root: sysctl -w user.max_user_namespaces=15000"), "{line}");
    assert_says(&in_userns(&user, &format!("{off}; exec $CREEL run {ALLOW} -- /usr/bin/true")), &line);
    // One is not enough either: a run makes two, one in the other.
    let one = "echo 1 > /proc/sys/user/max_user_namespaces";
    let doctor = Doctor::of(in_userns(&user, &format!("{one}; exec $CREEL doctor --json")));
    let line = doctor.line("namespaces");
    assert!(line.contains("(a run needs two)") && line.ends_with("user.max_user_namespaces=15000"), "{line}");
    assert_says(&in_userns(&user, &format!("{one}; exec $CREEL run {ALLOW} -- /usr/bin/true")), &line);
    assert_state_clean(&user.state());
}

#[test]
fn another_kind_of_namespace_switched_off() {
    let Some(user) = User::new() else { return };
    for kind in ["net", "pid", "ipc"] {
        let off = format!("echo 0 > /proc/sys/user/max_{kind}_namespaces");
        let doctor = Doctor::of(in_userns(&user, &format!("{off}; exec $CREEL doctor --json")));
        assert_eq!(doctor.check("user namespaces")["status"], "ok", "{:#}", doctor.json);
        let line = doctor.line("namespaces");
        assert!(line.ends_with(&format!("sysctl -w user.max_{kind}_namespaces=15000")), "{line}");
        assert_says(&in_userns(&user, &format!("{off}; exec $CREEL run {ALLOW} -- /usr/bin/true")), &line);
    }
}

#[test]
fn root_of_a_user_namespace_has_no_host_ids() {
    let Some(ctx) = Ctx::new() else { return };
    let within = |args: &[&str]| {
        let mut command = ctx.within(Command::new("unshare"));
        command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_creel")]).args(args);
        finish(spawn(&mut command))
    };
    let doctor = Doctor::of(within(&["doctor", "--json"]));
    let args = ["run", "--allow-unenforced", "memory,pids,cpu", "--", "/usr/bin/true"];
    assert_says(&within(&args), &doctor.line("host ids"));
    ctx.assert_state_clean();
}

#[test]
fn a_masked_proc() {
    let Some(ctx) = Ctx::new() else { return };
    let mask = "mount --bind /dev/null /proc/cpuinfo";
    let doctor = Doctor::of(in_mounts(&ctx, &format!("{mask}; exec $CREEL doctor --json")));
    let run = in_mounts(&ctx, &format!("{mask}; exec $CREEL run {ALLOW} -- /usr/bin/true"));
    if doctor.check("proc")["status"] == "ok" {
        // A machine that was booted through an initramfs has a second proc outside of its root, and the kernel counts it.
        assert_eq!(run.code, Some(0), "{}", run.err());
    } else {
        let line = doctor.line("proc");
        assert!(line.contains("systempaths=unconfined"), "{line}");
        assert_says(&run, &line);
    }
    ctx.assert_state_clean();
}

#[test]
fn no_cgroups() {
    let Some(ctx) = Ctx::new() else { return };
    let hide = "mount -t tmpfs none /sys/fs/cgroup";
    let doctor = Doctor::of(in_mounts(&ctx, &format!("{hide}; exec $CREEL doctor --json")));
    let line = doctor.line("limits");
    for part in ["memory,pids,cpu", "mount -t cgroup2 none /sys/fs/cgroup", ALLOW] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_says(&in_mounts(&ctx, &format!("{hide}; exec $CREEL run -- /usr/bin/true")), &line);
    let ran = in_mounts(&ctx, &format!("{hide}; exec $CREEL run {ALLOW} -- /usr/bin/true"));
    assert_eq!(ran.code, Some(0), "{}", ran.err());
    ctx.assert_state_clean();
}

#[test]
fn wrong_device_nodes() {
    let Some(user) = User::new() else { return };
    // A file in the place of /dev/zero; the user's creel would bind it into the sandbox (CVE-2025-31133).
    let as_user = |args: &str| {
        let mut command = Command::new("unshare");
        let script = format!(
            "mount --bind /etc/hostname /dev/zero; exec setpriv --reuid {UID} --regid {UID} --clear-groups -- $CREEL {args}"
        );
        command.args(["--mount", "sh", "-ec", &script]).current_dir(user.path("cwd"));
        command.env("CREEL", user.path("creel")).env("HOME", user.path("home"));
        command.env("XDG_STATE_HOME", user.path("home/state")).stdin(Stdio::null());
        finish(spawn(&mut command))
    };
    let doctor = Doctor::of(as_user("doctor --json"));
    let line = doctor.line("devices");
    assert!(line.starts_with("/dev/zero "), "{line}");
    assert_says(&as_user(&format!("run {ALLOW} -- /usr/bin/true")), &line);
}
