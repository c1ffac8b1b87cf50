//! `creel image pull`.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::rc::Rc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::paths::{path, text, usage};
use super::super::refusal::Refusal;
use super::{size, store};
use crate::image::oci::{Reference, ReferenceError};
use crate::image::pull::{Options, PullError, pull};
use crate::image::registry::{Access, Address, Limits, Login, Progress, Secret, Silent};
use crate::image::store::{Observer, Quiet};

/// The longest password on stdin, in bytes.
const MAX_PASSWORD: u64 = 16 << 10;

pub(super) const AFTER: &str = "\
REFERENCE is [REGISTRY/]REPOSITORY[:TAG][@sha256:DIGEST]; without a registry it is docker.io's. Of a multi-platform image that
of this machine is taken. User and password may also stand in CREEL_REGISTRY_USER and CREEL_REGISTRY_PASSWORD, or in a file
that docker login or podman login wrote ($REGISTRY_AUTH_FILE, $DOCKER_CONFIG/config.json, ~/.docker/config.json).
HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR are honoured. This machine (localhost) is asked by plain http, unless
--ca is given. A pull that was interrupted goes on where it was when it is given again.

Exit code: 0; 125 creel or the host failed; 126 refused (usage, registry, login, a damaged or hostile image).

Examples:
  creel image pull python:3.11-slim
  creel image pull registry.example:5000/team/data:v1 --user anna --password-stdin < password
  creel image pull localhost:5000/data --name data:v1";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to pull
    reference: OsString,
    /// What to call it [default: the reference as it is]
    #[arg(long, value_name = "NAME[:TAG]")]
    name: Option<OsString>,
    /// The user at the registry
    #[arg(long, value_name = "USER[:PASSWORD]")]
    user: Option<OsString>,
    /// Read the password from standard input
    #[arg(long, requires = "user")]
    password_stdin: bool,
    /// Speak plain http, without any protection, also to other machines
    #[arg(long)]
    plain_http: bool,
    /// Certificate authorities (PEM) to trust besides those of this host
    #[arg(long, value_name = "FILE")]
    ca: Option<OsString>,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn main(args: Args) -> Result<String, Refusal> {
    let reference = parse("REFERENCE", &args.reference)?;
    let name = args.name.as_deref().map(|n| parse("--name", n)).transpose()?;
    if name.as_ref().is_some_and(|n| n.digest.is_some()) {
        return Err(usage("--name: a digest can't be given, it is what the image is"));
    }
    let ca: Option<PathBuf> = args.ca.as_deref().map(|c| path("--ca", c)).transpose()?.map(Into::into);
    let login = login(&args, &Address::of(&reference, args.plain_http, ca.is_some()))?;
    let store = store()?;
    let bar = (!args.quiet && std::io::stderr().is_terminal()).then(|| Rc::new(Bar::new()));
    let progress: &dyn Progress = match &bar {
        Some(bar) => &**bar,
        None => &Silent,
    };
    let observer: Rc<dyn Observer> = match &bar {
        Some(bar) => Rc::<Bar>::clone(bar),
        None => Rc::new(Quiet),
    };
    let access = Access { login, plain_http: args.plain_http, ca, limits: Limits::default() };
    let installed = pull(&store, &reference, &Options { access, name, progress, observer })?;
    let bytes = store.facts(&installed.manifest)?.size;
    Ok(format!("{}  {}  {}\n", installed.name, installed.manifest.short(), size(bytes)))
}

fn parse(what: &str, value: &OsStr) -> Result<Reference, Refusal> {
    text(what, value)?.parse().map_err(|e: ReferenceError| usage(format!("{what}: {e}")))
}

impl From<PullError> for Refusal {
    fn from(error: PullError) -> Refusal {
        match error {
            PullError::Store(e) => e.into(),
            PullError::Registry(e) => Refusal::new(e.code(), e.to_string()),
        }
    }
}

/// Of the command line, or else of the environment or a file.
fn login(args: &Args, address: &Address) -> Result<Option<Login>, Refusal> {
    let credentials = |message: String| Refusal::new("image.registry_credentials", message);
    let Some(user) = args.user.as_deref().map(|u| text("--user", u)).transpose()? else {
        let (login, notes) = Login::find(address).map_err(|e| credentials(e.to_string()))?;
        for note in notes {
            eprintln!("creel: {note}");
        }
        return Ok(login);
    };
    let (user, password) = match (user.split_once(':'), args.password_stdin) {
        (Some(_), true) => {
            return Err(credentials("the password is given twice: in --user and on stdin".to_owned()));
        }
        (Some((user, password)), false) => {
            eprintln!(
                "creel: a password on the command line is seen by every user of this host (in `ps`); --password-stdin hides it"
            );
            (user, password.to_owned())
        }
        (None, true) => (user, password_on_stdin().map_err(credentials)?),
        (None, false) => match std::env::var("CREEL_REGISTRY_PASSWORD") {
            Ok(password) if !password.is_empty() => (user, password),
            _ => {
                let message =
                    "--user without a password: add --password-stdin, or set CREEL_REGISTRY_PASSWORD";
                return Err(credentials(message.to_owned()));
            }
        },
    };
    Login::new(user, Secret::new(password)).map(Some).map_err(|e| credentials(e.to_string()))
}

/// All of stdin, without the line's end.
fn password_on_stdin() -> Result<String, String> {
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_PASSWORD + 1)
        .read_to_string(&mut text)
        .map_err(|e| format!("can't read the password on stdin: {e}"))?;
    let password = text.strip_suffix('\n').map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t));
    if text.len() as u64 > MAX_PASSWORD || password.contains('\n') {
        return Err("what is on stdin is no password: more than one line, or more than 16 KiB".into());
    }
    if password.is_empty() { Err("the password on stdin is empty".into()) } else { Ok(password.to_owned()) }
}

/// One bar for all that is to come.
#[derive(Debug)]
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {msg}"));
        bar.set_message("asking the registry");
        bar.tick();
        Bar(bar)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress for Bar {
    fn begin(&self, bytes: u64, blobs: usize) {
        self.0.set_length(bytes);
        self.0.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
        self.0.set_message(format!("{blobs} to download"));
    }

    fn received(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn discarded(&self, bytes: u64) {
        self.0.dec(bytes);
    }

    fn end(&self) {
        self.0.set_style(style("{spinner} {msg}"));
    }
}

impl Observer for Bar {
    fn phase(&self, text: &str) {
        self.0.set_message(text.to_owned());
        self.0.tick();
    }

    fn total(&self, _: u64) {}

    fn read(&self, _: u64) {
        self.0.tick();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
