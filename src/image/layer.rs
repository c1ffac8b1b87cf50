//! Builds creel's own layer: a list of entries in which parents come before children.

use crate::sandbox::root::{Entry, EntryKind};

/// The entries so far. A path is in it once; the first call for a path wins.
#[derive(Debug, Default)]
pub(super) struct Layer {
    entries: Vec<Entry>,
}

impl Layer {
    /// A directory, and its parents.
    pub fn dir(&mut self, path: &str) {
        self.add(path, EntryKind::Dir);
    }

    /// A regular file with these bytes, and its parents.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, EntryKind::File(content.into()));
    }

    /// A symlink, and its parents.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.add(path, EntryKind::Symlink(target.to_owned()));
    }

    /// What stands at this path.
    pub fn get(&self, path: &str) -> Option<&EntryKind> {
        self.entries.iter().find(|e| e.path == path).map(|e| &e.kind)
    }

    /// True when a directory can stand at this path: neither it nor a parent is a file or symlink of ours.
    pub fn takes_dir(&self, path: &str) -> bool {
        let blocks = |e: &Entry| e.kind != EntryKind::Dir && at_or_below(path, &e.path);
        !self.entries.iter().any(blocks)
    }

    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    fn add(&mut self, path: &str, kind: EntryKind) {
        debug_assert!(path.starts_with('/') && !path.ends_with('/') && !path.contains("//"), "{path}");
        if self.get(path).is_some() {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            self.add(parent, EntryKind::Dir);
            debug_assert_eq!(self.get(parent), Some(&EntryKind::Dir), "{path}");
        }
        self.entries.push(Entry { path: path.to_owned(), kind });
    }
}

/// True when `path` is `dir` or below it; both absolute and normal.
pub(super) fn at_or_below(path: &str, dir: &str) -> bool {
    dir == "/" || path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// An absolute path in normal form: no `//`, no `.`, no slash at the end.
///
/// # Errors
/// What is wrong with it: relative, `..`, a NUL, or longer than Linux takes.
pub(super) fn normal(path: &str) -> Result<String, &'static str> {
    if !path.starts_with('/') {
        return Err("write an absolute path");
    }
    if path.contains('\0') {
        return Err("it has a NUL character");
    }
    let mut out = String::with_capacity(path.len());
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            return Err("it has a `..`, write the path without");
        }
        if part.len() > 255 {
            return Err("a part of it is longer than 255 bytes");
        }
        out.push('/');
        out.push_str(part);
    }
    if out.len() > 4000 || out.split('/').count() > 65 {
        return Err("it is longer than 4000 bytes or has more than 64 parts");
    }
    if out.is_empty() {
        out.push('/');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_once() {
        let mut layer = Layer::default();
        layer.file("/a/b/c", "x");
        layer.dir("/a");
        layer.symlink("/a/d", "b");
        layer.file("/a/b/c", "y");
        let entries = layer.into_entries();
        let paths: Vec<_> = entries.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["/a", "/a/b", "/a/b/c", "/a/d"]);
        assert_eq!(entries[2].kind, EntryKind::File(b"x".to_vec()));
    }

    #[test]
    fn nothing_goes_below_a_file_or_symlink_of_ours() {
        let mut layer = Layer::default();
        layer.symlink("/etc/mtab", "/proc/self/mounts");
        for (path, takes) in
            [("/etc", true), ("/etc/mtab", false), ("/etc/mtab/x", false), ("/etc/mtab2", true)]
        {
            assert_eq!(layer.takes_dir(path), takes, "{path}");
        }
    }

    #[test]
    fn normal_form() {
        assert_eq!(normal("/a//b/./c/").unwrap(), "/a/b/c");
        assert_eq!(normal("///").unwrap(), "/");
        assert_eq!(normal("/数据/…").unwrap(), "/数据/…");
        for bad in ["", "a", "./a", "/a/../b", "/..", "/a\0b"] {
            assert!(normal(bad).is_err(), "{bad:?}");
        }
        assert!(normal(&format!("/{}", "x".repeat(256))).is_err());
        assert!(normal(&"/x".repeat(65)).is_err());
    }

    #[test]
    fn below_means_whole_names() {
        assert!(at_or_below("/proc", "/proc"));
        assert!(at_or_below("/proc/self", "/proc"));
        assert!(!at_or_below("/process", "/proc"));
        assert!(!at_or_below("/", "/proc"));
        assert!(at_or_below("/x", "/"));
    }
}
