//! Processes as `/proc` shows them.

use std::fs;

/// The direct children of a process, whichever of its threads made them.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|w| w.parse::<u32>().ok()));
    }
    found
}

/// All below a process, parents before their children.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = children(pid);
    let mut at = 0;
    while at < found.len() {
        found.extend(children(found[at]));
        at += 1;
    }
    found
}

/// Proportional set size in KiB: what processes have in common counts a share for each.
pub fn pss(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    field(&text, "Pss:")
}

/// `MemAvailable` in KiB.
pub fn available() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The number behind `name` at the start of a line.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process() {
        assert!(pss(std::process::id()).unwrap() > 0);
        assert!(available().unwrap() > 0);
        assert_eq!(field("Rss:  9 kB\nPss:\t 12 kB\n", "Pss:"), Some(12));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(children(std::process::id()).contains(&child.id()));
        assert!(descendants(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
