//! A list of system calls that another process carries out: the forks of a zygote are Python processes, and what they do on their way into a
//! slot is decided here, not there.
//!
//! One call a line: its name for errors, its number, its arguments, with tabs between. `rootfs/zygote/sitecustomize.py` reads it.

use std::ffi::CStr;
use std::fmt::Write;

use landlock::{ABI, Access, AccessFs, BitFlags, Scope};

use super::landlock::DEVICES;
use super::role::Role;
use crate::sys::fds::CLOSE_FROM;
use crate::sys::privileges;

/// An argument of a call.
pub enum Arg<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    /// The n-th descriptor that is sent along.
    Sent(u32),
    /// What an earlier call returned.
    Result(u32),
    /// These bytes and after them, as 32 bits, what an earlier call returned.
    BytesThen(&'a [u8], u32),
    /// A `struct sock_fprog` with these instructions.
    Filter(&'a [u8]),
}

/// The list.
#[derive(Debug, Default)]
pub struct Script {
    text: String,
    calls: u32,
}

impl Script {
    /// Adds a call; gives the number of its result.
    fn call(&mut self, name: &str, number: libc::c_long, args: &[Arg<'_>]) -> u32 {
        let text = &mut self.text;
        // Writing into a string can't fail.
        let _ = write!(text, "{name}\t{number}");
        for arg in args {
            let _ = match arg {
                Arg::Int(n) => write!(text, "\ti{n}"),
                Arg::Bytes(b) => write!(text, "\tb{}", hex(b)),
                Arg::Sent(n) => write!(text, "\tf{n}"),
                Arg::Result(n) => write!(text, "\tr{n}"),
                Arg::BytesThen(b, n) => write!(text, "\tc{}:{n}", hex(b)),
                Arg::Filter(b) => write!(text, "\ts{}", hex(b)),
            };
        }
        text.push('\n');
        self.calls += 1;
        self.calls - 1
    }

    fn prctl(&mut self, name: &str, option: i32, arg: i64, arg2: i64) {
        let args = [i64::from(option), arg, arg2, 0, 0].map(Arg::Int);
        self.call(name, libc::SYS_prctl, &args);
    }

    fn identity(&mut self, role: Role) {
        let id = i64::from(role.inside());
        self.call("leave all groups", libc::SYS_setgroups, &[Arg::Int(0), Arg::Int(0)]);
        self.call(
            "become the user's group",
            libc::SYS_setresgid,
            &[Arg::Int(id), Arg::Int(id), Arg::Int(id)],
        );
        self.call("become the user", libc::SYS_setresuid, &[Arg::Int(id), Arg::Int(id), Arg::Int(id)]);
    }

    fn capabilities(&mut self, keep: u64, inheritable: u64) {
        let mut header = privileges::VERSION_3.to_ne_bytes().to_vec();
        header.extend_from_slice(&[0; 4]);
        let half = |shift: u32| [keep, keep, inheritable].map(|set| (set >> shift) as u32);
        let data: Vec<u8> = [half(0), half(32)].as_flattened().iter().flat_map(|n| n.to_ne_bytes()).collect();
        self.call("set capabilities", libc::SYS_capset, &[Arg::Bytes(&header), Arg::Bytes(&data)]);
    }

    /// For the process that becomes PID 1: the identity that it mounts things with, and the capabilities kept over the execution of creel's
    /// init, which gives them up when it has built the root.
    pub fn for_init(role: Role, last_capability: u32) -> Script {
        let mut script = Script::default();
        script.identity(role);
        let all = u64::MAX >> (63 - last_capability);
        script.capabilities(all, all);
        for capability in 0..=last_capability {
            const RAISE: i64 = libc::PR_CAP_AMBIENT_RAISE as i64;
            script.prctl("keep capabilities", libc::PR_CAP_AMBIENT, RAISE, capability.into());
        }
        script
    }

    /// For the process that becomes the program: what `setup::run` does for one that is executed, in the same order, with the namespaces and the root
    /// of a PID 1 that has built them already (its pidfd is sent along first). It keeps descriptors 0 to 3.
    pub fn for_payload(role: Role, steps: &Payload<'_>) -> Script {
        let mut script = Script::default();
        let s = &mut script;
        let namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        s.call("join the namespaces", libc::SYS_setns, &[Arg::Sent(0), Arg::Int(namespaces.into())]);
        s.identity(role);
        s.call("make a cgroup namespace", libc::SYS_unshare, &[Arg::Int(libc::CLONE_NEWCGROUP.into())]);
        s.call("start a session", libc::SYS_setsid, &[]);
        for (resource, soft, hard) in &steps.rlimits {
            let limit = [soft.to_ne_bytes(), hard.to_ne_bytes()].concat();
            let args = [Arg::Int(0), Arg::Int(i64::from(*resource)), Arg::Bytes(&limit), Arg::Int(0)];
            s.call("set a resource limit", libc::SYS_prlimit64, &args);
        }
        s.call("set the umask", libc::SYS_umask, &[Arg::Int(0o022)]);
        s.call("change to the working directory", libc::SYS_chdir, &[Arg::Bytes(with_nul(c"/work"))]);
        for capability in 0..=steps.last_capability {
            s.prctl("drop the bounding set", libc::PR_CAPBSET_DROP, capability.into(), 0);
        }
        s.prctl("clear ambient capabilities", libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL.into(), 0);
        s.capabilities(role.capabilities(), 0);
        s.prctl("set no_new_privs", libc::PR_SET_NO_NEW_PRIVS, 1, 0);
        // Nothing is executed any more, which would make the process dumpable again after the change of its uid.
        s.prctl("be dumpable", libc::PR_SET_DUMPABLE, 1, 0);
        s.landlock(steps.landlock_abi, steps.writable);
        let (from, to) = (Arg::Int(CLOSE_FROM.into()), Arg::Int(u32::MAX.into()));
        s.call("close descriptors", libc::SYS_close_range, &[from, to, Arg::Int(0)]);
        let mode = Arg::Int(libc::SECCOMP_SET_MODE_FILTER.into());
        let filter = Arg::Filter(steps.filter);
        s.call("install the system-call filter", libc::SYS_seccomp, &[mode, Arg::Int(0), filter]);
        script
    }

    /// As `landlock::restrict`, by system calls (landlock(7)).
    fn landlock(&mut self, abi: i32, writable: &[&str]) {
        let known = ABI::from(abi);
        let write: BitFlags<AccessFs> = AccessFs::from_write(known);
        let write_file = write & AccessFs::from_file(known);
        let scopes = Scope::from_all(known).bits();
        let fields = [write.bits(), 0, scopes];
        // handled_access_net came with ABI 4, scoped with 6; an older kernel takes only what it knows.
        let length = if abi >= 6 { 24 } else { 8 };
        let attributes: Vec<u8> = fields.iter().flat_map(|f| f.to_ne_bytes()).take(length).collect();
        let ruleset = self.call(
            "make a landlock ruleset",
            libc::SYS_landlock_create_ruleset,
            &[Arg::Bytes(&attributes), Arg::Int(length as i64), Arg::Int(0)],
        );
        let dirs = writable.iter().map(|dir| ((*dir).to_owned(), write));
        let devices = DEVICES.iter().map(|device| (format!("/dev/{device}"), write_file));
        for (path, access) in dirs.chain(devices) {
            let flags = libc::O_PATH | libc::O_CLOEXEC;
            let at = Arg::Int(libc::AT_FDCWD.into());
            let name = [path.as_bytes(), b"\0"].concat();
            let args = [at, Arg::Bytes(&name), Arg::Int(flags.into()), Arg::Int(0)];
            let fd = self.call(&format!("open {path} for landlock"), libc::SYS_openat, &args);
            let rule = access.bits().to_ne_bytes();
            const PATH_BENEATH: i64 = 1;
            self.call(
                &format!("add a landlock rule for {path}"),
                libc::SYS_landlock_add_rule,
                &[Arg::Result(ruleset), Arg::Int(PATH_BENEATH), Arg::BytesThen(&rule, fd), Arg::Int(0)],
            );
        }
        self.call(
            "restrict with landlock",
            libc::SYS_landlock_restrict_self,
            &[Arg::Result(ruleset), Arg::Int(0)],
        );
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What [`Script::for_payload`] must know.
pub struct Payload<'a> {
    pub landlock_abi: i32,
    pub writable: &'a [&'a str],
    /// The filter's instructions as bytes, see [`filter_bytes`](super::go::filter_bytes).
    pub filter: &'a [u8],
    /// Resource, soft and hard limit.
    pub rlimits: Vec<(u32, u64, u64)>,
    pub last_capability: u32,
}

fn with_nul(text: &'static CStr) -> &'static [u8] {
    text.to_bytes_with_nul()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_written_as_the_reader_expects_them() {
        let mut script = Script::default();
        let first = script.call("open x", 2, &[Arg::Bytes(b"/x\0"), Arg::Int(-1), Arg::Sent(3)]);
        script.call("use it", 3, &[Arg::Result(first), Arg::BytesThen(&[0xab], first), Arg::Filter(&[1; 8])]);
        assert_eq!(script.text(), "open x\t2\tb2f7800\ti-1\tf3\nuse it\t3\tr0\tcab:0\ts0101010101010101\n");
    }

    #[test]
    fn the_filter_comes_last_and_privileges_go_before_landlock() {
        let steps = Payload {
            landlock_abi: 7,
            writable: &["/work"],
            filter: &[0; 8],
            rlimits: vec![],
            last_capability: 40,
        };
        let script = Script::for_payload(Role::Payload, &steps);
        let lines: Vec<&str> = script.text().lines().collect();
        let at = |name: &str| lines.iter().position(|l| l.starts_with(name)).unwrap();
        assert!(at("join the namespaces") < at("become the user"));
        assert!(at("set capabilities") < at("set no_new_privs"));
        assert!(at("set no_new_privs") < at("restrict with landlock"));
        assert_eq!(at("install the system-call filter"), lines.len() - 1);
        assert_eq!(lines.iter().filter(|l| l.starts_with("drop the bounding set")).count(), 41);
    }
}
