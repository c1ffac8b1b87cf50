//! A build from its first step to the installed image.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::base::Base;
use super::cache::{self, Layer};
use super::document::{self, Made};
use super::layer::{directory_entry, pack_files, pack_upper};
use super::recipe::{self, Config, Kind, Recipe, Step};
use super::steps::{self, Network, Way};
use super::{BuildError, pack, sandbox};
use crate::executor::ids::{Lease, lease_range};
use crate::image::DEFAULT_PATH;
use crate::image::oci::{Digest, Reference};
use crate::image::store::{Expected, Installed, Store, Work, check_name};
use crate::sandbox::root::Upper;
use crate::sandbox::spec::Shown;

/// The largest `installed-packages.json`.
const MAX_PACKAGES: u64 = 1 << 20;

/// How to build.
pub struct Options<'a> {
    /// Where recipes are that others go on from.
    pub folder: &'a Path,
    /// The image's name; that of the recipe else.
    pub name: Option<Reference>,
    /// Takes layers that the same steps made before.
    pub use_cache: bool,
    /// Passes on what the steps print.
    pub verbose: bool,
    /// Is told what is done, a line each.
    pub tell: &'a dyn Fn(&str),
}

/// Builds the image of `recipe`, and installs it.
///
/// The calling process must be single-threaded.
///
/// # Errors
/// [`BuildError`]. Steps that were carried out stay in the cache; nothing else does.
pub fn build(store: &Store, recipe: Recipe, options: &Options<'_>) -> Result<Installed, BuildError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BuildError::NotRoot);
    }
    let chain = chain(recipe, options.folder)?;
    let Some(recipe) = chain.last() else { return Err(BuildError::NotRoot) };
    let name = match &options.name {
        Some(name) => name.clone(),
        None => recipe.name.parse().map_err(|e: crate::image::oci::ReferenceError| BuildError::Recipe {
            path: recipe.path.clone(),
            reason: e.to_string(),
        })?,
    };
    check_name(&name)?;
    let mut work = store.begin()?;
    work.trust();
    let lease = lease_range().map_err(|e| BuildError::Host {
        code: "host.uid",
        message: format!("cannot take host ids for the build from /run/creel: {e}"),
    })?;
    let mut build = Build {
        store,
        work: &work,
        lease: &lease,
        options,
        steps: chain.iter().map(|r| r.steps.len() + usize::from(r.debian.is_some())).sum(),
        made: Vec::new(),
        config: Config::default(),
        epoch: 0,
        root: None,
        uppers: 0,
    };
    for recipe in &chain {
        build.add(recipe)?;
    }
    build.finish(recipe, &name)
}

/// The recipe and those that it goes on from, the base first.
fn chain(recipe: Recipe, folder: &Path) -> Result<Vec<Recipe>, BuildError> {
    let mut chain = vec![recipe];
    while let Some(from) = &chain[0].from {
        if chain.iter().any(|r| r.name == *from) || chain.len() > 16 {
            let (path, reason) = (chain[0].path.clone(), format!("from = {from:?} leads round in a circle"));
            return Err(BuildError::Recipe { path, reason });
        }
        // A recipe given by its path goes on from its neighbours.
        let beside = chain[0].path.parent().filter(|p| p.join(format!("{from}.toml")).is_file());
        let next = recipe::load(from, beside.unwrap_or(folder))?;
        chain.insert(0, next);
    }
    Ok(chain)
}

struct Build<'a, 's> {
    store: &'a Store,
    work: &'a Work<'s>,
    lease: &'a Lease,
    options: &'a Options<'a>,
    /// How many steps there are.
    steps: usize,
    made: Vec<Made>,
    config: Config,
    epoch: u64,
    /// The merged tree of so many layers.
    root: Option<(usize, PathBuf)>,
    uppers: usize,
}

impl Build<'_, '_> {
    fn add(&mut self, recipe: &Recipe) -> Result<(), BuildError> {
        self.epoch = recipe.epoch;
        if let Some(debian) = &recipe.debian {
            let key = cache::key(debian, "", recipe.epoch, &[]);
            let by = format!("{}: Debian {}: {}", recipe.name, debian.suite, debian.packages.join(" "));
            self.step("base", by, &key, |build| {
                let log = build.dir("log")?.join("mmdebstrap");
                let mut base = Base::start(debian, recipe.epoch, build.lease, &log, build.options.verbose)?;
                let Some(stream) = base.stream() else {
                    return Err(io_error("read from", Path::new("mmdebstrap"))(
                        io::ErrorKind::BrokenPipe.into(),
                    ));
                };
                // mmdebstrap writes /dev with device nodes in it, or not at all.
                let dev =
                    directory_entry("./dev", recipe.epoch).map_err(io_error("pack", Path::new("dev")))?;
                let packed = pack::stream(build.work, "base", io::Cursor::new(dev).chain(stream));
                // Its own reason is the better one.
                base.finish()?;
                packed
            })?;
        }
        for step in &recipe.steps {
            let way = steps::way(step);
            let below: Vec<Layer> = self.made.iter().map(|m| m.layer).collect();
            let script = way.as_ref().map_or(String::new(), |w| format!("{}{:?}", w.script, w.inputs.last()));
            let key = cache::key(step, &script, recipe.epoch, &below);
            self.step(&step.name, format!("{}: {}", recipe.name, step.name), &key, |build| match &way {
                Some(way) => build.sandboxed(step, way),
                None => build.files(step),
            })?;
        }
        self.config.env.extend(recipe.config.env.clone());
        self.config.cwd = recipe.config.cwd.clone().or(self.config.cwd.take());
        self.config.cmd = recipe.config.cmd.clone().or(self.config.cmd.take());
        Ok(())
    }

    /// One layer: from the cache, or made.
    fn step(
        &mut self,
        name: &str,
        by: String,
        key: &Digest,
        make: impl FnOnce(&mut Self) -> Result<(crate::image::store::Blob, Digest), BuildError>,
    ) -> Result<(), BuildError> {
        let number = self.made.len() + 1;
        let title = format!("[{number}/{}] {by}", self.steps);
        let cached = self.options.use_cache.then(|| cache::get(self.store, key)).flatten();
        let layer = match cached {
            Some(layer) => {
                (self.options.tell)(&format!("{title}: cached"));
                layer
            }
            None => {
                (self.options.tell)(&format!("{title} …"));
                let begun = Instant::now();
                let (blob, diff_id) = make(self)?;
                let (seconds, size) = (begun.elapsed().as_secs_f64(), blob.size as f64 / 1e6);
                (self.options.tell)(&format!(
                    "[{number}/{}] {name}: {seconds:.1} s, {size:.1} MB compressed",
                    self.steps
                ));
                cache::put(self.store, key, blob, diff_id)?
            }
        };
        self.made.push(Made { layer, by });
        Ok(())
    }

    fn files(&self, step: &Step) -> Result<(crate::image::store::Blob, Digest), BuildError> {
        let Kind::Files { dir, entries } = &step.kind else {
            return Err(BuildError::Sandbox { step: step.name.clone(), what: "it has no way".into() });
        };
        pack::layer(self.work, &step.name, self.epoch, |writer| pack_files(dir, entries, writer))
    }

    fn sandboxed(
        &mut self,
        step: &Step,
        way: &Way<'_>,
    ) -> Result<(crate::image::store::Blob, Digest), BuildError> {
        let (upper, _) = self.run(&step.name, way)?;
        let root = self.root()?;
        let first = self.lease.ids.user();
        let packed = pack::layer(self.work, &step.name, self.epoch, |writer| {
            pack_upper(&upper.join("files"), &root, (way.owners)(first), &step.name, writer).map(drop)
        });
        discard(&upper)?;
        packed
    }

    /// Runs a way's script over what was built so far. Gives the directory of what it wrote, and its `/outputs`.
    fn run(&mut self, name: &str, way: &Way<'_>) -> Result<(PathBuf, OwnedFd), BuildError> {
        let mut network = match way.network {
            true => Network::of_host()
                .map_err(io_error("read", Path::new("the network settings of this host")))?,
            false => Network { inputs: Vec::new(), shown: Vec::new(), env: Vec::new() },
        };
        if way.uv {
            let uv = self.uv()?;
            network.shown.push(Shown { source: open(&uv)?, target: "/build/uv".to_owned() });
        }
        let root = self.root()?;
        let upper = self.upper()?;
        network.inputs.extend(way.inputs.iter().cloned());
        network.env.push(("SOURCE_DATE_EPOCH".to_owned(), self.epoch.to_string()));
        let step = sandbox::Step {
            name,
            lower: open(&root)?,
            upper: Upper { files: open(&upper.join("files"))?, scratch: open(&upper.join("scratch"))? },
            script: way.script,
            args: way.args.clone(),
            inputs: network.inputs,
            shown: network.shown,
            env: network.env,
            network: way.network,
            verbose: self.options.verbose,
        };
        let outputs = sandbox::run(step, self.lease)?;
        Ok((upper, outputs))
    }

    /// Two empty directories for an overlay, owned by who is 0 inside.
    fn upper(&mut self) -> Result<PathBuf, BuildError> {
        self.uppers += 1;
        let upper = self.dir(&format!("upper-{}", self.uppers))?;
        let first = self.lease.ids.user();
        for name in ["files", "scratch"] {
            let dir = upper.join(name);
            DirBuilder::new().mode(0o755).create(&dir).map_err(io_error("make", &dir))?;
            chown(&dir, Some(first), Some(first)).map_err(io_error("give away", &dir))?;
        }
        Ok(upper)
    }

    /// The merged tree of the layers so far.
    fn root(&mut self) -> Result<PathBuf, BuildError> {
        let count = self.made.len();
        match &self.root {
            Some((of, root)) if *of == count => Ok(root.clone()),
            _ => {
                let (manifest, _) = self.documents("", None)?;
                let root = self.work.stage(&manifest)?;
                self.root = Some((count, root.clone()));
                Ok(root)
            }
        }
    }

    /// uv, which installs Python packages, kept beside the cached steps.
    fn uv(&mut self) -> Result<PathBuf, BuildError> {
        let kept = self.store.path().join("cache").join(format!("uv-{}", steps::UV_VERSION));
        if kept.is_file() {
            return Ok(kept);
        }
        let Some(way) = steps::fetch_uv() else {
            let what = format!("uv {} is not pinned for {}", steps::UV_VERSION, std::env::consts::ARCH);
            return Err(BuildError::Sandbox { step: "uv".into(), what });
        };
        let (upper, outputs) = self.run("fetch uv", &way)?;
        discard(&upper)?;
        let part = self.dir("uv")?.join("uv");
        let mut from = output(&outputs, "uv").map_err(io_error("read", Path::new("/outputs/uv")))?;
        let mut to = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&part)
            .map_err(io_error("write", &part))?;
        io::copy(&mut from, &mut to).map_err(io_error("write", &part))?;
        fs::rename(&part, &kept).map_err(io_error("write", &kept))?;
        Ok(kept)
    }

    /// Configuration and manifest of the layers so far, in the store.
    fn documents(&self, description: &str, packages: Option<&str>) -> Result<(Digest, Digest), BuildError> {
        let wrong = |e: oci_spec::OciSpecError| BuildError::Host { code: "host.io", message: e.to_string() };
        let config =
            document::configuration(&self.config, &self.made, self.epoch, DEFAULT_PATH).map_err(wrong)?;
        let manifest = document::manifest(&config, &self.made, description, packages).map_err(wrong)?;
        let put = |what: &str, bytes: &[u8]| {
            let expected = Expected { what: what.to_owned(), ..Expected::default() };
            self.work.put_blob(expected, &mut &bytes[..]).map(|blob| blob.digest)
        };
        let config = put("configuration", &config)?;
        Ok((put("manifest", &manifest)?, config))
    }

    fn finish(mut self, recipe: &Recipe, name: &Reference) -> Result<Installed, BuildError> {
        // The list depends on nothing but the layers.
        let below: Vec<Layer> = self.made.iter().map(|m| m.layer).collect();
        let way = steps::list_packages();
        let key = cache::key(&"installed-packages", way.script, 0, &below);
        let kept = self.store.path().join("cache").join(format!("{}.packages", key.hex()));
        let packages = match fs::read_to_string(&kept) {
            Ok(text) if self.options.use_cache => text,
            _ => {
                let (upper, outputs) = self.run("list packages", &way)?;
                discard(&upper)?;
                let file = output(&outputs, "installed-packages.json");
                let mut text = String::new();
                file.and_then(|f| f.take(MAX_PACKAGES).read_to_string(&mut text))
                    .map_err(io_error("read", Path::new("/outputs/installed-packages.json")))?;
                fs::write(&kept, &text).map_err(io_error("write", &kept))?;
                text
            }
        };
        let (manifest, _) = self.documents(&recipe.description, Some(packages.trim()))?;
        Ok(self.work.commit(&manifest, std::slice::from_ref(name))?)
    }

    fn dir(&self, name: &str) -> Result<PathBuf, BuildError> {
        let dir = self.work.dir().join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io_error("make", &dir))?;
        Ok(dir)
    }
}

/// Opens a regular file that a step left in its `/outputs`, whatever else it may have put there.
fn output(outputs: &OwnedFd, name: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(outputs, name, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

fn open(path: &Path) -> Result<OwnedFd, BuildError> {
    File::open(path).map(OwnedFd::from).map_err(io_error("open", path))
}

fn discard(dir: &Path) -> Result<(), BuildError> {
    use std::os::fd::AsFd;
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
    let parent = File::open(parent).map_err(io_error("open", parent))?;
    crate::sandbox::tree::remove_tree(parent.as_fd(), name).map_err(io_error("remove", dir))
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError + use<> {
    let path = path.to_owned();
    move |source| BuildError::Io { what, path, source }
}
