//! The sandbox's own rooms: namespaces and what is mounted in them.

use std::path::Path;

use super::{Check, Status};
use crate::executor::ids::Lease;
use crate::sandbox::host::probe;
use crate::sandbox::spec::Ids;

pub fn checks(lease: &Lease) -> Vec<Check> {
    let ids = lease.ids;
    let fail = |name, found, tried| Check::tried(name, found, Status::Fail, tried);
    let user = fail("user namespaces", "can be made", probe::user_namespace(ids));
    if user.status != Status::Ok {
        let rest = untried(&user, &["namespaces", "proc", "tmpfs", "devices", "overlay"]);
        return [vec![user], rest].concat();
    }
    let all = fail("namespaces", "pid, mnt, net, ipc, uts and cgroup", probe::namespaces(ids));
    let mounts = if all.status == Status::Ok {
        vec![
            fail("proc", "can be mounted in a sandbox", probe::proc(ids)),
            fail("tmpfs", "can be mounted in a sandbox", probe::memory_files(ids)),
        ]
    } else {
        untried(&all, &["proc", "tmpfs"])
    };
    let rest = vec![
        fail("devices", "null, zero, full, random, urandom, tty", probe::devices(ids)),
        Check::tried("overlay", "can be mounted", Status::Warn, probe::overlay(ids)),
        idmapped(ids),
    ];
    [vec![user, all], mounts, rest].concat()
}

/// What can't be tried without `needed`; what is missing is said once.
fn untried(needed: &Check, names: &[&'static str]) -> Vec<Check> {
    let fix = needed.fix.clone().unwrap_or_default();
    let found = format!("not tried: it takes {}", needed.name);
    names.iter().map(|name| Check::warn(name, found.as_str(), fix.as_str())).collect()
}

/// Only how owners are shown depends on it.
fn idmapped(ids: Ids) -> Check {
    const NAME: &str = "idmapped mounts";
    if matches!(ids, Ids::Caller { .. }) {
        return Check::ok(NAME, "not used by an ordinary user");
    }
    match probe::idmapped(ids, Path::new("/usr")) {
        Ok(()) => Check::ok(NAME, "work on the file system of /usr"),
        Err(e) => Check::ok(
            NAME,
            format!(
                "not on the file system of /usr (errno {}): its files show as nobody's, which changes no right",
                e.errno
            ),
        ),
    }
}
