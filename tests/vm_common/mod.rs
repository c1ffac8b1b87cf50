//! Boots a guest of `tests/vm/`, lets a script of `tests/vm/guest/` check creel in it, and judges what the script printed.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds until a guest that hangs is killed; the slowest takes a fraction of that on a loaded machine.
const HANG: &str = "240";

/// Boots the guest that `lane` (a script of tests/vm and its first arguments) makes, and runs `script args…` in it. It must print
/// `ok NAME` for every name in `expected`, and nothing else.
#[track_caller]
pub fn check_in_guest(lane: &[&str], script: &str, args: &[&str], expected: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a guest needs root on the host, and the tests run as an ordinary user");
        return;
    }
    let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm");
    let share = share(&vm.join("guest"));
    let child = Command::new(vm.join(lane[0]))
        .args(&lane[1..])
        .args(["python3", "-B", &format!("/run/share/{script}")])
        .args(args)
        .env("VM_SHARE", share.path())
        .env("VM_TIMEOUT", HANG)
        .envs([("VM_CWD", "/tmp"), ("VM_MEM", "1024")])
        .env_remove("VM_SCRATCH")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let done = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    let err = String::from_utf8_lossy(&done.stderr);
    println!("{out}{err}");
    // 125 says that the guest itself failed, with what to do in the last lines: no kernel yet, no boot, time-out.
    assert_eq!(done.status.code(), Some(0), "the guest of {lane:?} failed: {err}");
    judge(&out, expected);
    let left = left_on_host(pid);
    assert!(left.is_empty(), "left on the host: {left:?}");
}

/// A directory for the guest with the program and the scripts, which an ordinary user in it can read as well.
fn share(scripts: &Path) -> tempfile::TempDir {
    let share = tempfile::TempDir::with_prefix("creel-guest-").unwrap();
    fs::set_permissions(share.path(), Permissions::from_mode(0o755)).unwrap();
    let program = share.path().join("creel");
    fs::copy(env!("CARGO_BIN_EXE_creel"), &program).unwrap();
    fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(scripts).unwrap() {
        let entry = entry.unwrap();
        if entry.path().extension().is_some_and(|e| e == "py") {
            let to = share.path().join(entry.file_name());
            fs::copy(entry.path(), &to).unwrap();
            fs::set_permissions(to, Permissions::from_mode(0o644)).unwrap();
        }
    }
    share
}

/// Every line is a result, every result good, and every expected one there.
#[track_caller]
fn judge(out: &str, expected: &[&str]) {
    let mut results = BTreeMap::new();
    let mut bad = Vec::new();
    for line in out.lines() {
        match line.strip_prefix("ok ").and_then(|rest| rest.split(' ').next()) {
            Some(name) => *results.entry(name).or_insert(0) += 1,
            None => bad.push(line.replace("\\n", "\n")),
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let expected: BTreeMap<&str, i32> = expected.iter().map(|name| (*name, 1)).collect();
    assert_eq!(results, expected, "the checks that came are not those that should");
}

/// Directories of the run of `run-in-….sh` with this process id, and processes that have one on their command line.
fn left_on_host(pid: u32) -> Vec<PathBuf> {
    let mark = format!("creel-vm.{pid}.");
    let names = |dir: &str| fs::read_dir(dir).unwrap().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let dirs = names("/tmp").into_iter().filter(|p| p.to_string_lossy().contains(&mark));
    let processes = names("/proc").into_iter().filter(|p| {
        let line = fs::read(p.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&mark)
    });
    dirs.chain(processes).collect()
}
