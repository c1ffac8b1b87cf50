//! Which requests a slot is good for, and how long.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::config::PoolConfig;
use crate::executor::request::{Lang, Program, Request};
use crate::limits::Limits;
use crate::state_dir;

/// Variables that a Python which has started, or a module that it has imported, has read by then: what begins with one of these …
const EARLY_PREFIXES: [&str; 15] = [
    "PYTHON",
    "LC_",
    "LD_",
    "MALLOC_",
    "GLIBC_",
    "MPL",
    "XDG_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "NUMEXPR_",
    "KMP_",
    "JE_",
    "ARROW_",
    "SSL_",
];
/// … or is one of these.
const EARLY_NAMES: [&str; 6] = ["LANG", "LANGUAGE", "HOME", "PATH", "TMPDIR", "TZDIR"];
/// Skills of one delivery: as many as `creel run` takes, and less than one packet has descriptors.
const SKILLS_MAX: usize = 64;

/// Why a request can't use a slot of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    NoPython,
    Image,
    Limits,
    Seccomp,
    Unenforced,
    /// This variable differs, and was read before the delivery.
    Early(String),
    Skills,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::NoPython => write!(f, "only Python scripts start warm"),
            Misfit::Image => write!(f, "its image is another one"),
            Misfit::Limits => write!(f, "its limits are others"),
            Misfit::Seccomp => write!(f, "its seccomp profile is another one"),
            Misfit::Unenforced => write!(f, "it allows other limits to be unenforced"),
            Misfit::Early(name) => {
                write!(f, "its environment has another {name}, which is read before the program is there")
            }
            Misfit::Skills => write!(f, "it has more than {SKILLS_MAX} skills"),
        }
    }
}

/// Whether a slot of the pool is what a cold start of the request would be.
///
/// # Errors
/// The first thing that would differ.
pub fn fits(pool: &PoolConfig, request: &Request) -> Result<(), Misfit> {
    let differs = |different: bool, misfit| if different { Err(misfit) } else { Ok(()) };
    let python = matches!(request.program, Program::Script { lang: Lang::Python, .. });
    differs(!python, Misfit::NoPython)?;
    differs(request.image != pool.image, Misfit::Image)?;
    let limits = Limits { timeout: pool.limits.timeout, ..request.limits.clone() };
    differs(limits != pool.limits, Misfit::Limits)?;
    differs(request.seccomp.json != pool.seccomp.json, Misfit::Seccomp)?;
    differs(request.seccomp.name != pool.seccomp.name, Misfit::Seccomp)?;
    differs(request.allow_unenforced != pool.allow_unenforced, Misfit::Unenforced)?;
    let names: BTreeSet<&String> = request.env.keys().chain(pool.env.keys()).collect();
    let early = names.into_iter().find(|n| request.env.get(*n) != pool.env.get(*n) && is_early(n));
    early.map_or(Ok(()), |name| Err(Misfit::Early(name.clone())))?;
    differs(request.skills.len() > SKILLS_MAX, Misfit::Skills)
}

fn is_early(name: &str) -> bool {
    EARLY_NAMES.contains(&name) || EARLY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What an image is now: another one when somebody has installed, removed or changed it. (`host` is this host's own `/usr`, bound as it is.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    pub fn of(image: &str) -> Stamp {
        let of = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
        };
        if image == "host" {
            return Stamp(None);
        }
        // The name of an installed image is never a directory with a config.json in it, unless it is a bundle.
        let bundle = of(&Path::new(image).join("config.json"));
        Stamp(bundle.or_else(|| of(&state_dir::location()?.join("images/index.json"))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::config::example;
    use super::*;
    use crate::limits::LimitKind;

    #[test]
    fn what_a_cold_start_would_do_differently_does_not_fit() {
        let pool = example();
        let fit = |change: &dyn Fn(&mut Request)| {
            let mut request = pool.request();
            change(&mut request);
            fits(&pool, &request)
        };
        assert_eq!(fit(&|_| {}), Ok(()));
        assert_eq!(fit(&|r| r.limits.timeout = Duration::from_secs(1)), Ok(()));
        assert_eq!(fit(&|r| r.limits.memory += 1), Err(Misfit::Limits));
        assert_eq!(fit(&|r| r.limits.output_depth += 1), Err(Misfit::Limits));
        assert_eq!(fit(&|r| r.image = "data".into()), Err(Misfit::Image));
        assert_eq!(fit(&|r| r.seccomp.json.push(' ')), Err(Misfit::Seccomp));
        assert_eq!(fit(&|r| r.program = Program::ImageDefault), Err(Misfit::NoPython));
        let bash = Program::Script { lang: Lang::Bash, code: vec![], args: vec![] };
        assert_eq!(fit(&|r| r.program = bash.clone()), Err(Misfit::NoPython));
        let allow = |r: &mut Request| r.allow_unenforced = BTreeSet::from([LimitKind::Cpu]);
        assert_eq!(fit(&allow), Err(Misfit::Unenforced));
        let skill = || crate::executor::request::Skill { dir: "/s".into(), id: "s".into() };
        assert_eq!(fit(&|r| r.skills = (0..65).map(|_| skill()).collect()), Err(Misfit::Skills));
    }

    #[test]
    fn variables_that_are_read_early_do_not_fit_and_others_do() {
        let pool = example();
        let with = |name: &str| {
            let mut request = pool.request();
            request.env.insert(name.to_owned(), "值".to_owned());
            fits(&pool, &request)
        };
        for early in [
            "PYTHONPATH",
            "PYTHONHASHSEED",
            "LC_ALL",
            "LD_PRELOAD",
            "MALLOC_ARENA_MAX",
            "GLIBC_TUNABLES",
            "MPLBACKEND",
            "XDG_CACHE_HOME",
            "OMP_NUM_THREADS",
            "OPENBLAS_CORETYPE",
            "MKL_DEBUG",
            "NUMEXPR_MAX",
            "KMP_AFFINITY",
            "JE_MALLOC_CONF",
            "ARROW_IO",
            "SSL_CERT_FILE",
            "LANG",
            "LANGUAGE",
            "HOME",
            "PATH",
            "TMPDIR",
            "TZDIR",
        ] {
            assert_eq!(with(early), Err(Misfit::Early(early.into())));
        }
        for late in ["X", "TZ", "键", "HOMEPAGE", "MY_PYTHONPATH", "USER"] {
            assert_eq!(with(late), Ok(()), "{late}");
        }
        // One that the pool has and the request has not.
        let mut richer = example();
        richer.env.insert("PYTHONUTF8".into(), "1".into());
        assert_eq!(fits(&richer, &pool.request()), Err(Misfit::Early("PYTHONUTF8".into())));
    }

    #[test]
    fn a_bundle_that_changes_is_another_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().to_str().unwrap();
        let config = dir.path().join("config.json");
        std::fs::write(&config, "{}").unwrap();
        let before = Stamp::of(image);
        assert_eq!(before, Stamp::of(image));
        std::fs::write(dir.path().join("new"), "{ }").unwrap();
        std::fs::rename(dir.path().join("new"), &config).unwrap();
        assert_ne!(before, Stamp::of(image));
    }
}
