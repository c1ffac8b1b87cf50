//! All mounts of one sandbox, made by its launcher while init gets itself ready.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::go::Go;
use super::run_dirs::{Places, RunDirs, reopened};
use super::slot::Showing;
use super::spec::{Ids, Spec};
use super::template::{StepError, Template, step};
use crate::sys;

/// Everything that is mounted in the sandbox, made while init gets itself ready.
pub struct Trees {
    pub root: OwnedFd,
    pub dev: OwnedFd,
    /// An empty directory.
    pub empty: OwnedFd,
    /// The directory that the template is mounted over, as it is beneath.
    pub place: OwnedFd,
    pub dirs: RunDirs,
}

impl Trees {
    /// Makes them in the launcher's own mount namespace. `root` gives the user namespace its maps and clones the root for it.
    pub fn make(
        spec: &mut Spec,
        root: impl FnOnce(&Template) -> Result<OwnedFd, StepError>,
    ) -> Result<Trees, StepError> {
        for b in &mut spec.root.binds {
            b.source = step(format!("open the source of {}", b.target), reopened(b.source.as_fd()))?;
        }
        for layer in &mut spec.root.layers {
            *layer = step("open an image layer", reopened(layer.as_fd()))?;
        }
        if let Some(upper) = &mut spec.root.upper {
            for dir in [&mut upper.files, &mut upper.scratch] {
                *dir = step("open a directory for changes", reopened(dir.as_fd()))?;
            }
        }
        for shown in &mut spec.shown {
            shown.source =
                step(format!("open the source of {}", shown.target), reopened(shown.source.as_fd()))?;
        }
        let places = Places::open(spec)?;
        let at = step("open the place for the launcher's tree", reopened(spec.place.as_fd()))?;
        let template = Template::build(&spec.root, spec.ids, at.as_fd())?;
        let dirs = RunDirs::make(spec, places, &template)?;
        let dev = template.clone_dev()?;
        let root = root(&template)?;
        Ok(Trees { root, dev, empty: template.empty, place: at, dirs })
    }

    /// What a delivery takes later.
    pub fn showing(&self) -> Result<Showing, StepError> {
        let copy = |fd: &OwnedFd| step("duplicate a descriptor", fd.try_clone());
        Ok(Showing { empty: copy(&self.empty)?, place: copy(&self.place)? })
    }

    /// Sends the order to go to init.
    pub fn send(&self, init: BorrowedFd<'_>, filter: &[u8], entrances: &[BorrowedFd<'_>]) -> io::Result<()> {
        Go::send(init, filter, self.root.as_fd(), self.dev.as_fd(), &self.dirs.binds, entrances)
    }
}

/// Writes the identity maps of init and makes its root.
pub fn give_identity(ids: Ids, pid: i32, template: &Template) -> Result<OwnedFd, StepError> {
    let (uids, gids) = ids.maps();
    let written = sys::userns::write_maps(pid, &uids, &gids, !ids.by_root());
    step("write the identity maps", written)?;
    match ids.by_root() {
        true => {
            let userns = step("open the user namespace", userns_of(pid))?;
            template.clone_root(Some(userns.as_fd()))
        }
        false => template.clone_root(None),
    }
}

/// The user namespace of process `pid`.
pub fn userns_of(pid: i32) -> io::Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
