//! crun, runc and runsc: `run` of an OCI bundle with the tools' own defaults (`runc spec`), tightened to what creel gives.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::{
    Args, Contestant, HOST_ROOT, HOST_USER, INSIDE, Job, LOADER_CACHE, MEMORY, PIDS, Peer, SHM, Setting, TMP,
    UID, job, room, seccomp, skeleton, tree_at, tree_room,
};
use crate::bench::clock::End;
use crate::bench::place::layout;
use crate::bench::room::Room;

/// Stands for the cgroup in a configuration that is kept.
const CGROUP: &str = "@cgroup@";
/// Bundle directories, used in turn: more than ever run at once.
const BUNDLES: u64 = 4096;

struct Oci {
    tool: &'static str,
    binary: PathBuf,
    dir: PathBuf,
    rootfs: PathBuf,
    host_usr: bool,
    group: String,
    cpus: usize,
    /// config.json of each command, but for the cgroup.
    configs: Mutex<HashMap<Vec<String>, String>>,
    runs: AtomicU64,
}

pub fn find(tool: &'static str, setting: &Setting, host: &Arc<Room>) -> Result<Contestant, String> {
    let binary = super::which(tool)?;
    if !super::is_root() {
        return Err("needs root, to set limits and map ids".into());
    }
    let version = super::first_line(&binary, &["--version"])?;
    let mut plan = tree_room(setting)?;
    let mut notes = Vec::new();
    if tool == "crun" && layout(&setting.group.all) == "hybrid" {
        // crun refuses a host with cgroup2 beside v1.
        let v2 = setting.group.all.iter().filter(|h| h.controllers.is_none());
        plan.without = v2.map(|h| h.point.clone()).collect();
        notes.push("in a mount namespace without cgroup2: it refuses hybrid hosts".into());
    }
    if tool == "runsc" {
        notes.push("another kernel in user space; creel's filter is not applied to it".into());
    }
    let room = room(plan, host)?;
    let dir = setting.scratch.path().join(tool);
    let made = |e: std::io::Error| format!("cannot make {dir:?}: {e}");
    fs::create_dir_all(dir.join("state")).map_err(made)?;
    let host_usr = setting.subject.tree.is_none();
    let rootfs = if host_usr { dir.join("rootfs") } else { tree_at(setting) };
    if host_usr {
        skeleton(&rootfs).map_err(made)?;
    }
    let peer = Oci {
        tool,
        binary,
        rootfs,
        host_usr,
        group: setting.group.name.clone(),
        cpus: setting.cpus,
        configs: Mutex::default(),
        runs: AtomicU64::new(0),
        dir,
    };
    Ok(Contestant { name: tool, version, notes, room, peer: Arc::new(peer) })
}

impl Peer for Oci {
    fn job(&self, command: &[String]) -> Result<Job, String> {
        let n = self.runs.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{}-{n}", self.group, self.tool);
        let bundle = self.bundle(command, n).map_err(|e| format!("cannot write a bundle: {e}"))?;
        let mut args = Args::of(&self.binary);
        args.add(["--root"]).add([self.dir.join("state")]);
        if self.tool == "runsc" {
            args.add(["--network=none"]);
        }
        args.add(["run", "--bundle"]).add([bundle]).add([id]);
        Ok(job(args.0, End::Inside))
    }
}

impl Oci {
    /// A bundle for one run: each has a cgroup of its own, several run at once.
    fn bundle(&self, command: &[String], n: u64) -> std::io::Result<PathBuf> {
        // A thread that panicked left the map as it was.
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        let config = configs.entry(command.to_vec()).or_insert_with(|| self.config(command).to_string());
        let config = config.replace(CGROUP, &format!("/{}/{}-{n}", self.group, self.tool));
        drop(configs);
        let path = self.dir.join(format!("bundle{}", n % BUNDLES));
        fs::create_dir_all(&path)?;
        fs::write(path.join("config.json"), config)?;
        Ok(path)
    }

    fn config(&self, command: &[String]) -> Value {
        let (shm, tmp) = (format!("size={SHM}"), format!("size={TMP}"));
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]}),
            json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777", shm]}),
            json!({"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": ["nosuid", "nodev", "mode=1777", tmp]}),
        ];
        if self.host_usr {
            let bind = |path: &str, kind: &str| json!({"destination": path, "type": "bind", "source": path, "options": [kind, "ro", "nosuid", "nodev"]});
            mounts.push(bind("/usr", "rbind"));
            if Path::new(LOADER_CACHE).exists() {
                mounts.push(bind(LOADER_CACHE, "bind"));
            }
        }
        let maps = json!([
            {"containerID": 0, "hostID": HOST_ROOT, "size": 1},
            {"containerID": UID, "hostID": HOST_USER, "size": 1},
        ]);
        let env: Vec<String> = INSIDE.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let hidden = [
            "acpi",
            "asound",
            "kcore",
            "keys",
            "latency_stats",
            "timer_list",
            "timer_stats",
            "sched_debug",
            "scsi",
        ];
        let read_only = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
        let proc = |names: &[&str]| names.iter().map(|n| format!("/proc/{n}")).collect::<Vec<_>>();
        let namespaces =
            ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"].map(|t| json!({"type": t}));
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": {"uid": UID, "gid": UID},
                "args": command,
                "env": env,
                "cwd": "/tmp",
                "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []},
                "rlimits": [
                    {"type": "RLIMIT_NOFILE", "hard": 256, "soft": 256},
                    {"type": "RLIMIT_CORE", "hard": 1, "soft": 1},
                ],
                "noNewPrivileges": true,
            },
            "root": {"path": self.rootfs, "readonly": true},
            "hostname": "sandbox",
            "mounts": mounts,
            "linux": {
                "uidMappings": maps,
                "gidMappings": maps,
                "cgroupsPath": CGROUP,
                "resources": {
                    "devices": [{"allow": false, "access": "rwm"}],
                    "memory": {"limit": MEMORY},
                    "pids": {"limit": PIDS},
                    "cpu": {"quota": self.cpus * 100_000, "period": 100_000},
                },
                "namespaces": namespaces,
                "maskedPaths": proc(&hidden),
                "readonlyPaths": proc(&read_only),
            },
        });
        if self.tool != "runsc" {
            config["linux"]["seccomp"] = seccomp::oci();
        }
        config
    }
}
