//! Threads in which programs are started: one as this process is, others in mount namespaces of their own.
//!
//! A thread that leaves the mount namespace takes its children, and the threads it makes, with it; the other threads stay. So nothing is
//! unshared or mounted while the clock runs, and the host's mounts are never touched.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{mount, mount_bind_recursive, mount_change, unmount};

use crate::sys;
use crate::text::io_reason;

type Task = Box<dyn FnOnce() + Send>;

/// What a room differs in from the host.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Mounts that are taken away.
    pub without: Vec<PathBuf>,
    pub tree: Option<Tree>,
    /// Whether that tree, with `/dev`, `/proc` and an empty `/tmp`, becomes the root.
    pub inside: bool,
}

/// A directory that is seen read-only at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub from: PathBuf,
    /// What lies over it: mount points that an image may lack. No `:`, `,` or `\` in its path.
    pub over: PathBuf,
    /// An empty directory.
    pub at: PathBuf,
}

/// A thread that carries tasks out.
#[derive(Debug)]
pub struct Room {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Room {
    /// Makes the thread, and its mounts unless the plan is empty.
    ///
    /// # Errors
    /// Why it can't be had, in words.
    pub fn make(plan: Plan) -> Result<Room, String> {
        let (tasks, queue) = channel::<Task>();
        let (ready, is_ready) = channel();
        let work = move || {
            let made = if plan == Plan::default() { Ok(()) } else { plan.carry_out() };
            let well = made.is_ok();
            let _ = ready.send(made);
            if well {
                queue.into_iter().for_each(|task| task());
            }
        };
        let thread = Builder::new().name("creel-bench".into()).spawn(work);
        let thread = thread.map_err(|e| format!("no thread: {}", io_reason(&e)))?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Room { tasks: Some(tasks), thread: Some(thread) }),
            Ok(Err(why)) => {
                let _ = thread.join();
                Err(format!("needs a mount namespace of its own: {why}"))
            }
            Err(_) => Err("its thread ended".into()),
        }
    }

    /// Carries a task out there and waits for it. `None` if the thread has ended.
    pub fn run<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        let (answer, answered) = channel();
        let task = Box::new(move || {
            let _ = answer.send(task());
        });
        self.tasks.as_ref()?.send(task).ok()?;
        answered.recv().ok()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Its thread sees the end of the queue; its mounts go with it.
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Plan {
    /// For the calling thread.
    fn carry_out(&self) -> Result<(), String> {
        let fail = |what: &str, e: &dyn std::fmt::Display| format!("cannot {what}: {e}");
        let here = |path: &str| fs::read_link(path).map_err(|e| fail("read its namespace", &e));
        let before = here("/proc/thread-self/ns/mnt")?;
        sys::process::unshare(libc::CLONE_NEWNS).map_err(|e| fail("unshare", &io_reason(&e)))?;
        // Nothing below may happen in the host's namespace.
        if here("/proc/thread-self/ns/mnt")? == before {
            return Err("still in the host's mount namespace".into());
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(|e| fail("make mounts private", &io::Error::from(e)))?;
        for path in &self.without {
            unmount(path, UnmountFlags::empty())
                .map_err(|e| fail(&format!("unmount {path:?}"), &io::Error::from(e)))?;
        }
        if let Some(tree) = &self.tree {
            let well = tree.mount(self.inside);
            well.map_err(|e| fail(&format!("mount {:?}", tree.from), &io::Error::from(e)))?;
        }
        Ok(())
    }
}

impl Tree {
    /// For a thread in a mount namespace of its own: an overlay without an upper directory, as creel's own root is one.
    fn mount(&self, inside: bool) -> Result<(), rustix::io::Errno> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        // Relative to the working directory, which is this thread's own now: its path may have any characters.
        rustix::process::chdir(&self.from)?;
        let mut options = b"lowerdir=".to_vec();
        options.extend_from_slice(self.over.as_os_str().as_bytes());
        options.extend_from_slice(b":.");
        let options = CString::new(options).map_err(|_| rustix::io::Errno::INVAL)?;
        // Only read-only: nsjail mounts it anew without nosuid and nodev, which may not be taken away once they are there.
        mount("overlay", &self.at, "overlay", MountFlags::RDONLY, &*options)?;
        if inside {
            mount_bind_recursive("/dev", self.at.join("dev"))?;
            mount_bind_recursive("/proc", self.at.join("proc"))?;
            mount("tmpfs", self.at.join("tmp"), "tmpfs", flags, c"mode=1777")?;
            rustix::process::chroot(&self.at)?;
        }
        rustix::process::chdir("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_back_and_a_room_of_its_own_leaves_the_host_alone() {
        let room = Room::make(Plan::default()).unwrap();
        assert_eq!(room.run(|| 6 * 7), Some(42));
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: mount namespaces are made by root");
            return;
        }
        let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let dir = tempfile::TempDir::with_prefix("creel-bench-test-").unwrap();
        let (at, over) = (dir.path().join("at"), dir.path().join("over"));
        fs::create_dir(&at).unwrap();
        fs::create_dir_all(over.join("一个")).unwrap();
        let tree = Some(Tree { from: "/usr".into(), over, at: at.clone() });
        let own = Room::make(Plan { tree, ..Plan::default() }).unwrap();
        let (bin, extra) = (at.join("bin"), at.join("一个"));
        assert_eq!(own.run(move || (bin.exists(), extra.exists())), Some((true, true)));
        let file = at.join("creel-bench-probe");
        let refused = own.run(move || fs::write(file, "x").unwrap_err().kind()).unwrap();
        assert_eq!(refused, io::ErrorKind::ReadOnlyFilesystem);
        assert!(!at.join("bin").exists());
        assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    }
}
