//! creel's system-call profile in what libseccomp (crun, runc) and nsjail can express.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

const PROFILE: &str = include_str!("../../../profiles/seccomp/default.json");
const ALLOW: &str = "SCMP_ACT_ALLOW";

fn profile() -> Value {
    // Compiled in, and read by every run: a test holds it to be JSON.
    serde_json::from_str(PROFILE).unwrap_or_default()
}

fn rules(profile: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let rules = profile["syscalls"].as_array().into_iter().flatten();
    rules.flat_map(|rule| {
        rule["names"].as_array().into_iter().flatten().filter_map(move |n| Some((n.as_str()?, rule)))
    })
}

/// The names that are allowed with whatever arguments.
pub fn allowed_names() -> BTreeSet<String> {
    let profile = profile();
    rules(&profile).filter(|(_, r)| r["action"] == ALLOW).map(|(name, _)| name.to_owned()).collect()
}

/// For `linux.seccomp`. libseccomp has no order of rules: where creel allows some arguments and then refuses the rest, only the allowing
/// rules stay (the rest falls to the default action); where it refuses some and then allows the rest, all is allowed.
pub fn oci() -> Value {
    let profile = profile();
    let mut by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for (name, rule) in rules(&profile) {
        by_name.entry(name).or_default().push(rule);
    }
    let has_args = |r: &Value| r["args"].as_array().is_some_and(|a| !a.is_empty());
    let mut plain: BTreeMap<(String, Option<i64>), Vec<&str>> = BTreeMap::new();
    let mut syscalls = Vec::new();
    for (name, all) in &by_name {
        let allowing: Vec<&Value> = all.iter().copied().filter(|r| r["action"] == ALLOW).collect();
        let always: Vec<&Value> = allowing.iter().copied().filter(|r| !has_args(r)).collect();
        let kept = match (always.is_empty(), allowing.is_empty()) {
            (false, _) => always,
            (true, false) => allowing,
            (true, true) => all.iter().copied().take(1).collect(),
        };
        for rule in kept {
            if has_args(rule) {
                let mut rule = rule.clone();
                if let Some(rule) = rule.as_object_mut() {
                    rule.remove("comment");
                    rule.insert("names".into(), json!([name]));
                }
                syscalls.push(rule);
            } else {
                let action = rule["action"].as_str().unwrap_or(ALLOW).to_owned();
                plain.entry((action, rule["errnoRet"].as_i64())).or_default().push(name);
            }
        }
    }
    let default = (&profile["defaultAction"], profile["defaultErrnoRet"].as_i64());
    for ((action, errno), names) in plain {
        // A rule that only repeats the default action is refused by some versions.
        if default == (&json!(action), errno) {
            continue;
        }
        let mut rule = json!({ "names": names, "action": action });
        if let Some(errno) = errno {
            rule["errnoRet"] = json!(errno);
        }
        syscalls.push(rule);
    }
    let arch = if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" };
    json!({
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [arch],
        "syscalls": syscalls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_names_and_no_order() {
        let names = allowed_names();
        assert!(names.contains("execve") && names.contains("read") && names.len() > 200);
        let oci = oci();
        let mut seen: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        for (name, rule) in rules(&oci) {
            seen.entry(name.to_owned()).or_default().push(rule["args"].is_array());
        }
        assert!(names.iter().all(|n| seen.contains_key(n)));
        // Either without conditions, or with: both would be without.
        assert!(seen.values().all(|kinds| kinds.iter().all(|k| *k == kinds[0])));
    }
}
