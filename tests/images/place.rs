//! A store of its own for a test, and imports into it.

use std::fs;
use std::path::{Path, PathBuf};

use creel::image::import::{ImportError, Imported, Options, import};
use creel::image::store::Store;
use tempfile::TempDir;

use super::{GZIP, Layer, Tar, ZSTD, assert_store_valid, tree};

/// A directory with a store in it.
pub struct Place {
    pub dir: TempDir,
    pub store: Store,
}

impl Place {
    pub fn new() -> Place {
        let dir = TempDir::with_prefix("creel-test-").unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        let store = Store::open(&dir.path().join("state")).unwrap();
        Place { dir, store }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.at(name), bytes).unwrap();
        self.at(name)
    }

    pub fn import(&self, path: &Path) -> Result<Vec<Imported>, ImportError> {
        import(&self.store, path, &Options::default())
    }

    pub fn rootfs(&self, image: &Imported) -> Vec<(String, String)> {
        tree(&self.store.bundle(&image.manifest).join("rootfs"))
    }

    /// Installs an image of these layers by way of a layout.
    pub fn install(&self, name: &str, layers: &[Layer]) -> Imported {
        let layout = super::layout(&self.at(&format!("layout-{}", name.replace(':', "-"))), name, layers);
        self.import(&layout.dir).unwrap().remove(0)
    }

    /// Where the root file system of an image is.
    pub fn root(&self, image: &Imported) -> PathBuf {
        self.store.bundle(&image.manifest).join("rootfs")
    }

    /// How many entries a directory of the store has.
    pub fn count(&self, dir: &str) -> usize {
        fs::read_dir(self.store.path().join(dir)).unwrap().count()
    }

    /// Asserts that an import fails with this code, on something of this name, and changes nothing in the store or beside it.
    #[track_caller]
    pub fn refused(&self, path: &Path, code: &str, words: &[&str]) {
        self.refused_with(path, &Options::default(), code, words);
    }

    #[track_caller]
    pub fn refused_with(&self, path: &Path, options: &Options, code: &str, words: &[&str]) {
        // The first work makes the lock file.
        drop(self.store.begin().unwrap());
        let before = tree(self.dir.path());
        let err = import(&self.store, path, options).expect_err(code);
        let text = err.to_string();
        assert_eq!((err.code(), err.is_host_fault()), (code, false), "{text}");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text:?}");
        }
        assert!(!text.chars().any(char::is_control) && text.len() < 1000 && !text.ends_with('.'), "{text:?}");
        assert_eq!(tree(self.dir.path()), before, "{text}");
    }
}

/// Two layers, the upper one with a whiteout.
pub fn layers() -> Vec<Layer> {
    let base = Tar::new().dir("usr/", 0o755).file("usr/数据.csv", "年,额\n").file("gone", "x");
    let upper = Tar::new().file(".wh.gone", "").file("usr/b", "b").hardlink("usr/c", "usr/b");
    vec![Layer::of(GZIP, &base.end()), Layer::of(ZSTD, &upper.end())]
}

/// What they come to.
pub const PATHS: [&str; 4] = ["usr/", "usr/b", "usr/c", "usr/数据.csv"];

#[track_caller]
pub fn assert_whole(place: &Place, image: &Imported) {
    let paths: Vec<_> = place.rootfs(image).into_iter().map(|(p, _)| p).collect();
    assert_eq!(paths, PATHS);
    assert_store_valid(place.store.path());
}
