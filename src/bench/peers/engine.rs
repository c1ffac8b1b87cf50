//! docker and podman: `run --rm` of the same root, hardened as their manuals advise.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Args, Contestant, INSIDE, Job, LOADER_CACHE, MEMORY, PIDS, Peer, SHM, Setting, TMP, UID, explain, job,
    skeleton,
};
use crate::bench::clock::End;
use crate::bench::room::Room;

struct Engine {
    binary: PathBuf,
    /// Imported for this benchmark, and removed with it.
    image: String,
    host_usr: bool,
    cpus: usize,
    runs: AtomicU64,
}

pub fn find(tool: &'static str, setting: &Setting, host: &Arc<Room>) -> Result<Contestant, String> {
    let binary = super::which(tool)?;
    // The server's, where there is one: a client alone can't run anything.
    let format = if tool == "docker" { "{{.Server.Version}}" } else { "{{.Client.Version}}" };
    let version = super::first_line(&binary, &["version", "--format", format])?;
    let tree = match &setting.subject.tree {
        Some(tree) => tree.clone(),
        None => {
            let path = setting.scratch.path().join(tool).join("rootfs");
            skeleton(&path).map_err(|e| format!("cannot make {path:?}: {e}"))?;
            path
        }
    };
    let image = format!("creel-bench-{}:{tool}", std::process::id());
    let peer = Engine {
        image,
        host_usr: setting.subject.tree.is_none(),
        cpus: setting.cpus,
        runs: AtomicU64::new(0),
        binary,
    };
    peer.import(&tree)?;
    let notes =
        vec!["its own seccomp profile; the image was imported for this run and is removed after it".into()];
    Ok(Contestant {
        name: tool,
        version: format!("{tool} {version}"),
        notes,
        room: host.clone(),
        peer: Arc::new(peer),
    })
}

impl Engine {
    fn import(&self, tree: &Path) -> Result<(), String> {
        let start = |e: std::io::Error| format!("cannot import the image: {e}");
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "-C"]).arg(tree).args(["-c", "."]);
        let mut tar =
            tar.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(start)?;
        let mut import = Command::new(&self.binary);
        import.args(["import", "-", &self.image]);
        if let Some(stream) = tar.stdout.take() {
            import.stdin(stream);
        }
        let output = import.output();
        let _ = tar.wait();
        let output = output.map_err(start)?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("cannot import the image: {}", explain(&output.stderr)))
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let mut command = Command::new(&self.binary);
        command
            .args(["rmi", "-f", &self.image])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _ = command.status();
    }
}

impl Peer for Engine {
    fn job(&self, command: &[String]) -> Result<Job, String> {
        let n = self.runs.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{n}", self.image.replace(':', "-"));
        let mut args = Args::of(&self.binary);
        args.add(["run", "--rm", "--name", &name, "--network", "none", "--read-only", "--cap-drop", "ALL"]);
        args.add(["--security-opt", "no-new-privileges", "--user", &format!("{UID}:{UID}")]);
        args.add(["--memory", &MEMORY.to_string(), "--memory-swap", &MEMORY.to_string()]);
        args.add(["--pids-limit", &PIDS.to_string(), "--cpus", &self.cpus.to_string()]);
        args.add([
            "--tmpfs",
            &format!("/tmp:size={TMP}"),
            "--shm-size",
            &SHM.to_string(),
            "--workdir",
            "/tmp",
        ]);
        for (key, value) in INSIDE {
            args.add(["--env", &format!("{key}={value}")]);
        }
        if self.host_usr {
            args.add(["--volume", "/usr:/usr:ro", "--volume", &format!("{LOADER_CACHE}:{LOADER_CACHE}:ro")]);
        }
        args.add([&self.image]).add(command);
        let undo = [self.binary.as_os_str(), "rm".as_ref(), "-f".as_ref(), name.as_ref()];
        Ok(Job { undo: undo.iter().map(OsString::from).collect(), ..job(args.0, End::Ask) })
    }
}
