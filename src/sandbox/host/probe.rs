//! Trying things out: each probe does what a run does, in a child that lives for a moment, and undoes itself by ending.
//!
//! The steps have the names that they have in a run, so that [`Lack::of_step`](super::Lack::of_step) knows them. The caller must be
//! single-threaded.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, getpid, waitid};

use super::{
    CGROUP_NAMESPACE, HOST_DEVICES, LAYERS_NAMESPACE, MAKE_DEVICE, MAP_CALLER, MOUNT_NAMESPACE, NAMESPACES,
    OVERLAY, PROC, USER_NAMESPACE,
};
use crate::sandbox::landlock::{self, DEVICES, LandlockError};
use crate::sandbox::mounts::{attach, clone_tree, new_fs, tmpfs};
use crate::sandbox::spec::{INSIDE_ID, Ids};
pub use crate::sandbox::template::StepError;
use crate::sandbox::template::{NUMBERS, host_devices, step};
use crate::sys;
use crate::sys::process::{Cloned, clone3, exit_now, unshare};
use crate::sys::userns::{IdMap, with_maps, write_maps};

/// What a probe found: nothing, or the step that failed.
pub type Tried = Result<(), StepError>;

const ALL: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// System calls that the kernel, or a filter around creel, answers with ENOSYS. They are called in a way that does nothing.
pub fn absent_calls() -> Vec<&'static str> {
    use rustix::fs::{CWD, ResolveFlags, openat2};
    use rustix::mount::{FsOpenFlags, MoveMountFlags, OpenTreeFlags, fsopen, move_mount, open_tree};
    let absent = |e: &rustix::io::Errno| *e == rustix::io::Errno::NOSYS;
    let path = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(CWD, "/", path, Mode::empty(), ResolveFlags::empty());
    let tree = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC);
    let attr =
        opened.as_ref().map(|fd| sys::mount::set_attr(fd.as_fd(), false, sys::mount::MountAttr::default()));
    let no_attr = matches!(attr, Ok(Err(e)) if e.raw_os_error() == Some(libc::ENOSYS));
    let forked = child(0, |_| Ok(()), || Ok(()));
    let pidfd = rustix::process::pidfd_open(getpid(), rustix::process::PidfdFlags::empty());
    [
        ("clone3", forked.is_err_and(|e| e.errno == libc::ENOSYS)),
        ("pidfd_open", pidfd.is_err_and(|e| absent(&e))),
        ("close_range", sys::fds::cloexec_from_3().is_err_and(|e| e.raw_os_error() == Some(libc::ENOSYS))),
        ("openat2", opened.as_ref().is_err_and(absent)),
        ("fsopen", fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).is_err_and(|e| absent(&e))),
        ("open_tree", tree.is_err_and(|e| absent(&e))),
        ("move_mount", move_mount(CWD, "", CWD, "", MoveMountFlags::empty()).is_err_and(|e| absent(&e))),
        ("mount_setattr", no_attr),
    ]
    .into_iter()
    .filter_map(|(name, absent)| absent.then_some(name))
    .collect()
}

/// A user namespace, for the caller's ids as an ordinary user.
pub fn user_namespace(ids: Ids) -> Tried {
    match ids.by_root() {
        true => child(libc::CLONE_NEWUSER, |_| Ok(()), || Ok(())),
        false => as_launcher(ids, || Ok(())),
    }
}

/// All namespaces of a sandbox, entered as the payload does.
pub fn namespaces(ids: Ids) -> Tried {
    as_payload(ids, || Ok(()))
}

/// proc in a sandbox's namespaces.
pub fn proc(ids: Ids) -> Tried {
    as_payload(ids, || step(PROC, new_fs("proc", &[], MountAttrFlags::MOUNT_ATTR_NOSUID)).map(drop))
}

/// tmpfs in a sandbox's namespaces.
pub fn memory_files(ids: Ids) -> Tried {
    as_payload(ids, || step("make the tmpfs for /tmp", tmpfs(1 << 20, 64, "1777")).map(drop))
}

/// The device nodes of a sandbox: made as root, those of the host bound by an ordinary user.
pub fn devices(ids: Ids) -> Tried {
    as_launcher(ids, || match ids.by_root() {
        false => step(HOST_DEVICES, host_devices()).map(drop),
        true => {
            let base =
                step("make the launcher's tmpfs", new_fs("tmpfs", &[], MountAttrFlags::MOUNT_ATTR_NOSUID))?;
            for (name, (major, minor)) in DEVICES.iter().zip(NUMBERS) {
                let mode = Mode::from_raw_mode(0o666);
                let number = rustix::fs::makedev(major, minor);
                let made = rustix::fs::mknodat(&base, *name, FileType::CharacterDevice, mode, number);
                step(format!("{MAKE_DEVICE}{name}"), made)?;
            }
            Ok(())
        }
    })
}

/// A read-only overlay, as images with layers need.
pub fn overlay(ids: Ids) -> Tried {
    as_launcher(ids, || {
        let base = step("make the launcher's tmpfs", tmpfs(1 << 20, 64, "0755"))?;
        for dir in ["a", "b"] {
            step("make a layer", rustix::fs::mkdirat(&base, dir, Mode::from_raw_mode(0o755)))?;
        }
        step("attach the launcher's tmpfs", open_path("/").and_then(|at| attach(base.as_fd(), at.as_fd())))?;
        // `/` still names the root beneath what was just attached there, so the layers are named by the descriptor.
        let at = |dir: &str| format!("/proc/self/fd/{}/{dir}", base.as_raw_fd());
        let lower = format!("{}:{}", at("a"), at("b"));
        let mut options = vec![("source", Some("creel")), ("lowerdir", Some(lower.as_str()))];
        if !ids.by_root() {
            options.push(("userxattr", None));
        }
        step(OVERLAY, new_fs("overlay", &options, MountAttrFlags::MOUNT_ATTR_NODEV)).map(drop)
    })
}

/// An idmapped mount of the file system that `path` lies on.
pub fn idmapped(ids: Ids, path: &Path) -> Tried {
    if !ids.by_root() {
        return Err(StepError { step: "map owners as an ordinary user".into(), errno: libc::EPERM });
    }
    as_launcher(ids, || {
        let map = [ids.layers()];
        let userns = step(LAYERS_NAMESPACE, with_maps(&map, &map))?;
        let tree = open_path(path).and_then(|p| clone_tree(p.as_fd(), false));
        let tree = step(format!("clone {}", path.display()), tree)?;
        step("map the owners", sys::mount::set_idmap(tree.as_fd(), false, userns.as_fd()))
    })
}

/// The compiled filter on a process.
pub fn filter(instructions: &[libc::sock_filter]) -> Tried {
    child(
        0,
        |_| Ok(()),
        || {
            step("set no_new_privs", rustix::thread::set_no_new_privs(true))?;
            step("install the system-call filter", sys::seccomp::install(instructions))
        },
    )
}

/// Landlock of version `abi` on a process, as strict as a payload's.
pub fn landlock(abi: i32) -> Tried {
    child(
        0,
        |_| Ok(()),
        || {
            step("set no_new_privs", rustix::thread::set_no_new_privs(true))?;
            match landlock::restrict(abi, &[]) {
                // A device that is missing on the host is told elsewhere.
                Ok(()) | Err(LandlockError::Path(..)) => Ok(()),
                Err(e) => Err(StepError { step: format!("restrict with landlock: {e}"), errno: libc::EPERM }),
            }
        },
    )
}

/// Runs `f` where the launcher works: in a mount namespace of its own and, as an ordinary user, a user namespace.
fn as_launcher(ids: Ids, f: impl FnOnce() -> Tried) -> Tried {
    child(
        0,
        |_| Ok(()),
        || {
            if let Ids::Caller { uid, gid } = ids {
                step(USER_NAMESPACE, unshare(libc::CLONE_NEWUSER))?;
                let map = |id| [IdMap { inside: id, outside: id, count: 1 }];
                let me = getpid().as_raw_nonzero().get();
                step(MAP_CALLER, write_maps(me, &map(uid), &map(gid), true))?;
            }
            step(MOUNT_NAMESPACE, unshare(libc::CLONE_NEWNS))?;
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            step("make mounts private", mount_change("/", private))?;
            f()
        },
    )
}

/// Runs `f` where the payload's set-up works: with its identity, in all namespaces.
fn as_payload(ids: Ids, f: impl FnOnce() -> Tried) -> Tried {
    as_launcher(ids, || {
        let born = |pid| {
            let (uids, gids) = ids.maps();
            step("write the identity maps", write_maps(pid, &uids, &gids, !ids.by_root()))
        };
        child(ALL, born, || {
            step("become uid 10001", sys::process::become_user(INSIDE_ID, INSIDE_ID, ids.by_root()))?;
            step(CGROUP_NAMESPACE, unshare(libc::CLONE_NEWCGROUP))?;
            step("bring up lo", sys::net::loopback_up())?;
            f()
        })
    })
}

/// Runs `f` in a child with new `namespaces`, after `born` has been told its pid; gives what failed first.
fn child(namespaces: libc::c_int, born: impl FnOnce(i32) -> Tried, f: impl FnOnce() -> Tried) -> Tried {
    let (go_read, go_write) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    let (read, write) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    let name = if namespaces == libc::CLONE_NEWUSER { USER_NAMESPACE } else { NAMESPACES };
    match step(name, clone3(namespaces, None))? {
        Cloned::Child => {
            drop(go_write);
            drop(read);
            // End of file: `born` failed and nobody wants to know.
            if rustix::io::read(&go_read, &mut [0u8; 1]) == Ok(1)
                && let Err(e) = f()
            {
                let _ = rustix::io::write(&write, format!("{} {}", e.errno, e.step).as_bytes());
                exit_now(1)
            }
            exit_now(0)
        }
        Cloned::Parent { pid, pidfd } => {
            drop(write);
            let mut result = born(pid);
            if result.is_ok() {
                result = step("start the probe", rustix::io::write(&go_write, b"g")).map(drop);
            }
            drop(go_write);
            let heard = hear(&read);
            let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
            result?;
            heard?;
            match ended {
                Ok(Some(status)) if status.exit_status() == Some(0) => Ok(()),
                // Killed: by a filter or for memory.
                _ => Err(StepError { step: "try it out: the probe was killed".into(), errno: libc::EINTR }),
            }
        }
    }
}

fn hear(read: &OwnedFd) -> Tried {
    let mut text = [0u8; 512];
    let n = rustix::io::retry_on_intr(|| rustix::io::read(read, &mut text)).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..n]);
    match text.split_once(' ') {
        Some((errno, step)) => {
            Err(StepError { step: step.to_owned(), errno: errno.parse().unwrap_or(libc::EIO) })
        }
        None => Ok(()),
    }
}

fn open_path(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
