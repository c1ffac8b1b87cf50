//! Promise: a program does the same inside as outside. Each file of tests/programs/ gives the same stdout, stderr and
//! exit code under `creel run` as under plain python3 at the same path with the same environment.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ctx, finish, spawn};

/// A root of its own for the plain run: the host's /usr and /etc, an empty /tmp, and /work. Only the paths are made
/// the same: no limits, no filter, no process namespace. `$1` is a scratch directory with `work` in it.
const PLAIN: &str = r#"
set -e
scratch=$1; shift
mount -t tmpfs none "$scratch/root"
cd "$scratch/root"
for part in usr etc proc dev; do mkdir $part; mount --rbind /$part $part; done
for part in bin sbin lib lib32 lib64 libx32; do
  if [ -L /$part ]; then cp -P /$part $part; elif [ -d /$part ]; then mkdir $part; mount --bind /$part $part; fi
done
mkdir work run; mkdir -m 1777 tmp
mount --bind "$scratch/work" work
mount -t tmpfs -o mode=1777 none dev/shm
ulimit -n 256
exec setsid --wait chroot . setpriv --reuid 10001 --regid 10001 --clear-groups --inh-caps=-all "$@"
"#;

fn programs() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "py"));
    found.sort();
    found
}

#[derive(PartialEq)]
struct Behaviour {
    code: i32,
    stdout: String,
    stderr: String,
}

fn plain(ctx: &Ctx, program: &Path, env: &BTreeMap<String, String>) -> Behaviour {
    let scratch = ctx.root().join(format!("plain-{}", program.file_stem().unwrap().to_str().unwrap()));
    let work = scratch.join("work");
    fs::create_dir_all(&work).unwrap();
    fs::create_dir(scratch.join("root")).unwrap();
    let entry = work.join("entry.py");
    fs::copy(program, &entry).unwrap();
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o644)).unwrap();
    for path in [&work, &entry] {
        chown(path, Some(10001), Some(10001)).unwrap();
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", PLAIN, "sh"]).arg(&scratch);
    command.args(["env", "-i", "--chdir=/work"]).args(env.iter().map(|(k, v)| format!("{k}={v}")));
    command.args(["/usr/bin/python3", "/work/entry.py"]).stdin(std::process::Stdio::null());
    let mut child = spawn(&mut command);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = [drain(stdout.unwrap()), drain(stderr.unwrap())];
    let status = common::wait_end(&mut child);
    let [stdout, stderr] = readers.map(|r| r.join().unwrap());
    // `setsid --wait` answers with 128+n for a death by signal n, like creel.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
    Behaviour { code, stdout, stderr }
}

fn drain(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn inside(ctx: &Ctx, program: &Path) -> Behaviour {
    let report = ctx.json(&["--timeout", "100", "--cpus", "2", program.to_str().unwrap()]);
    assert!(["ok", "script_error"].contains(&report.category()), "{}: {report}", program.display());
    let text = |field: &str| report.json[field].as_str().unwrap().to_owned();
    Behaviour { code: report.code, stdout: text("stdout"), stderr: text("stderr") }
}

fn first_difference(inside: &str, plain: &str) -> String {
    let mut pairs = inside.lines().zip(plain.lines());
    let cut = |line: &str| line.chars().take(300).collect::<String>();
    match pairs.find(|(a, b)| a != b) {
        Some((a, b)) => format!("\n    inside: {}\n    plain:  {}", cut(a), cut(b)),
        None => format!("\n    inside {} lines, plain {}", inside.lines().count(), plain.lines().count()),
    }
}

/// Every fourth program, so that a parallel test runner has something to share out.
fn compare(part: usize) {
    let Some(ctx) = Ctx::new() else { return };
    if !Path::new("/usr/bin/python3").exists() {
        println!("SKIPPED: no /usr/bin/python3 to compare with");
        return;
    }
    let all = programs();
    assert!(all.len() >= 30, "only {} programs", all.len());
    let code = "import json, os; print(json.dumps(dict(os.environ)))";
    let ran = finish(spawn(&mut ctx.run_command(&["--cpus", "2", "-c", code]))).expect_code(0);
    let env: BTreeMap<String, String> = serde_json::from_slice(&ran.stdout).unwrap();
    let mut wrong = Vec::new();
    for program in all.iter().skip(part).step_by(4) {
        let (inside, plain) = (inside(&ctx, program), plain(&ctx, program, &env));
        let name = program.file_name().unwrap().to_string_lossy();
        if inside.code != plain.code {
            wrong.push(format!(
                "{name}: exit code {} inside, {} plain\n{}",
                inside.code, plain.code, inside.stderr
            ));
        }
        if inside.stdout != plain.stdout {
            wrong.push(format!("{name}: stdout{}", first_difference(&inside.stdout, &plain.stdout)));
        }
        if inside.stderr != plain.stderr {
            wrong.push(format!("{name}: stderr{}", first_difference(&inside.stderr, &plain.stderr)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn first_quarter() {
    compare(0);
}

#[test]
fn second_quarter() {
    compare(1);
}

#[test]
fn third_quarter() {
    compare(2);
}

#[test]
fn fourth_quarter() {
    compare(3);
}
