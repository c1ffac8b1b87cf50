//! The image that all contestants run, and the work that can be done in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::image::{DEFAULT_PATH, ImageError, Place, find};
use crate::text::quoted;

/// Where the contestants' root comes from.
#[derive(Debug)]
pub struct Subject {
    /// As it was asked for.
    pub name: String,
    /// Of an installed image.
    pub digest: Option<String>,
    /// The root directory; none for `host`.
    pub tree: Option<PathBuf>,
    /// Directories of programs.
    path: String,
    /// The image can't be removed as long as this lives.
    _held: Option<std::os::fd::OwnedFd>,
}

impl Subject {
    /// Finds the image.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(name: &str) -> Result<Subject, ImageError> {
        let (bundle, digest, held) = match find(name)? {
            Place::Host => {
                let path = DEFAULT_PATH.to_owned();
                return Ok(Subject { name: name.into(), digest: None, tree: None, path, _held: None });
            }
            // What is wrong with it is said in the words of a run.
            Place::Directory => {
                crate::image::open(name, &[])?;
                let bundle = fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
                (bundle, None, None)
            }
            Place::Installed(i) => (i.bundle, Some(i.manifest.to_string()), Some(i.lock)),
        };
        let config = fs::read(bundle.join("config.json")).unwrap_or_default();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap_or_default();
        let root = config["root"]["path"].as_str().unwrap_or("rootfs");
        let env = config["process"]["env"].as_array();
        let path = env.into_iter().flatten().filter_map(|v| v.as_str()?.strip_prefix("PATH=")).next_back();
        let path = path.unwrap_or(DEFAULT_PATH).to_owned();
        Ok(Subject { name: name.into(), digest, tree: Some(bundle.join(root)), path, _held: held })
    }

    /// The path inside of a program, if the image has it.
    pub fn program(&self, name: &str) -> Option<String> {
        let dirs = self.path.split(':').filter(|d| d.starts_with('/'));
        // The shortest way for the host's: /bin is a link there.
        let usual = ["/usr/bin", "/bin"].into_iter();
        let has = |dir: &str| {
            let inside = format!("{dir}/{name}");
            let outside = match &self.tree {
                Some(tree) => tree.join(&inside[1..]),
                None => PathBuf::from(&inside),
            };
            exists(&outside).then_some(inside)
        };
        if self.tree.is_none() {
            // Only /usr of the host is in the image.
            return usual.clone().find_map(has);
        }
        dirs.chain(usual).find_map(has)
    }
}

/// Of a tree: a link may point anywhere, it is not followed.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir())
}

/// A piece of work that every contestant does.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Work {
    /// `true`, `python` or `pandas`.
    pub name: &'static str,
    pub command: Vec<String>,
}

/// The names of all work.
pub const WORKS: [&str; 3] = ["true", "python", "pandas"];

impl Work {
    /// The work of that name in this image.
    ///
    /// # Errors
    /// What the image lacks.
    pub fn of(name: &str, subject: &Subject) -> Result<Work, String> {
        let find = |program: &str| {
            subject
                .program(program)
                .ok_or_else(|| format!("image {} has no {program}", quoted(&subject.name)))
        };
        let words = |first: String, rest: &[&str]| {
            std::iter::once(first).chain(rest.iter().map(|w| (*w).to_owned())).collect()
        };
        let (name, command) = match name {
            "true" => ("true", words(find("true")?, &[])),
            "python" => ("python", words(find("python3")?, &["-I", "-S", "-c", "pass"])),
            // With its site directories: that is where pandas is.
            _ => ("pandas", words(find("python3")?, &["-I", "-c", "import pandas"])),
        };
        Ok(Work { name, command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_a_tree() {
        let host = Subject::open("host").unwrap();
        assert_eq!(Work::of("true", &host).unwrap().command, ["/usr/bin/true"]);
        let dir = tempfile::TempDir::with_prefix("creel-bench-test-").unwrap();
        fs::create_dir_all(dir.path().join("opt/python/bin")).unwrap();
        fs::write(dir.path().join("opt/python/bin/python3"), "").unwrap();
        let path = "relative:/opt/python/bin".to_owned();
        let tree = Some(dir.path().to_owned());
        let subject = Subject { name: "数据".into(), digest: None, tree, path, _held: None };
        assert_eq!(Work::of("python", &subject).unwrap().command[0], "/opt/python/bin/python3");
        assert_eq!(Work::of("true", &subject).unwrap_err(), "image '数据' has no true");
        assert!(Subject::open("nosuch-图").is_err());
    }
}
