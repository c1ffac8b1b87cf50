//! From an image's configuration to the runtime configuration of its bundle.
//!
//! `runc run` and `crun run` take the result as it is. creel itself takes the program, environment, working directory and user
//! from it, and its own policy instead of the rest.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{CWD, OFlags, readlinkat};
use serde_json::{Value, json};

use super::DEFAULT_PATH;
use super::files::{self, Found, IN_ROOT, Rootfs};
use super::layer::{Layer, at_or_below, normal};
use super::skeleton::{self, OWN_MOUNTS};
use super::store::{ImageConfig, Settings};

/// The largest passwd or group file that is read.
const MAX_ACCOUNTS: u64 = 1 << 20;
/// Who a user is that the image names and does not have: nobody, and surely not root.
const NOBODY: u32 = 65534;
/// What Docker leaves a container of root's; runc's own default has three of them.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The runtime configuration (`config.json`) for an image whose layers are put together in `rootfs`. What of the image's
/// configuration could not be taken is added to `notes`.
pub fn build(image: &ImageConfig, rootfs: BorrowedFd<'_>, notes: &mut Vec<String>) -> Value {
    let none = Settings::default();
    let settings = image.config.as_ref().unwrap_or(&none);
    let args = args(settings, notes);
    let (uid, gid) = user(settings.user.as_deref().unwrap_or_default(), rootfs, notes);
    let mut mounts = standard_mounts();
    // Where the image has a place for it: its root is read-only.
    if files::open_path(rootfs, "tmp", OFlags::DIRECTORY, files::STRICT).is_ok() {
        mounts.push(json!({"destination": "/tmp", "type": "tmpfs", "source": "tmp",
            "options": ["nosuid", "nodev", "mode=1777", "size=131072k"]}));
    }
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": uid, "gid": gid},
            "args": args,
            "env": env(settings.env.as_deref().unwrap_or_default(), notes),
            "cwd": cwd(settings.working_dir.as_deref().unwrap_or_default(), rootfs, notes),
            "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": super::HOSTNAME,
        "mounts": mounts,
        "linux": {
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "namespaces": [
                {"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
            ],
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

/// What `runc spec` has, without the cgroup mount: a program needs none, and it differs between cgroup versions.
fn standard_mounts() -> Vec<Value> {
    let quiet = ["nosuid", "noexec", "nodev"];
    let mount = |destination: &str, kind: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": kind, "options": options});
    vec![
        mount("/proc", "proc", &quiet),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", &quiet),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ]
}

/// The program and its arguments. What no program can be started with would refuse each run, also one with a program of its own.
fn args<'a>(settings: &'a Settings, notes: &mut Vec<String>) -> Vec<&'a String> {
    let parts = [("Entrypoint", &settings.entrypoint), ("Cmd", &settings.cmd)];
    let mut args: Vec<&String> = Vec::new();
    for (what, part) in parts {
        let part = part.as_deref().unwrap_or_default();
        let reason = if part.iter().any(|arg| arg.contains('\0')) {
            "has a NUL character"
        } else if args.is_empty() && part.first().is_some_and(String::is_empty) {
            // `ENTRYPOINT [""]` is how a Dockerfile takes its base's away.
            "names a program that is empty"
        } else {
            args.extend(part);
            continue;
        };
        notes.push(format!("{what} of the image {reason} and was left out"));
    }
    args
}

/// The variables that are some, and a PATH.
fn env(image: &[String], notes: &mut Vec<String>) -> Vec<String> {
    let is_sound = |entry: &str| {
        let name = entry.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && !name.chars().any(char::is_control) && !entry.contains('\0')
    };
    let mut env: Vec<String> = image.iter().filter(|e| is_sound(e)).cloned().collect();
    if env.len() < image.len() {
        notes.push(format!(
            "{} entries of the image's environment are not NAME=VALUE and were left out",
            image.len() - env.len()
        ));
    }
    if !env.iter().any(|e| e.starts_with("PATH=")) {
        env.insert(0, format!("PATH={DEFAULT_PATH}"));
    }
    env
}

/// The working directory: absolute, and through no symlink of the image where it is a directory that the image has. `/` for one in which
/// no run can start ([`process::cwd`](super::process)).
fn cwd(text: &str, rootfs: BorrowedFd<'_>, notes: &mut Vec<String>) -> String {
    let found = resolved(text, rootfs);
    match usable(&found, rootfs) {
        Ok(path) => path,
        Err(reason) => {
            let shown: String = text.chars().take(100).collect();
            notes.push(format!("WorkingDir {shown:?} of the image was left out: {reason}"));
            "/".to_owned()
        }
    }
}

/// The normal form of a path that can be a working directory.
fn usable(path: &str, rootfs: BorrowedFd<'_>) -> Result<String, &'static str> {
    let path = normal(path)?;
    if ["/proc", "/dev", "/sys"].iter().any(|dir| at_or_below(&path, dir)) {
        return Err("it is in /proc, /dev or /sys");
    }
    if OWN_MOUNTS.contains(&path.as_str()) {
        return Ok(path);
    }
    if OWN_MOUNTS.iter().any(|dir| at_or_below(&path, dir)) {
        return Err("it is inside a directory that creel fills at each start");
    }
    let mut own = Layer::default();
    skeleton::add(&mut own, &[], Vec::new(), Vec::new()).map_err(|_| "it can't be looked at")?;
    let rootfs = Rootfs(rootfs.try_clone_to_owned().map_err(|_| "it can't be looked at")?);
    match rootfs.look(&path) {
        _ if !own.takes_dir(&path) => Err("it is a file of creel's own, or below one"),
        Ok(Found::Dir | Found::Absent) => Ok(path),
        Ok(Found::Symlink) => Err("it leads through a symlink to nowhere"),
        Ok(Found::Other) => Err("it is not a directory"),
        Err(_) => Err("it can't be looked at"),
    }
}

fn resolved(text: &str, rootfs: BorrowedFd<'_>) -> String {
    let absolute = format!("/{}", text.trim_start_matches('/'));
    let real = || {
        let fd =
            files::open_path(rootfs, absolute.trim_start_matches('/'), OFlags::DIRECTORY, IN_ROOT).ok()?;
        let place = |fd: BorrowedFd<'_>| {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            readlinkat(CWD, path, Vec::new()).ok()?.into_string().ok()
        };
        let (root, dir) = (place(rootfs)?, place(fd.as_fd())?);
        dir.strip_prefix(&root).map(|rest| if rest.is_empty() { "/".to_owned() } else { rest.to_owned() })
    };
    match text {
        "" | "/" => "/".to_owned(),
        _ => real().unwrap_or(absolute),
    }
}

/// Uid and gid of the image's `User`: `user`, `uid`, `user:group`, `uid:gid` and the mixed forms. Names are looked up in the
/// image's own files.
fn user(text: &str, rootfs: BorrowedFd<'_>, notes: &mut Vec<String>) -> (u32, u32) {
    if text.is_empty() {
        return (0, 0);
    }
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|g| !g.is_empty())),
        None => (text, None),
    };
    let mut unknown = |what: &str, name: &str| {
        let name: String = name.chars().take(60).collect();
        notes.push(format!("the image names the {what} {name:?}, which it does not have: {NOBODY} is taken"));
        NOBODY
    };
    let found = account(rootfs, "/etc/passwd", user);
    let uid = match (user.parse::<u32>(), &found) {
        (Ok(uid), _) => uid,
        (Err(_), Some(fields)) => fields.0,
        (Err(_), None) => unknown("user", user),
    };
    let gid = match group {
        None if found.is_none() && user.parse::<u32>().is_err() => NOBODY,
        // Of a number that no line has, the group is root's: so say Docker and runc.
        None => found.and_then(|f| f.1).unwrap_or(0),
        Some(group) => match (group.parse::<u32>(), account(rootfs, "/etc/group", group)) {
            (Ok(gid), _) => gid,
            (Err(_), Some(fields)) => fields.0,
            (Err(_), None) => unknown("group", group),
        },
    };
    (uid, gid)
}

/// The third and fourth field of the line whose name, or whose id, is `wanted`, in the image's passwd or group file.
fn account(rootfs: BorrowedFd<'_>, path: &str, wanted: &str) -> Option<(u32, Option<u32>)> {
    let content = files::read_regular(rootfs, path, IN_ROOT, MAX_ACCOUNTS).ok()?;
    content.split(|b| *b == b'\n').find_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (name == wanted || id == wanted).then_some(())?;
        Some((id.parse().ok()?, fields.next().and_then(|f| f.parse().ok())))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn built(config: Value) -> (Value, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["etc", "usr/data", "home"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("etc/passwd"), "root:x:0:0::/:/bin/sh\n数:x:7:8::/:/bin/sh\n").unwrap();
        fs::write(at("etc/group"), "root:x:0:\nstaff:x:50:数\n").unwrap();
        symlink("/usr/data", at("data")).unwrap();
        symlink("../../../etc", at("home/up")).unwrap();
        let rootfs = fs::File::open(dir.path()).unwrap();
        let image: ImageConfig = serde_json::from_value(json!({ "config": config })).unwrap();
        let mut notes = Vec::new();
        (build(&image, rootfs.as_fd(), &mut notes), notes)
    }

    #[test]
    fn users() {
        for (text, uid, gid, noted) in [
            ("", 0, 0, false),
            ("5", 5, 0, false),
            ("7", 7, 8, false),
            ("5:6", 5, 6, false),
            ("数", 7, 8, false),
            ("数:staff", 7, 50, false),
            ("9:staff", 9, 50, false),
            ("nobody-here", NOBODY, NOBODY, true),
            ("7:nogroup", 7, NOBODY, true),
            ("-1", NOBODY, NOBODY, true),
            ("4294967296", NOBODY, NOBODY, true),
        ] {
            let (config, notes) = built(json!({ "User": text }));
            assert_eq!(config["process"]["user"], json!({"uid": uid, "gid": gid}), "{text}");
            assert_eq!(!notes.is_empty(), noted, "{text}: {notes:?}");
        }
    }

    #[test]
    fn directories() {
        for (text, want) in [
            ("", "/"),
            ("/", "/"),
            ("srv", "/srv"),
            ("/data", "/usr/data"),
            ("/usr/data/", "/usr/data"),
            ("/home/up", "/etc"),
            ("/usr/../etc", "/etc"),
        ] {
            assert_eq!(built(json!({ "WorkingDir": text })).0["process"]["cwd"], want, "{text}");
        }
    }

    #[test]
    fn directories_where_no_run_can_start() {
        for text in [
            "/none/../x",
            "/proc/self/fd/7",
            "/dev",
            "/sys/x",
            "/a\0b",
            "/work/sub",
            "/etc/passwd",
            "/etc/passwd/x",
            "/etc/hosts/x",
            "proc",
        ] {
            let (config, notes) = built(json!({ "WorkingDir": text }));
            assert_eq!(config["process"]["cwd"], "/", "{text:?}");
            assert!(notes.len() == 1 && notes[0].starts_with("WorkingDir \""), "{text:?}: {notes:?}");
        }
        for (text, want) in [("/work", "/work"), ("./new//dir", "/new/dir"), ("/数", "/数")] {
            let (config, notes) = built(json!({ "WorkingDir": text }));
            assert_eq!((&config["process"]["cwd"], notes.len()), (&json!(want), 0), "{text:?}");
        }
    }

    #[test]
    fn programs_that_cannot_be_started() {
        for (entrypoint, cmd, want, noted) in [
            (json!([""]), json!(["sh"]), json!(["sh"]), 1),
            (json!([""]), json!(["", "x"]), json!([]), 2),
            (json!(null), json!([""]), json!([]), 1),
            (json!(["sh"]), json!([""]), json!(["sh", ""]), 0),
            (json!(["sh", "a\0"]), json!(["印"]), json!(["印"]), 1),
            (json!(["sh"]), json!(["\0"]), json!(["sh"]), 1),
        ] {
            let (config, notes) = built(json!({"Entrypoint": entrypoint, "Cmd": cmd}));
            assert_eq!(
                (&config["process"]["args"], notes.len()),
                (&want, noted),
                "{entrypoint} {cmd}: {notes:?}"
            );
        }
    }

    #[test]
    fn program_and_environment() {
        let (config, notes) = built(json!({
            "Entrypoint": ["python3", "-u"], "Cmd": ["-c", "印"], "Env": ["A=1=2", "odd", "=x", "名=值", "N=\0"],
            "Volumes": {"/data": {}}, "ExposedPorts": null, "Healthcheck": {"Test": []}, "Labels": null,
        }));
        assert_eq!(config["process"]["args"], json!(["python3", "-u", "-c", "印"]));
        let path = format!("PATH={DEFAULT_PATH}");
        assert_eq!(config["process"]["env"], json!([path, "A=1=2", "名=值"]));
        assert!(notes[0].starts_with("3 entries"), "{notes:?}");
        assert_eq!(built(json!({"Env": ["PATH=/x"], "Cmd": null})).0["process"]["env"], json!(["PATH=/x"]));
    }
}
