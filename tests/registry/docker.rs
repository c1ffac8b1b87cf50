//! The registry of the distribution project (Debian package docker-registry), and skopeo to fill it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use tempfile::TempDir;

/// A registry on a free port of 127.0.0.1, with a storage directory of its own. Ends with the value.
pub struct Docker {
    child: Child,
    reader: Option<JoinHandle<()>>,
    /// `127.0.0.1:43210`
    pub address: String,
    pub dir: TempDir,
    creds: Option<String>,
    tls: bool,
}

/// What a registry is started with.
#[derive(Default)]
pub struct Setup<'a> {
    /// User and password that it asks for (Basic).
    pub login: Option<(&'a str, &'a str)>,
    pub tls: bool,
}

impl Docker {
    pub fn start(setup: &Setup<'_>) -> Docker {
        let dir = TempDir::with_prefix("creel-test-registry-").unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("storage")).unwrap();
        let mut config = format!(
            "version: 0.1\nlog: {{level: info, formatter: text, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {:?}}}}}\n",
            at("storage")
        );
        // Port 0: the kernel chooses, the log tells.
        let mut http = "http: {addr: \"127.0.0.1:0\"".to_owned();
        if setup.tls {
            certificates(dir.path());
            http.push_str(&format!(
                ", tls: {{certificate: {:?}, key: {:?}}}",
                at("server.pem"),
                at("server.key")
            ));
        }
        config.push_str(&format!("{http}}}\n"));
        if let Some((user, password)) = setup.login {
            let entry = output(Command::new("htpasswd").args(["-Bbn", user, password]), "apache2-utils");
            fs::write(at("htpasswd"), entry).unwrap();
            config.push_str(&format!("auth: {{htpasswd: {{realm: creel, path: {:?}}}}}\n", at("htpasswd")));
        }
        fs::write(at("config.yml"), config).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(at("config.yml"))
            .env_remove("REGISTRY_AUTH_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("docker-registry (Debian package docker-registry): {e}"));
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            let n = log.read_line(&mut line).unwrap();
            seen.push_str(&line);
            assert!(n > 0, "docker-registry ended: {seen}");
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
            }
        };
        // Its log must not fill the pipe.
        let reader = std::thread::spawn(move || drop(log.read_to_end(&mut Vec::new())));
        let creds = setup.login.map(|(user, password)| format!("{user}:{password}"));
        Docker { child, reader: Some(reader), address, dir, creds, tls: setup.tls }
    }

    /// `127.0.0.1:43210/name`
    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// The authority that signed its certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Copies the tag `latest` of an OCI layout here; of an index, all of it.
    pub fn fill(&self, layout: &Path, name: &str) {
        let mut command = Command::new("skopeo");
        command.args(["--insecure-policy", "copy", "--quiet", "--all", "--dest-tls-verify=false"]);
        if let Some(creds) = &self.creds {
            command.arg("--dest-creds").arg(creds);
        }
        command.arg(format!("oci:{}:latest", layout.display())).arg(format!("docker://{}", self.name(name)));
        output(&mut command, "skopeo");
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// An authority, `ca.pem`, and a certificate for 127.0.0.1 and localhost, `server.pem` and `server.key`.
pub fn certificates(dir: &Path) {
    let openssl = |args: &[&str]| {
        output(Command::new("openssl").current_dir(dir).args(args), "openssl");
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let mut ca =
        vec!["req", "-x509", "-subj", "/CN=creel test authority", "-keyout", "ca.key", "-out", "ca.pem"];
    ca.extend(key);
    openssl(&ca);
    let mut request = vec!["req", "-subj", "/CN=registry", "-keyout", "server.key", "-out", "server.csr"];
    request.extend(&key[..5]);
    openssl(&request);
    fs::write(dir.join("ext"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    let sign = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out server.pem";
    openssl(&sign.split(' ').collect::<Vec<_>>());
}

fn output(command: &mut Command, package: &str) -> Vec<u8> {
    let out = command.stdin(Stdio::null()).output();
    let out = out.unwrap_or_else(|e| panic!("{command:?} (Debian package {package}): {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// An https server (of openssl) with one answer, given whole.
pub struct Answers {
    child: Child,
    /// `127.0.0.1:43210`
    pub address: String,
    dir: TempDir,
}

impl Answers {
    pub fn start(path: &str, answer: &str) -> Answers {
        let dir = TempDir::with_prefix("creel-test-registry-").unwrap();
        certificates(dir.path());
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, answer).unwrap();
        let mut child = Command::new("openssl")
            .args([
                "s_server",
                "-accept",
                "127.0.0.1:0",
                "-HTTP",
                "-cert",
                "server.pem",
                "-key",
                "server.key",
            ])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.as_mut().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "openssl s_server ended");
            if let Some(address) = line.strip_prefix("ACCEPT ") {
                break address.trim().to_owned();
            }
        };
        Answers { child, address, dir }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
