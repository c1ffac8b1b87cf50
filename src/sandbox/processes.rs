//! Which processes belong to a sandbox, as the host sees them.

use std::fs;

use super::cgroup::Group;

/// Host pids of a sandbox's processes: by its cgroup, or by descent from `init` where it has none. A sample: processes come and go.
pub fn of(group: &Group, init: i32) -> Vec<i32> {
    let mut pids = group.pids();
    if pids.is_empty() {
        pids.push(init);
        let mut at = 0;
        while let Some(&pid) = pids.get(at) {
            at += 1;
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for thread in threads {
                let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                pids.extend(children.split_whitespace().filter_map(|c| c.parse::<i32>().ok()));
            }
        }
    }
    pids
}
