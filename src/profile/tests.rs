use super::*;
use crate::profile::fit::fit_tmpfs;

fn nowhere() -> &'static Path {
    Path::new("/nonexistent/creel")
}

fn text(toml: &str) -> Result<Profile, ProfileError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    std::fs::write(&path, toml).unwrap();
    load_from(path.to_str().unwrap(), nowhere())
}

/// The error's line without the directory.
fn line(toml: &str) -> String {
    let line = text(toml).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line[line.find("p.toml").unwrap()..].to_owned()
}

#[test]
fn the_default_is_the_contract() {
    let p = load_from("default", nowhere()).unwrap();
    const M: u64 = 1 << 20;
    let want = Limits {
        timeout: Duration::from_secs(30),
        memory: 512 * M,
        cpu_millis: 500,
        pids: 128,
        tmp: 128 * M,
        shm: 64 * M,
        run: 16 * M,
        work: 256 * M,
        work_files: 65536,
        output: 50 * M,
        output_files: 1000,
        output_depth: 32,
    };
    assert_eq!(p.limits, want);
    assert_eq!(p.timeout_max, Duration::from_secs(120));
    assert_eq!(p.seccomp.name, "default");
    assert!(p.env.is_empty());
}

#[test]
fn built_in_profiles_load_and_need_no_scaling() {
    for (name, _) in BUILT_IN {
        let mut p = load_from(name, nowhere()).unwrap();
        assert_eq!(fit_tmpfs(&mut p.limits, false), Ok(None), "{name}");
        assert!(serde_json::from_str::<serde_json::Value>(&p.seccomp.json).is_ok(), "{name}");
    }
    assert_eq!(load_from("strict", nowhere()).unwrap().seccomp.name, "strict");
    assert_eq!(load_from("office", nowhere()).unwrap().limits.memory, 2 << 30);
}

#[test]
fn unknown_names_list_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("财务.toml"), "").unwrap();
    for name in ["nosuch", ""] {
        let line = load_from(name, dir.path()).unwrap_err().to_string();
        assert_eq!(line, format!("no profile '{name}'; there are: default, strict, office, 财务"));
    }
}

#[test]
fn the_system_directory_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("default.toml"), "[limits]\npids = 7\n").unwrap();
    std::fs::write(dir.path().join("财务.toml"), "[limits]\ncpus = 2\n").unwrap();
    std::fs::write(dir.path().join("broken.toml"), "[limits\n").unwrap();
    let p = load_from("default", dir.path()).unwrap();
    assert_eq!((p.limits.pids, p.limits.memory), (7, 512 << 20));
    assert_eq!(load_from("财务", dir.path()).unwrap().limits.cpu_millis, 2000);
    assert!(load_from("broken", dir.path()).unwrap_err().to_string().contains("broken.toml:1: "));
}

#[test]
fn unknown_keys_are_errors_with_the_line() {
    let got = line("# a\n\n[limits]\nmemroy = 5\n");
    assert!(
        got.starts_with("p.toml:4: unknown key 'memroy'; known: timeout, timeout_max, memory, cpus"),
        "{got}"
    );
    let got = line("[limit]\n");
    assert_eq!(got, "p.toml:1: unknown key 'limit'; known: limits, seccomp, network, env");
    assert_eq!(line("[network]\nmoed = 'x'\n"), "p.toml:2: unknown key 'moed'; known: mode");
}

#[test]
fn bad_values_name_line_and_key() {
    let got = line("[limits]\nmemory = \"5x\"\n");
    assert_eq!(
        got,
        "p.toml:2: memory: '5x' has an unknown unit; accepted: 4m to 1p, such as 512m, 1g or 1048576"
    );
    for (toml, start) in [
        ("[limits]\ncpus = nan", "p.toml:2: cpus: 'NaN' is not a number"),
        ("[limits]\ncpus = -0.5", "p.toml:2: cpus: '-0.5' is negative"),
        ("[limits]\npids = 0", "p.toml:2: pids: '0' is zero"),
        ("[limits]\npids = 4194305", "p.toml:2: pids: '4194305' is too large"),
        ("[limits]\ntimeout = true", "p.toml:2: timeout: invalid type: boolean"),
        ("[limits]\ntmp = 4096", "p.toml:2: tmp: '4096' is too small"),
        ("[limits]\npids = 1\npids = 2", "p.toml:3: pids: duplicate key"),
        ("[limits]\ntimeout = 50\ntimeout_max = 40", "p.toml: timeout (50 s) is above timeout_max (40 s)"),
        ("[env]\nA = \"a\\u0000b\"", "p.toml:2: A: contains a NUL"),
        ("[env]\n\"A=B\" = \"x\"", "p.toml:2: \"A: 'A=B' is no name for a variable"),
        ("[env]\nA = 5", "p.toml:2: A: invalid type: integer `5`, expected a string"),
        ("[network]\nmode = \"pypi.org\"", "p.toml:2: mode: 'pypi.org' is not in this version"),
        ("[network]\nmode = \"\"", "p.toml:2: mode: '' is not in this version"),
        ("seccomp = \"none\"", "p.toml: seccomp is 'none'; accepted: default, strict, or"),
        ("limits = 5", "p.toml:1: limits: invalid type: integer `5`"),
        ("memory", "p.toml:1: "),
        ("[limits]\nmemory = ", "p.toml:2: "),
    ] {
        let got = line(toml);
        assert!(got.starts_with(start), "{toml:?}: {got}");
    }
}

#[test]
fn what_a_file_leaves_out_is_the_default() {
    let p = text(
        "[limits]\ntimeout = 300\n[env]\nLANG = \"zh_CN.UTF-8\"\n标 = 1\n".replace("标 = 1\n", "").as_str(),
    );
    let p = p.unwrap();
    assert_eq!((p.limits.timeout.as_secs(), p.timeout_max.as_secs()), (300, 300));
    assert_eq!(p.limits.pids, 128);
    assert_eq!(p.seccomp.name, "default");
    assert_eq!(p.env["LANG"], "zh_CN.UTF-8");
    let p = text("[limits]\ntimeout_max = 10\n").unwrap();
    assert_eq!((p.limits.timeout.as_secs(), p.timeout_max.as_secs()), (10, 10));
}

#[test]
fn seccomp_files_are_relative_to_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    std::fs::write(&path, "seccomp = \"filter.json\"\n").unwrap();
    let line = load(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(line.ends_with("filter.json' does not exist"), "{line}");
    assert!(line.contains("p.toml: seccomp file '"), "{line}");
    std::fs::write(dir.path().join("filter.json"), "{}").unwrap();
    let p = load(path.to_str().unwrap()).unwrap();
    assert_eq!(p.seccomp.json, "{}");
    assert!(p.seccomp.name.ends_with("/filter.json"));
}

#[test]
fn files_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let line = |path: &str| load(path).unwrap_err().to_string();
    assert_eq!(line("./nosuch.toml"), "profile './nosuch.toml' does not exist");
    assert!(line(&at("")).ends_with("is a directory, not a regular file"));
    assert!(line("/dev/zero").contains("is a character device"));
    std::fs::write(at("big.toml"), vec![b'#'; 2 << 20]).unwrap();
    assert!(line(&at("big.toml")).ends_with("is larger than 1 MiB"));
    std::fs::write(at("latin.toml"), b"# caf\xe9").unwrap();
    assert!(line(&at("latin.toml")).contains("UTF-8"));
}
