//! The payload's way from its birth to the first instruction of the program, top to bottom.
//!
//! [`early`] runs in init; [`run`] in the process that becomes the payload, forked from init inside all namespaces. Until step 2 its
//! identity is still that of who made the sandbox, so it creates nothing before.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit};
use serde::{Deserialize, Serialize};

use super::disk::inodes_for;
use super::go::Go;
use super::landlock;
use super::masks;
use super::mounts::{attach_at, enter, tmpfs};
use super::role::Role;
use super::spec::{Command, HOSTNAME, Scratch};
use super::template::{StepError, step};
use crate::sys;

/// What the launcher has prepared for the payload.
pub struct Plan<'a> {
    pub role: Role,
    pub command: &'a Command,
    pub landlock_abi: i32,
    /// Whether this user namespace allows setgroups(2), which an ordinary user's doesn't.
    pub may_setgroups: bool,
    /// The trees and the filter.
    pub go: &'a Go,
    pub places: &'a Places,
    pub stdin: Option<&'a OwnedFd>,
    pub output: &'a [OwnedFd],
    /// Descriptors 3 and so on, for the Python of a slot or a zygote.
    pub more: &'a [OwnedFd],
    /// Reads end of file once init has given up its privileges.
    pub init_settled: RawFd,
}

/// Steps that need nothing of the launcher: init does them for itself and the payload while the launcher makes the trees. The user and pid
/// namespaces it was born into.
pub fn early(role: Role) -> Result<(), StepError> {
    let network = if role.own_network() { libc::CLONE_NEWNET } else { 0 };
    let namespaces = libc::CLONE_NEWNS | network | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    step("make the sandbox's namespaces", sys::process::unshare(namespaces))?;
    step("set the host name", rustix::system::sethostname(HOSTNAME.as_bytes()))?;
    if role.own_network() {
        step("bring up lo", sys::net::loopback_up())?;
    }
    // A new user namespace gave a full bounding set back.
    step("drop the bounding set", sys::privileges::bound_to(role.capabilities()))?;
    step("schedule as usual", sys::process::ordinary_scheduling())?;
    sys::signal::default_dispositions();
    Ok(())
}

/// Carries out every step and executes the program; comes back only with what failed.
pub fn run(plan: &Plan<'_>, report: RawFd) -> Failure {
    match prepare(plan, report) {
        Ok(command) => Failure::NotExecuted(execute(plan.command, &command)),
        Err(e) => Failure::Step(e),
    }
}

/// Why the payload did not start.
pub enum Failure {
    Step(StepError),
    /// execve(2) refused the program with this errno.
    NotExecuted(i32),
}

fn prepare(plan: &Plan<'_>, report: RawFd) -> Result<Vec<CString>, StepError> {
    // 1. Ready to be chosen first when memory runs out; only host root, before it becomes somebody else, can write this.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");

    // 2. Identity: from here on nothing can be created as somebody else. The capabilities of the new user namespace remain for the mounts.
    let id = plan.role.inside();
    step(format!("become uid {id}"), sys::process::become_user(id, id, plan.may_setgroups))?;

    if matches!(plan.role, Role::Zygote { .. }) {
        // It has no init to end it. After the change of identity, which clears this (prctl(2)).
        let signal = Some(rustix::process::Signal::KILL);
        step("set the death signal", rustix::process::set_parent_process_death_signal(signal))?;
    }

    // 3. A new cgroup namespace, now that birth and attachment are over, so that /proc/self/cgroup shows `/`.
    step("make a cgroup namespace", sys::process::unshare(libc::CLONE_NEWCGROUP))?;

    // 4. and 5. The root.
    build_root(plan.role, plan.places, plan.go)?;

    // 6. Privileges.
    step("start a session", rustix::process::setsid())?;
    limit_resources(plan.command.nofile)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    step("change to the working directory", rustix::process::chdir(plan.command.cwd.as_c_str()))?;
    step("drop capabilities", sys::privileges::keep_only(plan.role.capabilities()))?;
    step("set no_new_privs", rustix::thread::set_no_new_privs(true))?;
    step("unblock signals", sys::signal::unblock_all())?;

    // 7. Descriptors: 0, 1, 2 and, until the program is executed, the one that reports a failure.
    step("wait for init", sys::fds::read_eof(plan.init_settled))?;
    install_streams(plan)?;
    let keep: Vec<RawFd> = (0..3 + plan.more.len() as RawFd).chain([report]).collect();
    step("close descriptors", sys::fds::close_all_except(&keep))?;
    let programs = candidates(plan.command);

    // 8. Landlock, when every mount is in place, and last the system-call filter.
    if matches!(plan.role, Role::Zygote { .. }) {
        return Ok(programs);
    }
    let mut writable = plan.role.writable().to_vec();
    writable.extend(plan.places.scratch.iter().map(|s| s.target.as_str()));
    landlock::restrict(plan.landlock_abi, &writable)
        .map_err(|e| StepError { step: format!("restrict with landlock: {e}"), errno: libc::EPERM })?;
    step("install the system-call filter", sys::seccomp::install(&plan.go.filter))?;
    Ok(programs)
}

/// What is mounted in a root besides the trees that the launcher has made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Places {
    pub tmp: u64,
    pub shm: u64,
    pub run: u64,
    pub scratch: Vec<Scratch>,
}

/// Steps 4 and 5, for a process in the sandbox's namespaces that has its capabilities: mounts everything and makes it the root.
pub fn build_root(role: Role, places: &Places, go: &Go) -> Result<(), StepError> {
    // 4. Mounts, all below the still detached root, each at a path that is ours (mounts.rs).
    let root = go.root.as_fd();
    step("attach the root", old_root().and_then(|at| super::mounts::attach(root, at.as_fd())))?;
    // A zygote's comes with the binds: it has no pid namespace of its own, and no right to mount its maker's.
    let zygote = matches!(role, Role::Zygote { .. });
    if !zygote {
        step("mount /proc", mount_proc(root))?;
    }
    step("attach /dev", attach_at(go.dev.as_fd(), root, "/dev"))?;
    for (target, size, mode) in
        [("/tmp", places.tmp, "1777"), ("/dev/shm", places.shm, "1777"), ("/run", places.run, "0755")]
    {
        mount_tmpfs(root, target, size, mode)?;
    }
    for scratch in &places.scratch {
        mount_tmpfs(root, &scratch.target, scratch.size, "1777")?;
    }
    for (tree, target) in &go.binds {
        step(format!("attach {target}"), attach_at(tree.as_fd(), root, target))?;
    }

    // 5. The old root goes; nothing of the host outside the trees above can be named any more.
    step("enter the root", enter(root))?;
    if zygote {
        // Its forks make namespaces of their own, with a /proc, which takes one that shows everything.
        return Ok(());
    }
    // No user namespace can be made inside, whatever a filter lets through (CVE-2022-0185 and its kin start there).
    step("forbid user namespaces", std::fs::write("/proc/sys/user/max_user_namespaces", "0"))?;
    masks::apply(go.dev.as_fd())
}

/// The root is mounted over the old one: where does not matter, the old one is gone a moment later.
fn old_root() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        "/",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?)
}

fn install_streams(plan: &Plan<'_>) -> Result<(), StepError> {
    let nothing = match plan.stdin {
        Some(_) => None,
        None => Some(step("open /dev/null", open_null())?),
    };
    // Out of the way first: what is to become number 3 may lie at 4.
    let away = |fd: &OwnedFd| step("duplicate a descriptor", rustix::io::fcntl_dupfd_cloexec(fd, HIGH));
    let more = plan.more.iter().map(away).collect::<Result<Vec<_>, _>>()?;
    for (n, fd) in plan.stdin.into_iter().chain(&nothing).chain(plan.output).chain(&more).enumerate() {
        step("install the standard streams", sys::fds::install_std(fd.as_fd(), n as RawFd))?;
    }
    Ok(())
}

/// Above every number that is installed.
const HIGH: RawFd = 32;

/// The sandbox's own, so that not even /proc/self/fd names a mount of the host.
fn open_null() -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?)
}

/// A proc of the sandbox's own pid namespace, made while the launcher's is still visible.
fn mount_proc(root: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::mount::MountAttrFlags as A;
    let proc = super::mounts::new_fs(
        "proc",
        &[],
        A::MOUNT_ATTR_NOSUID | A::MOUNT_ATTR_NODEV | A::MOUNT_ATTR_NOEXEC,
    )?;
    attach_at(proc.as_fd(), root, "/proc")
}

fn mount_tmpfs(root: BorrowedFd<'_>, target: &str, size: u64, mode: &str) -> Result<(), StepError> {
    let tree = step(format!("make the tmpfs for {target}"), tmpfs(size, inodes_for(size), mode))?;
    step(format!("attach {target}"), attach_at(tree.as_fd(), root, target))
}

/// No file-size limit (it breaks shared memory) and no address-space limit (it breaks BLAS): memory is the cgroup's. A core limit of 1, not 0:
/// with 0 a piped core_pattern still runs its handler on the host (core(5), CVE-2025-5054). A caller's lower hard limit stays.
fn limit_resources(nofile: u64) -> Result<(), StepError> {
    for (what, resource, limit) in resource_limits(nofile) {
        step(format!("limit {what}"), rustix::process::setrlimit(resource, limit))?;
    }
    Ok(())
}

/// The limits of a payload whose process has the calling one's now.
pub fn resource_limits(nofile: u64) -> [(&'static str, Resource, Rlimit); 3] {
    let both = |resource, value: u64| {
        let hard = Some(getrlimit(resource).maximum.map_or(value, |m| m.min(value)));
        Rlimit { current: hard, maximum: hard }
    };
    let stack = getrlimit(Resource::Stack);
    let soft = stack.maximum.map_or(8 << 20, |m| m.min(8 << 20));
    [
        ("files", Resource::Nofile, both(Resource::Nofile, nofile)),
        ("core", Resource::Core, both(Resource::Core, 1)),
        ("the stack", Resource::Stack, Rlimit { current: Some(soft), ..stack }),
    ]
}

/// The paths to try for the program, in order, as execvp(3) does.
fn candidates(command: &Command) -> Vec<CString> {
    let name = &command.argv[0];
    if name.as_bytes().contains(&b'/') {
        return vec![name.clone()];
    }
    command
        .search
        .iter()
        .filter_map(|dir| CString::new([dir.as_bytes(), b"/", name.as_bytes()].concat()).ok())
        .collect()
}

fn execute(command: &Command, programs: &[CString]) -> i32 {
    let mut errno = libc::ENOENT;
    for program in programs {
        let e =
            sys::process::execve(program, &command.argv, &command.env).raw_os_error().unwrap_or(libc::EIO);
        match e {
            libc::ENOENT | libc::ENOTDIR => {}
            // A later directory may hold one that can be executed.
            libc::EACCES => errno = e,
            _ => return e,
        }
    }
    errno
}
