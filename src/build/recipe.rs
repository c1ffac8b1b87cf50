//! Recipes: what an image is made of, in TOML.
//!
//! A recipe is `NAME.toml` in a folder of recipes; the files that it names lie in the same folder, or below it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::BuildError;
use crate::regular::NotUsable;

/// The last second that a tar header has room for.
const MAX_EPOCH: u64 = 0o77777777777;

/// The largest file that a recipe may name, the lists of packages.
const MAX_FILE: u64 = 8 << 20;

/// A recipe as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    description: String,
    from: Option<String>,
    epoch: Option<u64>,
    debian: Option<Debian>,
    #[serde(default)]
    step: Vec<StepText>,
    config: Option<Config>,
}

/// A base from Debian's packages.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Debian {
    /// `bookworm`
    pub suite: String,
    /// Packages beside the essential ones.
    pub packages: Vec<String>,
    /// dpkg's `path-exclude` patterns.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// dpkg's `path-include` patterns.
    #[serde(default)]
    pub include: Vec<String>,
    /// A shell script that is run with the new root as `$1`, before it is packed.
    pub hook: Option<String>,
    /// The text of `hook`'s file.
    #[serde(skip_deserializing)]
    pub hook_text: Option<String>,
}

/// What a container of the image starts with; added to that of `from`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub cmd: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    name: String,
    apt: Option<Vec<String>>,
    pip: Option<String>,
    #[serde(default)]
    prune: Vec<String>,
    npm: Option<String>,
    files: Option<String>,
    run: Option<String>,
    #[serde(default)]
    network: bool,
}

/// A recipe, its files read.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The name of its file, without `.toml`.
    pub name: String,
    pub path: PathBuf,
    pub description: String,
    /// The recipe that this one goes on from.
    pub from: Option<String>,
    pub debian: Option<Debian>,
    /// `SOURCE_DATE_EPOCH` of every step, seconds since 1970: no file of the image is younger.
    pub epoch: u64,
    pub steps: Vec<Step>,
    pub config: Config,
}

/// One layer. Serialized, it is part of the key in the cache.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    pub name: String,
    pub kind: Kind,
}

/// What a step does. File contents are part of it, so that the cache sees when they change.
#[derive(Debug, Clone, Serialize)]
pub enum Kind {
    /// Debian packages, without recommended ones.
    Apt { packages: Vec<String> },
    /// Python packages, exact versions; `prune`: globs of what is not kept of them.
    Pip { requirements: String, prune: Vec<String> },
    /// Node and npm packages: `package.json` and `package-lock.json`.
    Npm { package: String, lock: String },
    /// A tree that is copied to `/`.
    Files { dir: PathBuf, entries: Vec<super::layer::FileEntry> },
    /// A bash script.
    Run { script: String, network: bool },
}

/// Finds the recipe that `name` means: a path (it has a `/` or ends in `.toml`), or the name of one in `folder`.
pub fn load(name: &str, folder: &Path) -> Result<Recipe, BuildError> {
    let path = match name.contains('/') || name.ends_with(".toml") {
        true => PathBuf::from(name),
        false => folder.join(format!("{name}.toml")),
    };
    let text = match read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let dir =
                path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
            return Err(BuildError::NoRecipe { name: name.to_owned(), there: list(&dir), dir });
        }
        other => {
            other.map_err(|source| BuildError::Io { what: "read the recipe", path: path.clone(), source })?
        }
    };
    parse(&text, &path)
}

/// The names of the recipes in `folder`.
pub fn list(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        files.filter_map(|f| Some(f.file_name().to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    names.sort();
    names
}

fn parse(text: &str, path: &Path) -> Result<Recipe, BuildError> {
    let bad = |reason: String| BuildError::Recipe { path: path.to_owned(), reason };
    let text: Text = toml::from_str(text).map_err(|e| bad(in_one_line(text, &e)))?;
    if text.epoch.is_some_and(|e| e > MAX_EPOCH) {
        return Err(bad(format!("epoch is in seconds since 1970, at most {MAX_EPOCH} (the year 2242)")));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let named = |file: &str| -> Result<String, BuildError> {
        let file =
            folder.join(relative(file).ok_or_else(|| {
                bad(format!("{file:?} must be a path below the recipe's folder, without .."))
            })?);
        read(&file).map_err(|source| BuildError::File { path: file, recipe: path.to_owned(), source })
    };
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
    if name.parse::<crate::image::oci::Reference>().is_err() {
        return Err(bad(
            "its file name must be an image name: lower-case letters and digits, then .toml".into()
        ));
    }
    let mut debian = text.debian;
    match (&text.from, &mut debian) {
        (Some(from), None) if from.contains(['/', '\0']) || from.is_empty() => {
            return Err(bad(format!("from = {from:?} must be the name of a recipe in the same folder")));
        }
        (Some(_), None) => {}
        (None, Some(debian)) => {
            words(&debian.packages, "debian.packages").map_err(&bad)?;
            words(std::slice::from_ref(&debian.suite), "debian.suite").map_err(&bad)?;
            debian.hook_text = debian.hook.as_deref().map(named).transpose()?;
        }
        _ => return Err(bad("it needs either `from` or a [debian] table, and not both".into())),
    }
    let steps = text
        .step
        .into_iter()
        .map(|step| self::step(step, folder, path, &named, &bad))
        .collect::<Result<_, _>>()?;
    let config = text.config.unwrap_or_default();
    for (key, value) in &config.env {
        if !crate::profile::is_env_name(key) || value.contains('\0') {
            return Err(bad(format!("config.env: {key:?} = {value:?} can't be a variable")));
        }
    }
    if config.cmd.as_ref().is_some_and(|c| c.first().is_none_or(String::is_empty)) {
        return Err(bad("config.cmd must start with a program; without one leave it out".into()));
    }
    if config.cwd.as_ref().is_some_and(|c| !c.starts_with('/')) {
        return Err(bad("config.cwd must be an absolute path".into()));
    }
    Ok(Recipe {
        name,
        path: path.to_owned(),
        description: text.description,
        from: text.from,
        debian,
        epoch: text.epoch.unwrap_or(1_750_000_000),
        steps,
        config,
    })
}

/// What is wrong, and in which line.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    }
}

fn step(
    text: StepText,
    folder: &Path,
    recipe: &Path,
    named: &dyn Fn(&str) -> Result<String, BuildError>,
    bad: &dyn Fn(String) -> BuildError,
) -> Result<Step, BuildError> {
    let name = text.name;
    if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
        return Err(bad(format!("a step's name must be a line of text, not {name:?}")));
    }
    let kinds = [
        text.apt.is_some(),
        text.pip.is_some(),
        text.npm.is_some(),
        text.files.is_some(),
        text.run.is_some(),
    ];
    if kinds.iter().filter(|&&k| k).count() != 1 {
        return Err(bad(format!("step {name:?} must have exactly one of apt, pip, npm, files and run")));
    }
    if !text.prune.is_empty() && text.pip.is_none() {
        return Err(bad(format!("step {name:?}: prune goes with pip")));
    }
    if text.network && text.run.is_none() {
        return Err(bad(format!("step {name:?}: network goes with run; apt, pip and npm have it always")));
    }
    let kind = if let Some(packages) = text.apt {
        words(&packages, "apt").map_err(|e| bad(format!("step {name:?}: {e}")))?;
        Kind::Apt { packages }
    } else if let Some(file) = text.pip {
        let requirements = named(&file)?;
        pinned(&requirements).map_err(|line| {
            bad(format!("step {name:?}: {file}: {line:?} has no exact version; write name==version"))
        })?;
        if let Some(glob) =
            text.prune.iter().find(|g| g.starts_with('/') || g.contains("..") || g.contains('\n'))
        {
            return Err(bad(format!(
                "step {name:?}: prune {glob:?} must stay below the packages' directory"
            )));
        }
        Kind::Pip { requirements, prune: text.prune }
    } else if let Some(file) = text.npm {
        let lock = match file.rsplit_once('/') {
            Some((dir, _)) => format!("{dir}/package-lock.json"),
            None => "package-lock.json".to_owned(),
        };
        Kind::Npm { package: named(&file)?, lock: named(&lock)? }
    } else if let Some(dir) = text.files {
        let dir = folder.join(relative(&dir).ok_or_else(|| {
            bad(format!(
                "step {name:?}: files = {dir:?} must be a path below the recipe's folder, without .."
            ))
        })?);
        let entries = super::layer::file_entries(&dir).map_err(|source| BuildError::File {
            path: dir.clone(),
            recipe: recipe.to_owned(),
            source,
        })?;
        Kind::Files { dir, entries }
    } else {
        Kind::Run { script: named(&text.run.unwrap_or_default())?, network: text.network }
    };
    Ok(Step { name, kind })
}

/// A path that stays below where it starts.
fn relative(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let down = |c| matches!(c, Component::Normal(_));
    (path.components().count() > 0 && path.components().all(down)).then_some(path)
}

/// Package names are arguments of a program: none may look like an option or hold a space.
fn words(words: &[String], field: &str) -> Result<(), String> {
    let good = |w: &String| {
        w.starts_with(|c: char| c.is_ascii_alphanumeric())
            && w.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-_:=~/".contains(&b))
    };
    match words.iter().find(|w| !good(w)) {
        Some(w) => Err(format!("{field}: {w:?} is no package name")),
        None if words.is_empty() => Err(format!("{field} names nothing")),
        None => Ok(()),
    }
}

/// Every requirement must have one version. Lines with options (hashes) belong to the requirement before.
fn pinned(text: &str) -> Result<(), String> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#') && !l.starts_with("--hash"));
    for line in lines {
        if line.starts_with('-') || !line.contains("==") || line.contains("@ ") {
            return Err(line.chars().take(80).collect());
        }
    }
    Ok(())
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let (file, _) = crate::regular::open(path).map_err(|e| match e {
        NotUsable::Missing => std::io::Error::from(std::io::ErrorKind::NotFound),
        other => std::io::Error::other(format!("it {other}")),
    })?;
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(std::io::Error::other(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn reason(text: &str) -> String {
        let dir =
            folder(&[("x.toml", text), ("r.txt", "a==1\n"), ("loose.txt", "a>=1\n"), ("s.sh", "true\n")]);
        match load("x", dir.path()) {
            Err(BuildError::Recipe { reason, .. }) => reason,
            Err(e) => e.to_string(),
            Ok(recipe) => panic!("taken: {recipe:?}"),
        }
    }

    #[test]
    fn a_whole_recipe() {
        let text = r#"
            description = "试验"
            from = "minimal"
            [[step]]
            name = "字体"
            apt = ["fonts-wqy-microhei"]
            [[step]]
            name = "python"
            pip = "r.txt"
            prune = ["**/tests"]
            [[step]]
            name = "own"
            files = "tree"
            [[step]]
            name = "caches"
            run = "s.sh"
            [config]
            env = { A = "1" }
        "#;
        let dir = folder(&[
            ("x.toml", text),
            ("r.txt", "a==1 \\\n --hash=sha256:00\n# c\n"),
            ("s.sh", "true\n"),
            ("tree/etc/f", "x"),
        ]);
        let recipe = load("x", dir.path()).unwrap();
        assert_eq!((recipe.name.as_str(), recipe.from.as_deref()), ("x", Some("minimal")));
        assert_eq!(recipe.steps.len(), 4);
        assert!(matches!(&recipe.steps[2].kind, Kind::Files { entries, .. } if entries.len() == 2));
        assert!(matches!(&recipe.steps[3].kind, Kind::Run { network: false, .. }));
        // By its path too.
        assert_eq!(
            load(dir.path().join("x.toml").to_str().unwrap(), Path::new("/nowhere")).unwrap().name,
            "x"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let from = "description = \"\"\nfrom = \"m\"\n";
        let step = |step: &str| format!("{from}[[step]]\nname = \"s\"\n{step}\n");
        for (text, part) in [
            ("from = \"m\"".to_owned(), "description"),
            ("description = \"\"".to_owned(), "either `from` or a [debian] table"),
            (format!("{from}[debian]\nsuite=\"b\"\npackages=[\"p\"]"), "either `from` or a [debian] table"),
            ("description = \"\"\nfrom = \"../m\"".to_owned(), "same folder"),
            (format!("{from}colour = 1"), "colour"),
            (step(""), "exactly one of"),
            (step("run = \"s.sh\"\nfiles = \"x\""), "exactly one of"),
            (step("apt = []"), "names nothing"),
            (step("apt = [\"--force\"]"), "no package name"),
            (step("apt = [\"a b\"]"), "no package name"),
            (step("pip = \"loose.txt\""), "no exact version"),
            (step("pip = \"../r.txt\""), "without .."),
            (step("pip = \"/etc/passwd\""), "without .."),
            (step("pip = \"none.txt\""), "none.txt"),
            (step("pip = \"r.txt\"\nprune = [\"../x\"]"), "stay below"),
            (step("run = \"s.sh\"\nprune = [\"x\"]"), "prune goes with pip"),
            (step("pip = \"r.txt\"\nnetwork = true"), "network goes with run"),
            (step("files = \"../..\""), "without .."),
            (step("npm = \"s.sh\""), "package-lock.json"),
            ("description = \"\"\nfrom = \"m\"\nepoch = 99999999999999".to_owned(), "seconds since 1970"),
            (format!("{from}[config]\ncmd = [\"\"]"), "config.cmd"),
            (format!("{from}[[step]]\nname = \"a\\u001b[2J\"\napt = [\"x\"]"), "line of text"),
            (format!("{from}[config]\nenv = {{ \"A=B\" = \"1\" }}"), "config.env"),
            (format!("{from}[config]\ncwd = \"work\""), "config.cwd"),
        ] {
            let reason = reason(&text);
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }

    #[test]
    fn a_name_without_a_recipe_says_which_there_are() {
        let dir = folder(&[("data.toml", ""), ("office.toml", ""), ("README.md", "")]);
        let err = load("dat", dir.path()).unwrap_err();
        assert_eq!(err.code(), "image.recipe_not_found");
        assert!(err.to_string().contains("data, office"), "{err}");
        let dir = folder(&[("Big.toml", "description = \"\"\nfrom = \"m\"")]);
        assert!(load("Big", dir.path()).unwrap_err().to_string().contains("lower-case"));
    }

    #[test]
    fn requirements_with_one_version_each() {
        for good in [
            "a==1",
            "a==1 ; python_version < '4'",
            "a==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01",
            "",
            "# x",
        ] {
            assert_eq!(pinned(good), Ok(()), "{good}");
        }
        for bad in [
            "a",
            "a>=1",
            "-r other.txt",
            "--index-url https://x",
            "-e .",
            "a @ https://x/a==1.whl",
            "git+https://x",
        ] {
            assert!(pinned(bad).is_err(), "{bad}");
        }
    }
}
