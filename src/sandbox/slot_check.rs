//! Looks at a waiting slot from outside: it is what its launcher made, nothing less and nothing more. What the processes of a slot
//! gave up, they gave up by themselves, so this is where it is verified.

use std::collections::HashMap;
use std::fs;

use super::cgroup::Group;
use super::spec::{Ids, Spec};

/// The two processes of an idle slot, by host pids.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    pub init: i32,
    pub payload: i32,
}

/// What is wrong with the slot, in words.
pub fn check_idle(spec: &Spec, group: &Group, member: Member) -> Result<(), String> {
    let payload = status(member.payload)?;
    let init = status(member.init)?;
    for (who, s) in [("its Python", &payload), ("its init", &init)] {
        no_privileges(who, s, spec.ids.user())?;
    }
    wants("its Python", &payload, "Seccomp", "2")?;
    wants("its Python", &payload, "Threads", "1")?;
    let inner =
        |s: &Status, pid: &str| s.get("NSpid").is_some_and(|l| l.split('\t').next_back() == Some(pid));
    if !inner(&payload, "2") || !inner(&init, "1") {
        return Err("its processes are not 1 and 2 of a pid namespace of their own".into());
    }
    for kind in ["user", "mnt", "net", "ipc", "uts", "pid"] {
        let (own, theirs) = (namespace("self".into(), kind)?, namespace(member.payload.to_string(), kind)?);
        let init = match namespace(member.init.to_string(), kind) {
            // Its init is not dumpable, so an ordinary user may not look.
            Err(_) if matches!(spec.ids, Ids::Caller { .. }) => theirs.clone(),
            other => other?,
        };
        if own == theirs || theirs != init {
            return Err(format!("its Python is not in the slot's {kind} namespace"));
        }
    }
    let mut pids = group.pids();
    pids.retain(|&pid| pid != member.init && pid != member.payload);
    match pids.first() {
        Some(pid) => Err(format!("process {pid} is in its cgroup, and not of it")),
        None => Ok(()),
    }
}

type Status = HashMap<String, String>;

/// The lines of proc_pid_status(5).
fn status(pid: i32) -> Result<Status, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|e| format!("its process {pid} can't be looked at: {e}"))?;
    Ok(text
        .lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(k, v)| (k.to_owned(), v.trim().to_owned()))
        .collect())
}

fn wants(who: &str, status: &Status, key: &str, value: &str) -> Result<(), String> {
    match status.get(key) {
        Some(v) if v == value => Ok(()),
        other => Err(format!("{who} has {key} {} instead of {value}", other.map_or("nothing", |v| v))),
    }
}

fn no_privileges(who: &str, status: &Status, user: u32) -> Result<(), String> {
    let ids = format!("{user}\t{user}\t{user}\t{user}");
    wants(who, status, "Uid", &ids)?;
    wants(who, status, "NoNewPrivs", "1")?;
    wants(who, status, "TracerPid", "0")?;
    wants(who, status, "Groups", "")?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        wants(who, status, set, "0000000000000000")?;
    }
    match status.get("State").and_then(|s| s.chars().next()) {
        Some('S' | 'R' | 'D') => Ok(()),
        state => Err(format!("{who} is in state {}", state.unwrap_or('?'))),
    }
}

fn namespace(pid: String, kind: &str) -> Result<Vec<u8>, String> {
    rustix::fs::readlink(format!("/proc/{pid}/ns/{kind}"), Vec::new())
        .map(std::ffi::CString::into_bytes)
        .map_err(|e| format!("the {kind} namespace of process {pid} can't be read: {e}"))
}
