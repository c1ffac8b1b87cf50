//! The kinds of steps: which script carries them out, and with what.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::layer::Owners;
use super::recipe::{Kind, Step};
use crate::sandbox::spec::Shown;

/// uv, which installs Python packages: its version, and the SHA-256 of its wheel for each machine.
pub const UV_VERSION: &str = "0.13.9";
const UV_WHEELS: [(&str, &str); 2] = [
    ("x86_64", "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"),
    ("aarch64", "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe"),
];

/// Certificates of the authorities, where distributions keep them.
const CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The caller's variables that reach the steps with network: proxies, and the addresses of mirrors.
const PASSED: [&str; 13] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "PIP_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "npm_config_registry",
    "NPM_CONFIG_REGISTRY",
];

const FETCH: &str = include_str!("steps/fetch.py");

/// How a step is carried out.
pub struct Way<'a> {
    pub script: &'a str,
    pub args: Vec<String>,
    pub inputs: Vec<(String, Vec<u8>)>,
    pub network: bool,
    pub owners: fn(u32) -> Owners,
    /// Needs uv at `/build/uv`.
    pub uv: bool,
}

/// The way of `step`; `None` for one that needs no sandbox.
pub fn way(step: &Step) -> Option<Way<'_>> {
    let input = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let root: fn(u32) -> Owners = |_| Owners::Root;
    Some(match &step.kind {
        Kind::Files { .. } => return None,
        Kind::Apt { packages } => Way {
            script: include_str!("steps/apt.sh"),
            args: packages.clone(),
            inputs: Vec::new(),
            network: true,
            // Debian's packages give files to groups of theirs.
            owners: Owners::From,
            uv: false,
        },
        Kind::Pip { requirements, prune } => Way {
            script: include_str!("steps/pip.sh"),
            args: prune.clone(),
            inputs: vec![input("requirements.txt", requirements)],
            network: true,
            owners: root,
            uv: true,
        },
        Kind::Npm { package, lock } => Way {
            script: include_str!("steps/npm.sh"),
            args: Vec::new(),
            inputs: vec![
                input("package.json", package),
                input("package-lock.json", lock),
                input("fetch.py", FETCH),
            ],
            network: true,
            owners: root,
            uv: false,
        },
        Kind::Run { script, network } => {
            Way { script, args: Vec::new(), inputs: Vec::new(), network: *network, owners: root, uv: false }
        }
    })
}

/// Fetches uv into `/outputs/uv`; `None` on a machine that it is not pinned for.
pub fn fetch_uv() -> Option<Way<'static>> {
    let (_, sha256) = UV_WHEELS.iter().find(|(machine, _)| *machine == env::consts::ARCH)?;
    let member = format!("uv-{UV_VERSION}.data/scripts/uv");
    let args = ["pypi", "uv", UV_VERSION, sha256, &member, "/outputs/uv"];
    Some(Way {
        script: "exec python3 /inputs/fetch.py \"$@\"\n",
        args: args.map(str::to_owned).to_vec(),
        inputs: vec![("fetch.py".to_owned(), FETCH.as_bytes().to_vec())],
        network: true,
        owners: |_| Owners::Root,
        uv: false,
    })
}

/// Prints the Python packages of the image into `/outputs/installed-packages.json`.
pub fn list_packages() -> Way<'static> {
    Way {
        script: "if command -v python3 >/dev/null; then python3 /inputs/packages.py; else echo '{}'; fi \
                 >/outputs/installed-packages.json\n",
        args: Vec::new(),
        inputs: vec![("packages.py".to_owned(), include_bytes!("steps/packages.py").to_vec())],
        network: false,
        owners: |_| Owners::Root,
        uv: false,
    }
}

/// Certificates, host names and variables for a step with network: as inputs, as files over those of the image, and as environment.
pub struct Network {
    pub inputs: Vec<(String, Vec<u8>)>,
    pub shown: Vec<Shown>,
    pub env: Vec<(String, String)>,
}

impl Network {
    /// What this host and the caller's environment have.
    ///
    /// # Errors
    /// When a file that is there can't be read.
    pub fn of_host() -> io::Result<Network> {
        let mut network = Network { inputs: Vec::new(), shown: Vec::new(), env: Vec::new() };
        let named = env::var("SSL_CERT_FILE").ok();
        let files = named.as_deref().into_iter().chain(CERTIFICATES);
        if let Some(file) = files.into_iter().find(|f| Path::new(f).is_file()) {
            network.inputs.push(("ca-certificates.crt".to_owned(), std::fs::read(file)?));
            for key in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE"] {
                network.env.push((key.to_owned(), "/inputs/ca-certificates.crt".to_owned()));
            }
        }
        for target in ["/etc/resolv.conf", "/etc/hosts"] {
            if let Ok(file) = File::open(target) {
                network.shown.push(Shown { source: OwnedFd::from(file), target: target.to_owned() });
            }
        }
        let passed = PASSED.iter().filter_map(|key| Some(((*key).to_owned(), env::var(key).ok()?)));
        network.env.extend(passed);
        Ok(network)
    }
}
