//! creel itself: the same program that measures.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Args, Contestant, Job, Peer, Setting, job};
use crate::bench::clock::End;
use crate::bench::room::Room;

/// Starts `creel run`.
#[derive(Debug, Clone)]
pub struct Creel {
    binary: PathBuf,
    image: String,
    options: Vec<String>,
    dir: PathBuf,
}

impl Creel {
    /// This program. A CPU limit of all CPUs is set like any other, and never bites: half of one, the default, would measure the limit.
    ///
    /// # Errors
    /// The program's file is gone.
    pub fn new(setting: &Setting) -> Result<Creel, String> {
        let binary = std::env::current_exe().map_err(|e| format!("cannot find its own file: {e}"))?;
        if !super::is_program(&binary) {
            return Err(format!("its own file {binary:?} is gone"));
        }
        let mut options = vec!["--cpus".to_owned(), setting.cpus.to_string()];
        if !setting.allow_unenforced.is_empty() {
            options.extend(["--allow-unenforced".to_owned(), setting.allow_unenforced.join(",")]);
        }
        // A bundle by its whole path: it runs in another directory.
        let image = match (&setting.subject.tree, &setting.subject.digest) {
            (Some(_), None) => std::fs::canonicalize(&setting.subject.name)
                .ok()
                .and_then(|p| p.into_os_string().into_string().ok())
                .unwrap_or_else(|| setting.subject.name.clone()),
            _ => setting.subject.name.clone(),
        };
        Ok(Creel { binary, image, options, dir: setting.scratch.path().to_owned() })
    }

    /// As a contestant.
    pub fn contestant(self, host: &Arc<Room>) -> Contestant {
        Contestant {
            name: "creel",
            version: env!("CARGO_PKG_VERSION").to_owned(),
            notes: Vec::new(),
            room: host.clone(),
            peer: Arc::new(self),
        }
    }

    /// `creel run --json` of a Python script.
    pub fn script(&self, code: &str) -> Job {
        let mut args = Args::of(&self.binary);
        args.add(["run", "--json", "--image", &self.image]).add(&self.options).add(["-c", code]);
        Job { dir: Some(self.dir.clone()), ..job(args.0, End::Ask) }
    }

    /// The image as runs in any directory find it.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// `creel run` with further options, output passed through.
    pub fn run(&self, options: &[&str], command: &[String]) -> Job {
        let mut args = Args::of(&self.binary);
        args.add(["run", "--image", &self.image]).add(&self.options).add(options).add(["--"]).add(command);
        Job { dir: Some(self.dir.clone()), ..job(args.0, End::Ask) }
    }
}

impl Peer for Creel {
    fn job(&self, command: &[String]) -> Result<Job, String> {
        Ok(self.run(&["--json"], command))
    }
}
