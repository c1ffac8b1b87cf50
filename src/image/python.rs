//! `python` for images that only have `python3`.

/// Where the link goes when no directory of the image's PATH can take it; then the last part of PATH.
pub const LINK_DIR: &str = "/opt/creel/bin";

/// Where [`missing`] found `python3`.
pub(super) struct Python3 {
    /// The first directory of PATH that has it.
    pub dir: String,
}

/// Looks through `dirs`: is there a `python3` and no `python`?
///
/// A `python` anywhere in PATH is left alone, it is the image's own choice.
pub(super) fn missing<'a>(
    dirs: impl Iterator<Item = &'a str> + Clone,
    has: impl Fn(&str) -> bool,
) -> Option<Python3> {
    let dir = dirs.clone().find(|dir| has(&format!("{dir}/python3")))?;
    // Where python3 is, python most likely is too: the cheap answer first.
    if has(&format!("{dir}/python")) || dirs.into_iter().any(|dir| has(&format!("{dir}/python"))) {
        return None;
    }
    Some(Python3 { dir: dir.to_owned() })
}

/// `path` with [`LINK_DIR`] as its last part.
pub(super) fn extended(path: &str) -> String {
    if path.is_empty() { LINK_DIR.to_owned() } else { format!("{path}:{LINK_DIR}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(files: &[&str]) -> Option<String> {
        missing(["/usr/local/bin", "/usr/bin"].into_iter(), |p| files.contains(&p)).map(|p| p.dir)
    }

    #[test]
    fn a_link_only_where_one_is_missing() {
        assert_eq!(look(&[]), None);
        assert_eq!(look(&["/usr/bin/python3"]).as_deref(), Some("/usr/bin"));
        assert_eq!(look(&["/usr/bin/python3", "/usr/local/bin/python3"]).as_deref(), Some("/usr/local/bin"));
        assert_eq!(look(&["/usr/bin/python3", "/usr/bin/python"]), None);
        assert_eq!(look(&["/usr/bin/python3", "/usr/local/bin/python"]), None);
        assert_eq!(look(&["/usr/bin/python"]), None);
    }
}
