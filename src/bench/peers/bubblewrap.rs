//! bubblewrap: every namespace, no capability, a read-only root. It sets no limits and no filter.

use std::path::PathBuf;
use std::sync::Arc;

use super::{
    Args, Contestant, INSIDE, Job, LOADER_CACHE, Peer, SHM, Setting, TMP, UID, job, links, room, tree_room,
};
use crate::bench::clock::End;
use crate::bench::room::Room;

struct Bubblewrap {
    binary: PathBuf,
    tree: Option<PathBuf>,
}

pub fn find(setting: &Setting, host: &Arc<Room>) -> Result<Contestant, String> {
    let binary = super::which("bwrap").map_err(|_| "bwrap is not installed".to_owned())?;
    let version = super::first_line(&binary, &["--version"])?;
    // An ordinary user reaches the images that are theirs without help.
    let (tree, room) = match tree_room(setting) {
        Ok(plan) => (plan.tree.as_ref().map(|t| t.at.clone()), room(plan, host)?),
        Err(_) => (setting.subject.tree.clone(), host.clone()),
    };
    Ok(Contestant {
        name: "bubblewrap",
        version,
        notes: vec!["no limits, no system-call filter: it has none of its own".into()],
        room,
        peer: Arc::new(Bubblewrap { binary, tree }),
    })
}

impl Peer for Bubblewrap {
    fn job(&self, command: &[String]) -> Result<Job, String> {
        let id = UID.to_string();
        let mut args = Args::of(&self.binary);
        args.add(["--unshare-all", "--unshare-user", "--unshare-cgroup", "--uid", &id, "--gid", &id]);
        args.add(["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
        args.add(["--clearenv"]);
        for (key, value) in INSIDE {
            args.add(["--setenv", key, value]);
        }
        match &self.tree {
            Some(tree) => {
                args.add(["--ro-bind"]).add([tree]).add(["/"]);
            }
            None => {
                args.add(["--ro-bind", "/usr", "/usr", "--ro-bind-try", LOADER_CACHE, LOADER_CACHE]);
                for (name, target) in links() {
                    args.add(["--symlink"]).add([target]).add([format!("/{name}")]);
                }
            }
        }
        args.add(["--proc", "/proc", "--dev", "/dev", "--size", &SHM.to_string(), "--tmpfs", "/dev/shm"]);
        args.add([
            "--size",
            &TMP.to_string(),
            "--tmpfs",
            "/tmp",
            "--chdir",
            "/tmp",
            "--remount-ro",
            "/",
            "--",
        ]);
        args.add(command);
        Ok(job(args.0, End::Inside))
    }
}
