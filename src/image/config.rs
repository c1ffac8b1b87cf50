//! A bundle's `config.json`, as far as creel reads it.
//!
//! The types are our own, not those of `oci-spec`: that crate must understand every value of the file (each capability,
//! architecture and action by name), so that a newer name in a part that creel does not take would refuse the bundle. Here
//! what is not taken is skipped whatever it is, and its key is kept for the report.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::accounts::{GID, UID};

/// Keys that creel does not act on; null counts as absent.
type Rest = BTreeMap<String, Option<IgnoredAny>>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    pub oci_version: String,
    pub root: Option<Root>,
    pub process: Option<Process>,
    pub mounts: Option<Vec<Mount>>,
    pub hooks: Option<BTreeMap<String, Option<Vec<IgnoredAny>>>>,
    pub linux: Option<Linux>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Debug, Deserialize)]
pub(super) struct Root {
    pub path: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process {
    pub terminal: Option<bool>,
    user: Option<User>,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub rlimits: Option<Vec<Rlimit>>,
    no_new_privileges: Option<bool>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Debug, Deserialize)]
struct User {
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rlimit {
    #[serde(rename = "type")]
    pub kind: String,
    pub soft: u64,
    pub hard: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Mount {
    pub destination: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub source: Option<String>,
    pub options: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Linux {
    pub resources: Option<Resources>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Resources {
    pub memory: Option<Memory>,
    pub pids: Option<Pids>,
    pub cpu: Option<Cpu>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Memory {
    pub limit: Option<i64>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Pids {
    pub limit: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Cpu {
    pub quota: Option<i64>,
    pub period: Option<u64>,
    #[serde(flatten)]
    rest: Rest,
}

/// How many keys a note names at most, and how long each may be.
const NAMED: usize = 24;
const NAME_CHARS: usize = 60;

impl Config {
    /// The names of hooks that have an entry.
    pub fn hooks(&self) -> Vec<&str> {
        let hooks = self.hooks.iter().flatten();
        hooks.filter(|(_, v)| v.as_ref().is_some_and(|v| !v.is_empty())).map(|(k, _)| k.as_str()).collect()
    }

    /// What the report says of the parts that were not taken: at most three lines.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut keys = self.keys_not_taken();
        if !keys.is_empty() {
            let more = keys.len().saturating_sub(NAMED);
            keys.truncate(NAMED);
            let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
            notes
                .push(format!("config.json: not taken, creel's own policy holds: {}{tail}", keys.join(", ")));
        }
        let Some(process) = &self.process else {
            return notes;
        };
        if let Some(User { uid, gid }) = process.user {
            notes.extend(user_note(uid.unwrap_or(0), gid.unwrap_or(0)));
        }
        if process.terminal == Some(true) {
            notes.push("config.json: process.terminal is not taken, a run has no terminal".to_owned());
        }
        notes
    }

    /// The note on the user that an installed image names. Root is what an image says that says nothing.
    pub fn user_note(&self) -> Option<String> {
        let user = self.process.as_ref()?.user.as_ref()?;
        let (uid, gid) = (user.uid.unwrap_or(0), user.gid.unwrap_or(0));
        ((uid, gid) != (0, 0)).then(|| user_note(uid, gid)).flatten()
    }

    /// Takes out what the store writes for an image that says nothing, so that creel's own defaults hold.
    pub fn drop_defaults(&mut self) {
        if let Some(process) = &mut self.process {
            process.cwd.take_if(|cwd| cwd == "/");
            process.rlimits = None;
        }
    }

    fn keys_not_taken(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut add = |prefix: &str, rest: &Rest, but: &[&str]| {
            let present = rest.iter().filter(|(k, v)| v.is_some() && !but.contains(&k.as_str()));
            keys.extend(present.map(|(k, _)| format!("{prefix}{}", shown(k))));
        };
        // Annotations are remarks for other programs.
        add("", &self.rest, &["annotations"]);
        if let Some(process) = &self.process {
            add("process.", &process.rest, &[]);
        }
        if let Some(linux) = &self.linux {
            add("linux.", &linux.rest, &[]);
            if let Some(resources) = &linux.resources {
                // Which devices there are is not a matter of limits here: /dev is creel's own.
                add("linux.resources.", &resources.rest, &["devices"]);
                if let Some(memory) = &resources.memory {
                    add("linux.resources.memory.", &memory.rest, &[]);
                }
                if let Some(cpu) = &resources.cpu {
                    add("linux.resources.cpu.", &cpu.rest, &[]);
                }
            }
        }
        if let Some(process) = &self.process {
            if process.no_new_privileges == Some(false) {
                keys.push("process.noNewPrivileges".to_owned());
            }
            let others = process.rlimits.iter().flatten().filter(|r| r.kind != "RLIMIT_NOFILE");
            keys.extend(others.map(|r| format!("process.rlimits {}", shown(&r.kind))));
        }
        keys
    }
}

fn user_note(uid: u32, gid: u32) -> Option<String> {
    let text = || format!("config.json: the program runs as {UID}:{GID}, not as process.user {uid}:{gid}");
    ((uid, gid) != (UID, GID)).then(text)
}

/// A name of the file for a message: control characters escaped, cut when long.
fn shown(name: &str) -> String {
    let mut text: String = name.escape_debug().take(NAME_CHARS).collect();
    if name.chars().count() > NAME_CHARS {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Config {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn parts_not_taken_are_named_once() {
        let config = parse(
            r#"{"ociVersion":"1.2.0","hostname":"h","annotations":{"a":"b"},"domainname":null,
                "process":{"user":{"uid":0,"gid":0},"cwd":"/","capabilities":{"bounding":["CAP_NOT_YET_INVENTED"]},
                  "noNewPrivileges":false,"terminal":true,
                  "rlimits":[{"type":"RLIMIT_NOFILE","soft":1,"hard":1},{"type":"RLIMIT_CORE","soft":1,"hard":1}]},
                "linux":{"seccomp":{"defaultAction":"SCMP_ACT_NEW"},"sysctl":{"kernel.shm_rmid_forced":"1+kernel.core_pattern=|/x"},
                  "resources":{"devices":[{"allow":false}],"memory":{"limit":5,"swap":7},"cpu":{"shares":2},"blockIO":{}}}}"#,
        );
        let notes = config.notes();
        assert_eq!(notes.len(), 3, "{notes:?}");
        for key in [
            "hostname",
            "process.capabilities",
            "process.noNewPrivileges",
            "process.rlimits RLIMIT_CORE",
            "linux.seccomp",
            "linux.sysctl",
            "linux.resources.blockIO",
            "linux.resources.memory.swap",
            "linux.resources.cpu.shares",
        ] {
            assert!(notes[0].contains(key), "{key} in {notes:?}");
        }
        for key in ["annotations", "domainname", "devices", "NOFILE", "limit,"] {
            assert!(!notes[0].contains(key), "{key} in {notes:?}");
        }
        assert!(notes[1].contains("0:0") && notes[2].contains("terminal"), "{notes:?}");
    }

    #[test]
    fn our_own_user_needs_no_note() {
        let config = parse(
            r#"{"ociVersion":"1.0.0","process":{"user":{"uid":10001,"gid":10001},"noNewPrivileges":true}}"#,
        );
        assert_eq!(config.notes(), Vec::<String>::new());
    }

    #[test]
    fn a_note_stays_short_and_printable() {
        let keys: Vec<_> = (0..500).map(|i| format!("\"{}\\u001b[2J{i}\":1", "k".repeat(100))).collect();
        let notes = parse(&format!("{{\"ociVersion\":\"1.0.0\",{}}}", keys.join(","))).notes();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].len() < 2500 && !notes[0].contains('\x1b'), "{}", notes[0].len());
        assert!(notes[0].ends_with("and 476 more"), "{}", notes[0]);
    }

    #[test]
    fn only_hooks_with_entries_count() {
        assert!(parse(r#"{"ociVersion":"1.0.0","hooks":{}}"#).hooks().is_empty());
        assert!(
            parse(r#"{"ociVersion":"1.0.0","hooks":{"prestart":[],"poststop":null}}"#).hooks().is_empty()
        );
        let config = parse(r#"{"ociVersion":"1.0.0","hooks":{"prestart":[{"path":"/x"}],"poststop":[]}}"#);
        assert_eq!(config.hooks(), ["prestart"]);
    }
}
