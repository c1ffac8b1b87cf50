//! The built-in image `host`: this host's `/usr`, read-only, and a small made-up `/etc`.
//!
//! # What a program sees of the host
//!
//! * All of `/usr` that **everybody** may read. Host root is no user of the sandbox, so a file that only root or a group may
//!   read stays unreadable; setuid bits and file capabilities have no effect (`nosuid`, no_new_privs).
//! * Not `/usr/etc` and `/usr/local/etc`: software that was installed by hand keeps its configuration there, and tokens in it
//!   (npm's global `npmrc` is `/usr/etc/npmrc`). An empty directory is mounted over each that has something in it.
//! * The parts of `/etc` in the table below (`ETC`), each because a program in `/usr` is broken without it. Never the whole of `/etc`:
//!   `npmrc`, `pip.conf`, `gitconfig` and many others hold tokens and are readable for all.
//!
//! Who keeps secrets in files below `/usr` that everybody may read (a private program under `/usr/local/src`) should run
//! strangers' code in an image of its own, not in `host`.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::files::{file_type, is_program};
use super::layer::Layer;
use super::{DEFAULT_CWD, DEFAULT_PATH, Image, ImageError, ImageLimits, accounts, python, skeleton};
use crate::sandbox::root::{RootBind, RootPlan};

/// What stands beside `/usr`: links into it on a host with a merged `/usr`, directories on others.
const TOP: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];

/// Configuration of the host that programs in `/usr` need and in which no secret has a place. True: a directory.
///
/// All are bind mounts: one costs 4 µs here, reading and writing a copy of even the smallest (`services`) 7 µs, and a
/// mount keeps the host's file permissions. Left out on purpose: `ssl/openssl.cnf` (may hold the PIN of a token; OpenSSL
/// works without), `python3.*` (only a hook for crash reports), `ImageMagick-*` (policy.xml may hold a shared secret),
/// `machine-id` (tells which host it is), `ld.so.preload` (must not reach the sandbox).
const ETC: [(&str, bool); 9] = [
    // Debian: awk, java, editor and 300 others in /usr/bin are links through here.
    ("/etc/alternatives", true),
    // The loader finds libraries outside its two standard directories only with it, and the others faster.
    ("/etc/ld.so.cache", false),
    // Public certificates of the authorities; the keys are beside it in /etc/ssl/private.
    ("/etc/ssl/certs", true),
    // Font set-up, and below what fc-cache made of it: without it each LibreOffice start scans all fonts.
    ("/etc/fonts", true),
    ("/var/cache/fontconfig", true),
    // mimetypes, getservbyname and getprotobyname in Python give other answers without these.
    ("/etc/mime.types", false),
    ("/etc/services", false),
    ("/etc/protocols", false),
    // LibreOffice of Debian does not start without: its registry is links to here.
    ("/etc/libreoffice", true),
];

/// Directories of `/usr` that are hidden, see the module's text.
const HIDDEN: [&str; 2] = ["/usr/etc", "/usr/local/etc"];

/// Plans the image `host`. On the path of every cold start: about forty system calls, and no file is read.
///
/// # Errors
/// [`ImageError::HostUsr`] without a `/usr`; [`ImageError::Os`] when the host can't be looked at (descriptors used up).
pub fn plan(skill_ids: &[&str]) -> Result<Image, ImageError> {
    let mut layer = Layer::default();
    skeleton::add(&mut layer, skill_ids, accounts::passwd(b""), accounts::group(b""))?;
    skeleton::add_var(&mut layer);
    let mut binds = Vec::with_capacity(12);

    let usr = open("/usr", true).map_err(|source| ImageError::HostUsr { source })?;
    layer.dir("/usr");
    let masks = hidden(&usr);
    binds.push(RootBind { source: usr, target: "/usr".to_owned() });

    let mut shown = vec!["/usr"];
    for path in TOP {
        match link_text(path)? {
            Link::To(text) if into_usr(&text) => layer.symlink(path, &text),
            Link::Absent => {}
            Link::To(_) | Link::Other => {
                if bind(&mut layer, &mut binds, path, true)? {
                    shown.push(path);
                }
            }
        }
    }
    for (path, is_dir) in ETC {
        bind(&mut layer, &mut binds, path, is_dir)?;
    }
    match link_text("/etc/localtime")? {
        Link::To(text) if is_zone(&text) => layer.symlink("/etc/localtime", &text),
        // Some hosts have a copy of the zone file.
        Link::Other => _ = bind(&mut layer, &mut binds, "/etc/localtime", false)?,
        Link::To(_) | Link::Absent => {}
    }
    layer.symlink("/etc/os-release", "../usr/lib/os-release");

    let mut path_env = DEFAULT_PATH.to_owned();
    // `/bin` as a link is `/usr/bin` once more.
    let dirs: Vec<&str> = DEFAULT_PATH.split(':').filter(|dir| layer.takes_dir(dir)).collect();
    if let Some(found) = python::missing(dirs.into_iter(), |path| is_shown_program(path, &shown)) {
        layer.symlink(&format!("{}/python", python::LINK_DIR), &format!("{}/python3", found.dir));
        path_env = python::extended(DEFAULT_PATH);
    }
    Ok(Image {
        name: "host".to_owned(),
        root: RootPlan { entries: layer.into_entries(), binds, masks, ..RootPlan::default() },
        path_env,
        args: Vec::new(),
        env: Vec::new(),
        cwd: DEFAULT_CWD.to_owned(),
        mounts: Vec::new(),
        limits: ImageLimits::default(),
        notes: Vec::new(),
        held: None,
    })
}

/// Plans a bind of the host's `path`, with its mount point. False when the host has no such file or directory, or the
/// caller can't reach it.
fn bind(layer: &mut Layer, binds: &mut Vec<RootBind>, path: &str, is_dir: bool) -> Result<bool, ImageError> {
    let os = |source| ImageError::Os { what: path.to_owned(), source };
    let source = match open(path, is_dir) {
        Ok(fd) => fd,
        Err(errno) if is_absence(errno) => return Ok(false),
        Err(errno) => return Err(os(errno)),
    };
    if is_dir {
        layer.dir(path);
    } else if file_type(&source).map_err(os)? == FileType::RegularFile {
        layer.file(path, "");
    } else {
        return Ok(false);
    }
    binds.push(RootBind { source, target: path.to_owned() });
    Ok(true)
}

fn open(path: &str, is_dir: bool) -> Result<OwnedFd, Errno> {
    let kind = if is_dir { OFlags::DIRECTORY } else { OFlags::empty() };
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | kind, Mode::empty())
}

fn is_absence(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP)
}

enum Link {
    To(String),
    /// Not a symlink.
    Other,
    Absent,
}

fn link_text(path: &str) -> Result<Link, ImageError> {
    match readlinkat(CWD, path, Vec::with_capacity(64)) {
        // A link text that is not UTF-8 is none that this module knows.
        Ok(text) => Ok(text.into_string().map_or(Link::Other, Link::To)),
        Err(Errno::INVAL) => Ok(Link::Other),
        Err(errno) if is_absence(errno) => Ok(Link::Absent),
        Err(source) => Err(ImageError::Os { what: path.to_owned(), source }),
    }
}

/// True for the links of a merged `/usr`: `usr/bin`, `/usr/lib64`.
fn into_usr(text: &str) -> bool {
    let text = text.strip_prefix('/').unwrap_or(text);
    text.strip_prefix("usr/").is_some_and(|rest| !rest.split('/').any(|part| part == ".."))
}

fn is_zone(text: &str) -> bool {
    text.trim_start_matches("..").starts_with("/usr/share/zoneinfo/")
        && !text.trim_start_matches("..").contains("/..")
}

/// Those of [`HIDDEN`] that are real directories with something in them.
fn hidden(usr: &OwnedFd) -> Vec<String> {
    let mut masks = Vec::new();
    for path in HIDDEN {
        let inside = path.trim_start_matches("/usr/");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let has_entries = match openat2(usr, inside, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(dir) => is_filled(&dir),
            // One that we may not list is hidden too.
            Err(errno) => errno == Errno::ACCESS,
        };
        if has_entries {
            masks.push(path.to_owned());
        }
    }
    masks
}

fn is_filled(dir: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            _ => return true,
        }
    }
    false
}

/// True when `path` is a program whose file can be seen in the sandbox: a link in `/usr/local/bin` to somewhere in `/opt` or
/// in a home directory leads nowhere there.
fn is_shown_program(path: &str, shown: &[&str]) -> bool {
    let Ok(fd) = open(path, false) else {
        return false;
    };
    let Ok(real) = readlinkat(CWD, format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::with_capacity(64))
    else {
        return false;
    };
    let real = real.to_string_lossy();
    shown.iter().any(|dir| super::layer::at_or_below(&real, dir)) && is_program(&fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::root::EntryKind;

    #[test]
    fn the_plan_of_this_host() {
        let image = plan(&["pdf"]).unwrap();
        let entry = |path: &str| image.root.entries.iter().find(|e| e.path == path).map(|e| &e.kind);
        for bind in &image.root.binds {
            let kind = entry(&bind.target).unwrap_or_else(|| panic!("{} has no mount point", bind.target));
            let is_dir = file_type(&bind.source).unwrap() == FileType::Directory;
            assert_eq!(*kind == EntryKind::Dir, is_dir, "{}", bind.target);
        }
        assert_eq!(image.root.binds[0].target, "/usr");
        assert_eq!(entry("/skill/pdf"), Some(&EntryKind::Dir));
        assert!(image.root.layers.is_empty());
        if std::fs::read_link("/bin").is_ok_and(|t| t.as_os_str() == "usr/bin") {
            assert_eq!(entry("/bin"), Some(&EntryKind::Symlink("usr/bin".to_owned())));
        }
        let python3 = DEFAULT_PATH.split(':').any(|d| std::fs::exists(format!("{d}/python3")).unwrap());
        let python = DEFAULT_PATH.split(':').any(|d| std::fs::exists(format!("{d}/python")).unwrap());
        if python3 && !python {
            assert!(matches!(entry("/opt/creel/bin/python"), Some(EntryKind::Symlink(_))));
            assert!(image.path_env.ends_with(":/opt/creel/bin"));
        }
    }

    #[test]
    fn nothing_of_etc_but_what_is_listed() {
        let image = plan(&[]).unwrap();
        for bind in &image.root.binds {
            let known = bind.target == "/usr"
                || bind.target == "/etc/localtime"
                || TOP.contains(&bind.target.as_str())
                || ETC.iter().any(|(path, _)| *path == bind.target);
            assert!(known, "{}", bind.target);
        }
    }

    #[test]
    fn links_of_a_merged_usr() {
        for good in ["usr/bin", "/usr/lib64", "usr/lib/x86_64-linux-gnu"] {
            assert!(into_usr(good), "{good}");
        }
        for bad in ["/opt/bin", "usr", "usr/../etc", "../usr/bin", "", "usrbin"] {
            assert!(!into_usr(bad), "{bad}");
        }
        assert!(is_zone("/usr/share/zoneinfo/Asia/Shanghai"));
        assert!(is_zone("../usr/share/zoneinfo/Etc/UTC"));
        assert!(!is_zone("/usr/share/zoneinfo/../../../etc/shadow"));
        assert!(!is_zone("/etc/shadow"));
    }
}
