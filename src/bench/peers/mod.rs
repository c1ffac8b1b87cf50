//! The contestants: how each is told to do the same work, hardened in its usual way.

mod bubblewrap;
mod creel;
mod engine;
mod nsjail;
mod oci;
mod seccomp;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::clock::{End, Job};
use super::image::Subject;
use super::place::{Group, Scratch};
use super::room::{Plan, Room, Tree};

pub use creel::Creel;

/// Bytes of memory that every contestant gets: creel's default.
pub const MEMORY: u64 = 512 << 20;
/// Tasks.
pub const PIDS: u32 = 128;
const TMP: u64 = 128 << 20;
const SHM: u64 = 64 << 20;
const UID: u32 = 10001;
/// Host ids that nothing else uses: below creel's own range, see `executor/ids.rs`.
const HOST_ROOT: u32 = 1_899_000_000;
const HOST_USER: u32 = 1_899_000_001;
/// The environment of a program inside.
const INSIDE: [(&str, &str); 3] =
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("LANG", "C.UTF-8")];
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// What of the caller's environment the programs that are started get: where state and daemons are.
const PASSED: [&str; 8] = [
    "CREEL_STATE_DIR",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "HOME",
];

/// The peers that are looked for, in the order of the report.
pub const PEERS: [&str; 7] = ["bubblewrap", "nsjail", "crun", "runc", "runsc", "podman", "docker"];

/// What all contestants share.
#[derive(Debug)]
pub struct Setting {
    pub scratch: Scratch,
    pub group: Group,
    pub subject: Subject,
    pub cpus: usize,
    /// Limits that may stay open, for `creel run`.
    pub allow_unenforced: Vec<String>,
}

/// How one contestant does a piece of work.
pub trait Peer: Send + Sync {
    /// The same, but telling more about what goes wrong.
    fn talkative(&self, _command: &[String]) -> Option<Job> {
        None
    }

    /// What to start for `command`, a command inside. Each call gives a fresh one.
    ///
    /// # Errors
    /// Why it can't.
    fn job(&self, command: &[String]) -> Result<Job, String>;
}

/// A contestant, ready.
#[derive(Clone)]
pub struct Contestant {
    pub name: &'static str,
    pub version: String,
    /// What is to know of how it runs here.
    pub notes: Vec<String>,
    pub room: Arc<Room>,
    pub peer: Arc<dyn Peer>,
}

/// The bare command, without any sandbox.
struct Bare;

impl Peer for Bare {
    fn job(&self, command: &[String]) -> Result<Job, String> {
        Ok(job(command.iter().map(OsString::from).collect(), End::Ask))
    }
}

/// The command as it is; of an image other than the host's, in its root directory.
///
/// # Errors
/// Why it can't be had.
pub fn bare(setting: &Setting) -> Result<Contestant, String> {
    let plan = match &setting.subject.tree {
        None => Plan::default(),
        Some(_) => Plan { inside: true, ..tree_room(setting)? },
    };
    let note = (plan.inside).then(|| "in the image's root by chroot, made before the clock runs".to_owned());
    let room = Arc::new(Room::make(plan)?);
    Ok(Contestant {
        name: "bare",
        version: String::new(),
        notes: note.into_iter().collect(),
        room,
        peer: Arc::new(Bare),
    })
}

/// One of [`PEERS`].
///
/// # Errors
/// Why it can't take part.
pub fn find(name: &str, setting: &Setting, host: &Arc<Room>) -> Result<Contestant, String> {
    match name {
        "bubblewrap" => bubblewrap::find(setting, host),
        "nsjail" => nsjail::find(setting, host),
        "crun" => oci::find("crun", setting, host),
        "runc" => oci::find("runc", setting, host),
        "runsc" => oci::find("runsc", setting, host),
        "podman" => engine::find("podman", setting, host),
        "docker" => engine::find("docker", setting, host),
        _ => Err("is no peer that creel knows".into()),
    }
}

/// A room in which the image's root is seen read-only at a directory that every id can reach (the store is its owner's alone).
fn tree_room(setting: &Setting) -> Result<Plan, String> {
    let Some(tree) = &setting.subject.tree else {
        return Ok(Plan::default());
    };
    if !is_root() {
        return Err("needs root, to show it the image".into());
    }
    let (at, over) = (tree_at(setting), setting.scratch.path().join("over"));
    if over.as_os_str().as_bytes().iter().any(|b| b":,\\".contains(b)) {
        return Err(format!("needs a temporary directory without : , \\ in its name, not {over:?}"));
    }
    let points = ["proc", "dev", "tmp", "sys"].map(|name| over.join(name));
    let made = points.iter().chain([&at]).try_for_each(std::fs::create_dir_all);
    made.map_err(|e| format!("cannot make {at:?}: {e}"))?;
    let tree = Some(Tree { from: tree.clone(), over, at });
    Ok(Plan { tree, ..Plan::default() })
}

/// A room for a peer: the host's, or one that sees the image's root.
fn room(plan: Plan, host: &Arc<Room>) -> Result<Arc<Room>, String> {
    if plan == Plan::default() { Ok(host.clone()) } else { Ok(Arc::new(Room::make(plan)?)) }
}

fn tree_at(setting: &Setting) -> PathBuf {
    setting.scratch.path().join("image")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program with the common environment.
fn job(argv: Vec<OsString>, end: End) -> Job {
    let mut env: Vec<(String, OsString)> = vec![
        ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("LANG".into(), "C.UTF-8".into()),
    ];
    env.extend(PASSED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?))));
    Job { argv, env, dir: None, end, undo: Vec::new() }
}

/// A list of arguments that grows.
#[derive(Debug, Default, Clone)]
struct Args(Vec<OsString>);

impl Args {
    fn of(program: impl AsRef<std::ffi::OsStr>) -> Args {
        Args(vec![program.as_ref().to_owned()])
    }

    fn add<I: AsRef<std::ffi::OsStr>>(&mut self, words: impl IntoIterator<Item = I>) -> &mut Args {
        self.0.extend(words.into_iter().map(|w| w.as_ref().to_owned()));
        self
    }
}

/// Looks a program up where such programs are.
fn which(program: &str) -> Result<PathBuf, String> {
    let own = std::env::var("PATH").unwrap_or_default();
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let dirs = own.split(':').chain(usual.split(':')).filter(|d| d.starts_with('/'));
    let found = dirs.map(|d| Path::new(d).join(program)).find(|p| is_program(p));
    found.ok_or_else(|| format!("{program} is not installed"))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The first line that a program prints, or why it doesn't.
fn first_line(program: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).env("LANG", "C.UTF-8");
    let name = program.display();
    let output = command.output().map_err(|e| format!("{name} does not start: {e}"))?;
    let line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned)
    };
    if !output.status.success() {
        return Err(explain(&[output.stdout, output.stderr].concat()));
    }
    Ok(line(&output.stdout).or_else(|| line(&output.stderr)).unwrap_or_default())
}

/// The telling line of a program's error output: the last that sounds like an error, else the last.
pub fn explain(output: &[u8]) -> String {
    const WORDS: [&str; 10] =
        ["error", "fail", "can't", "cannot", "denied", "[e]", "[f]", "refus", "not ", "unable"];
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let telling = |l: &&&str| WORDS.iter().any(|w| l.to_lowercase().contains(w));
    // nsjail: the first is the cause, the rest follows from it.
    if let Some((_, message)) = lines.iter().find(|l| l.starts_with("[E][")).and_then(|l| l.split_once("] "))
    {
        return crate::text::one_line(message).chars().take(200).collect();
    }
    let line = lines.iter().rev().find(telling).or(lines.last()).copied().unwrap_or("it said nothing");
    let json: Option<serde_json::Value> = serde_json::from_str(line).ok();
    // runc's two ways to log.
    let logfmt = line.split_once(" msg=\"").and_then(|(_, m)| m.rsplit_once('"')).map(|(m, _)| m);
    let message = json.as_ref().and_then(|v| v["msg"].as_str()).or(logfmt).unwrap_or(line);
    crate::text::one_line(message).chars().take(200).collect()
}

/// What a merged-/usr host has beside /usr, for roots that are made from nothing: name and target.
fn links() -> Vec<(&'static str, PathBuf)> {
    let names = ["bin", "sbin", "lib", "lib64", "lib32"];
    names.into_iter().filter_map(|n| Some((n, std::fs::read_link(Path::new("/").join(n)).ok()?))).collect()
}

/// A root for the host's /usr: empty directories and links.
fn skeleton(path: &Path) -> std::io::Result<()> {
    for name in ["usr", "etc", "proc", "dev", "tmp", "sys"] {
        std::fs::create_dir_all(path.join(name))?;
    }
    std::fs::write(path.join(&LOADER_CACHE[1..]), "")?;
    for (name, target) in links() {
        std::os::unix::fs::symlink(target, path.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line() {
        assert_eq!(explain(b"starting\nError: no space\nbye\n"), "Error: no space");
        assert_eq!(explain(b"{\"level\":\"error\",\"msg\":\"no cgroup\"}\n"), "no cgroup");
        assert_eq!(explain(b"time=\"12:00\" level=error msg=\"no \\\"x\\\"\""), "no \\\"x\\\"");
        assert_eq!(explain(b"[I][1] x\n[E][2026][1] mount: no\n[E][2026][1] failed\n"), "mount: no");
        assert_eq!(explain(b""), "it said nothing");
        assert_eq!(explain(b"a\nb\x1b[2J"), "b\\u{1b}[2J");
        assert_eq!(explain("错".repeat(500).as_bytes()).chars().count(), 200);
    }

    #[test]
    fn programs() {
        assert!(which("sh").unwrap().is_absolute());
        assert_eq!(which("nosuch-程序").unwrap_err(), "nosuch-程序 is not installed");
    }
}
