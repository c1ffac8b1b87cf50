//! What a benchmark has on the host while it works, and takes away again: a temporary directory and a directory in each cgroup hierarchy.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::text::io_reason;

/// A directory that is removed at the end. Readable for the ids that peers map to.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below `$TMPDIR` or `/tmp`.
    ///
    /// # Errors
    /// The file system's.
    pub fn new() -> io::Result<Scratch> {
        let mut random = [0u8; 6];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let path = std::path::absolute(std::env::temp_dir())?.join(format!("creel-bench-{name}"));
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("creel: left behind: {}: {}", self.0.display(), io_reason(&e));
        }
    }
}

/// One mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub point: PathBuf,
    /// Of v1; none is v2.
    pub controllers: Option<Vec<String>>,
}

/// All that this process sees.
pub fn hierarchies() -> Vec<Hierarchy> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let each = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.splitn(3, ' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        let point = PathBuf::from(left.split(' ').nth(4)?);
        let controllers = match kind {
            "cgroup2" => None,
            "cgroup" => Some(options.split(',').filter(|o| *o != "rw").map(str::to_owned).collect()),
            _ => return None,
        };
        Some(Hierarchy { point, controllers })
    };
    mountinfo.lines().filter_map(each).collect()
}

/// `v2`, `v1`, `hybrid` (v2 beside v1) or `none`.
pub fn layout(all: &[Hierarchy]) -> &'static str {
    let v2 = all.iter().any(|h| h.controllers.is_none());
    match (v2, all.iter().any(|h| h.controllers.is_some())) {
        (true, true) => "hybrid",
        (true, false) => "v2",
        (false, true) => "v1",
        (false, false) => "none",
    }
}

/// Our directory in the hierarchies, below which peers make theirs.
#[derive(Debug)]
pub struct Group {
    pub name: String,
    pub all: Vec<Hierarchy>,
}

impl Group {
    pub fn new() -> Group {
        Group { name: format!("creel-bench-{}", std::process::id()), all: hierarchies() }
    }

    /// The hierarchy of a v1 controller.
    pub fn v1(&self, controller: &str) -> Option<&Path> {
        let has = |h: &&Hierarchy| h.controllers.as_ref().is_some_and(|c| c.iter().any(|c| c == controller));
        self.all.iter().find(has).map(|h| h.point.as_path())
    }
}

impl Default for Group {
    fn default() -> Group {
        Group::new()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for hierarchy in &self.all {
            remove(&hierarchy.point.join(&self.name));
        }
    }
}

/// Directories of a cgroup file system, children first; their files are no files.
fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove(&entry.path());
        }
    }
    let mut removed = fs::remove_dir(path);
    // A process that was reaped leaves its cgroup a moment later, and v1 tells nobody when.
    for _ in 0..100 {
        if !removed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        removed = fs::remove_dir(path);
    }
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            eprintln!("creel: left behind: {}: {}", path.display(), io_reason(&e));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:1 - cgroup2 cgroup2 rw\n\
        23 1 0:2 / / rw - ext4 /dev/vda rw\n";

    #[test]
    fn layouts() {
        let all = parse(HYBRID);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].controllers, Some(vec!["cpu".to_owned()]));
        assert_eq!(layout(&all), "hybrid");
        assert_eq!((layout(&all[..1]), layout(&all[1..]), layout(&[])), ("v1", "v2", "none"));
        let group = Group { name: "creel-bench-test".into(), all };
        assert_eq!(group.v1("cpu"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(group.v1("memory"), None);
    }
}
