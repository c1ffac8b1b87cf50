//! The base of an image: Debian's essential packages and some more, by mmdebstrap.
//!
//! mmdebstrap runs in a user namespace (`--mode=unshare`), so that the packages' scripts are not root of the host. Its
//! `--mode=chrootless` is never used: run by root, it has those scripts change the host.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::BuildError;
use super::recipe::Debian;

const PROGRAM: &str = "mmdebstrap";

/// Nothing of this host in the image, and nothing that differs from one build to the next.
const TIDY: &str = r#"set -e
rm -f "$1/etc/hostname"
: > "$1/etc/resolv.conf"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' > "$1/etc/hosts"
rm -rf "$1"/var/log/*.log "$1"/var/log/apt "$1"/var/cache/*/* "$1"/var/lib/apt/lists/* "$1"/etc/*- "$1"/var/lib/dpkg/*-old
: > "$1/etc/machine-id"
"#;

/// A base in the making: its tar stream.
pub struct Base {
    child: Child,
    log: std::path::PathBuf,
}

impl Base {
    /// Starts mmdebstrap. `log`: a file for what it prints; with `verbose` it goes to our standard error instead.
    pub fn start(debian: &Debian, epoch: u64, log: &Path, verbose: bool) -> Result<Base, BuildError> {
        let mut command = Command::new(PROGRAM);
        command
            .args(["--mode=unshare", "--variant=essential", "--skip=output/dev", "--format=tar", "--quiet"])
            .arg("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
            .args(debian.exclude.iter().map(|p| format!("--dpkgopt=path-exclude={p}")))
            .args(debian.include.iter().map(|p| format!("--dpkgopt=path-include={p}")))
            .arg(format!("--include={}", debian.packages.join(",")))
            .args(debian.hook_text.iter().map(|text| format!("--customize-hook={text}")))
            .arg(format!("--customize-hook={TIDY}"))
            .args([&debian.suite, "-"])
            .env("SOURCE_DATE_EPOCH", epoch.to_string())
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMPDIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if !verbose {
            let file = File::create(log).map_err(|source| BuildError::Io {
                what: "write",
                path: log.to_owned(),
                source,
            })?;
            command.stderr(file);
        }
        match command.spawn() {
            Ok(child) => Ok(Base { child, log: log.to_owned() }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(BuildError::NoProgram { program: PROGRAM }),
            Err(source) => Err(BuildError::Io { what: "execute", path: PROGRAM.into(), source }),
        }
    }

    /// The stream: read it to its end, then ask [`finish`](Base::finish).
    pub fn stream(&mut self) -> Option<impl Read + Send + use<>> {
        self.child.stdout.take()
    }

    /// Whether all of it came.
    pub fn finish(mut self) -> Result<(), BuildError> {
        let status = self.child.wait().map_err(|source| BuildError::Io {
            what: "wait for",
            path: PROGRAM.into(),
            source,
        })?;
        if status.success() {
            return Ok(());
        }
        let printed = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = printed.lines().collect();
        let tail = lines[lines.len().saturating_sub(25)..].join("\n");
        Err(BuildError::Step { step: "base".into(), how: format!("mmdebstrap: {status}"), tail })
    }
}
