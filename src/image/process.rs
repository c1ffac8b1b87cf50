//! The `process` part of a bundle and its limits: what is honoured, and under which checks.

use std::collections::HashMap;

use super::config::{Config, Process, Rlimit};
use super::files::{Found, Rootfs};
use super::layer::{Layer, at_or_below, normal};
use super::{BundleMount, DEFAULT_CWD, ImageError, ImageLimits, OWN_MOUNTS};

/// The lowest number of open files that a bundle can ask for: with fewer no interpreter starts.
pub const NOFILE_FLOOR: u64 = 16;

/// `process.args`.
pub(super) fn args(process: &Process) -> Result<Vec<String>, ImageError> {
    let args = process.args.clone().unwrap_or_default();
    if args.first().is_some_and(String::is_empty) {
        return Err(ImageError::Args { reason: "the first is empty, it names the program" });
    }
    if args.iter().any(|arg| arg.contains('\0')) {
        return Err(ImageError::Args { reason: "one has a NUL character" });
    }
    Ok(args)
}

/// `process.env` as PATH (when it is there) and the others. Of a name that comes twice the last value holds.
#[expect(clippy::type_complexity, reason = "a list of pairs")]
pub(super) fn env(process: &Process) -> Result<(Option<String>, Vec<(String, String)>), ImageError> {
    let mut path = None;
    let mut vars: Vec<(String, String)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for entry in process.env.iter().flatten() {
        let refused = |reason| {
            // The value may be a secret.
            let name: String = entry.split('=').next().unwrap_or_default().chars().take(60).collect();
            ImageError::Env { entry: name, reason }
        };
        let Some((name, value)) = entry.split_once('=') else {
            return Err(refused("write NAME=VALUE"));
        };
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(refused("the name is empty or has a control character"));
        }
        if value.contains('\0') {
            return Err(refused("the value has a NUL character"));
        }
        if name == "PATH" {
            path = Some(value.to_owned());
        } else if let Some(&at) = known.get(name) {
            value.clone_into(&mut vars[at].1);
        } else {
            known.insert(name, vars.len());
            vars.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok((path, vars))
}

/// `process.cwd`; a directory that the image lacks is added to `layer`, as other runtimes make it.
///
/// CVE-2024-21626: `/proc/self/fd/7` as the working directory is a way to the host. Not only the text is looked at: a
/// symlink of the image could lead to `/proc` when the run starts, so the way must have none.
pub(super) fn cwd(
    process: &Process,
    rootfs: &Rootfs,
    mounts: &[BundleMount],
    layer: &mut Layer,
) -> Result<String, ImageError> {
    let Some(text) = &process.cwd else {
        return Ok(DEFAULT_CWD.to_owned());
    };
    let refused = |reason| ImageError::Cwd { cwd: text.clone(), reason };
    let cwd = normal(text).map_err(refused)?;
    if ["/proc", "/dev", "/sys"].iter().any(|dir| at_or_below(&cwd, dir)) {
        return Err(refused("it is in /proc, /dev or /sys"));
    }
    if OWN_MOUNTS.contains(&cwd.as_str()) {
        return Ok(cwd);
    }
    if OWN_MOUNTS.iter().any(|dir| at_or_below(&cwd, dir)) {
        return Err(refused("it is inside a directory that creel fills at each start, use /work"));
    }
    if !layer.takes_dir(&cwd) {
        return Err(refused("it is a file of creel's own, or below one"));
    }
    for mount in mounts {
        match mount {
            _ if cwd == mount.target() => return Ok(cwd),
            BundleMount::Bind { .. } if at_or_below(&cwd, mount.target()) => {
                return Err(refused("it is below a mount of the bundle, use the mount itself"));
            }
            BundleMount::Tmpfs { .. } if at_or_below(&cwd, mount.target()) => {
                return Err(refused("it is below a tmpfs, which is empty when the run starts"));
            }
            _ => {}
        }
    }
    let found = rootfs
        .look(&cwd)
        .map_err(|source| ImageError::Os { what: format!("{cwd:?} of the image"), source })?;
    match found {
        Found::Dir => Ok(cwd),
        Found::Absent => {
            layer.dir(&cwd);
            Ok(cwd)
        }
        Found::Symlink => Err(refused("it leads through a symlink of the image, write the real path")),
        Found::Other => Err(refused("it is not a directory of the image")),
    }
}

/// Limits that are named in the bundle.
pub(super) fn limits(config: &Config) -> Result<ImageLimits, ImageError> {
    let mut limits = ImageLimits::default();
    if let Some(rlimits) = config.process.as_ref().and_then(|p| p.rlimits.as_deref()) {
        let nofile = rlimits.iter().filter(|r| r.kind == "RLIMIT_NOFILE");
        limits.nofile = nofile.map(|Rlimit { soft, hard, .. }| (*soft).min(*hard).max(NOFILE_FLOOR)).min();
    }
    let Some(resources) = config.linux.as_ref().and_then(|l| l.resources.as_ref()) else {
        return Ok(limits);
    };
    if let Some(memory) = &resources.memory {
        limits.memory = bounded("linux.resources.memory.limit", memory.limit)?;
    }
    if let Some(pids) = &resources.pids {
        let pids = bounded("linux.resources.pids.limit", pids.limit)?;
        limits.pids = pids.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    }
    if let Some(cpu) = &resources.cpu
        && let Some(quota) = bounded("linux.resources.cpu.quota", cpu.quota)?
    {
        // 0 and no period mean the kernel's own: 100 ms.
        let period = cpu.period.filter(|p| *p > 0).unwrap_or(100_000);
        let millis = u128::from(quota) * 1000 / u128::from(period);
        limits.cpu_millis = Some(u32::try_from(millis).unwrap_or(u32::MAX).max(1));
    }
    Ok(limits)
}

/// `None` for absent, 0 and -1: all mean "no limit" in the OCI specification or in runc.
fn bounded(key: &'static str, value: Option<i64>) -> Result<Option<u64>, ImageError> {
    match value {
        None | Some(0 | -1) => Ok(None),
        Some(value) => match u64::try_from(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => {
                Err(ImageError::Limit { key, value, reason: "write a positive number, or -1 for no limit" })
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(json: &str) -> Process {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn env_is_split_and_the_last_value_holds() {
        let process = process(
            r#"{"env":["A=1","PATH=/x","B=a=b","A=2","名字=值","EMPTY=","PATH=/y","LD_PRELOAD=/e.so"]}"#,
        );
        let (path, vars) = env(&process).unwrap();
        assert_eq!(path.as_deref(), Some("/y"));
        let vars: Vec<_> = vars.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(vars, ["A=2", "B=a=b", "名字=值", "EMPTY=", "LD_PRELOAD=/e.so"]);
    }

    #[test]
    fn env_that_is_none_is_refused() {
        for bad in [r"NOVALUE", r"=x", r"", r"A\u0000=1", r"A=secret\u0000", r"A\nB=1"] {
            let err = env(&process(&format!(r#"{{"env":["{bad}"]}}"#))).unwrap_err();
            assert_eq!(err.code(), "image.env_refused", "{bad}");
            let text = err.to_string();
            assert!(!text.contains("secret") && !text.contains('\0') && !text.contains('\n'), "{text:?}");
        }
    }

    #[test]
    fn many_variables_take_no_long_time() {
        let entries: Vec<_> = (0..100_000).map(|i| format!("\"v{i}=\"")).collect();
        let start = std::time::Instant::now();
        let (_, vars) = env(&process(&format!("{{\"env\":[{}]}}", entries.join(",")))).unwrap();
        assert_eq!(vars.len(), 100_000);
        assert!(start.elapsed().as_secs() < 5);
    }

    #[test]
    fn args_have_no_nul() {
        assert_eq!(args(&process("{}")).unwrap(), Vec::<String>::new());
        assert_eq!(args(&process(r#"{"args":["sh","","数"]}"#)).unwrap(), ["sh", "", "数"]);
        for bad in [r#"{"args":["a","b\u0000"]}"#, r#"{"args":[""]}"#] {
            assert_eq!(args(&process(bad)).unwrap_err().code(), "image.args_refused", "{bad}");
        }
    }

    fn limits_of(rest: &str) -> Result<ImageLimits, ImageError> {
        limits(&serde_json::from_str(&format!(r#"{{"ociVersion":"1.0.0",{rest}}}"#)).unwrap())
    }

    #[test]
    fn limits_are_read() {
        let got = limits_of(
            r#""process":{"rlimits":[{"type":"RLIMIT_NOFILE","soft":64,"hard":128}]},
               "linux":{"resources":{"memory":{"limit":1048576},"pids":{"limit":9},"cpu":{"quota":25000,"period":50000}}}"#,
        );
        let want =
            ImageLimits { memory: Some(1 << 20), pids: Some(9), cpu_millis: Some(500), nofile: Some(64) };
        assert_eq!(got.unwrap(), want);
    }

    #[test]
    fn no_limit_and_odd_limits() {
        for none in ["0", "-1", "null"] {
            let got = limits_of(&format!(
                r#""linux":{{"resources":{{"memory":{{"limit":{none}}},"pids":{{"limit":{none}}},"cpu":{{"quota":{none}}}}}}}"#
            ));
            assert_eq!(got.unwrap(), ImageLimits::default(), "{none}");
        }
        for key in ["memory", "pids"] {
            let err =
                limits_of(&format!(r#""linux":{{"resources":{{"{key}":{{"limit":-2}}}}}}"#)).unwrap_err();
            assert_eq!(err.code(), "image.limit_refused");
            assert!(err.to_string().contains(key), "{err}");
        }
        let cpu = |quota: i64, period: u64| {
            let json = format!(r#""linux":{{"resources":{{"cpu":{{"quota":{quota},"period":{period}}}}}}}"#);
            limits_of(&json).unwrap().cpu_millis
        };
        assert_eq!(cpu(100_000, 0), Some(1000));
        assert_eq!(cpu(1, 1_000_000), Some(1));
        assert_eq!(cpu(i64::MAX, 1), Some(u32::MAX));
        let tiny = limits_of(r#""process":{"rlimits":[{"type":"RLIMIT_NOFILE","soft":0,"hard":0}]}"#);
        assert_eq!(tiny.unwrap().nofile, Some(NOFILE_FLOOR));
    }
}
