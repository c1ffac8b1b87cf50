//! A registry that misbehaves as a test wants it to: HTTP by hand on a socket.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::image::{INDEX, MANIFEST, TestImage, digest};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// With the query: `/v2/x/manifests/latest`.
    pub path: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The beginning of the range asked for.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }

    pub fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }
}

type Writer = Box<dyn FnOnce(&mut TcpStream) -> std::io::Result<()> + Send>;

/// What is written back.
pub enum Reply {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Anything at all; the connection is closed after it. An error (the client went away) ends it.
    Raw(Writer),
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply::Answer { status, headers: Vec::new(), body: body.into() }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Reply {
        if let Reply::Answer { headers, .. } = &mut self {
            headers.push((name.into(), value.into()));
        }
        self
    }

    pub fn redirect(to: impl Into<String>) -> Reply {
        Reply::new(307, "").with("Location", to)
    }

    pub fn raw(write: impl FnOnce(&mut TcpStream) -> std::io::Result<()> + Send + 'static) -> Reply {
        Reply::Raw(Box::new(write))
    }

    fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        match self {
            Reply::Answer { status, headers, body } => {
                let mut head = format!("HTTP/1.1 {status} x\r\nConnection: close\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
                stream.write_all(head.as_bytes())?;
                stream.write_all(&body)
            }
            Reply::Raw(write) => write(stream),
        }
    }
}

/// The honest part: manifests and blobs as they are, ranges too.
#[derive(Debug, Default, Clone)]
pub struct Site {
    manifests: HashMap<String, (&'static str, Vec<u8>)>,
    blobs: HashMap<String, Vec<u8>>,
}

impl Site {
    /// An image under the tag `latest`, with all its blobs.
    pub fn of(image: &TestImage) -> Site {
        let mut site = Site::default();
        site.add(image);
        site.manifests.insert("latest".into(), (MANIFEST, image.manifest.clone()));
        site
    }

    pub fn add(&mut self, image: &TestImage) {
        self.manifests.insert(image.digest(), (MANIFEST, image.manifest.clone()));
        for blob in image.blobs() {
            self.blobs.insert(digest(blob), blob.clone());
        }
    }

    /// An index, by digest and perhaps under a tag.
    pub fn add_index(&mut self, index: &[u8], tag: Option<&str>) {
        for name in [Some(digest(index)), tag.map(str::to_owned)].into_iter().flatten() {
            self.manifests.insert(name, (INDEX, index.to_vec()));
        }
    }

    pub fn answer(&self, request: &Request) -> Reply {
        let name = request.path.rsplit('/').next().unwrap();
        if request.is_blob() {
            let Some(blob) = self.blobs.get(name) else { return unknown("BLOB_UNKNOWN") };
            return match request.from() {
                Some(from) if from < blob.len() => Reply::new(206, &blob[from..])
                    .with("Content-Range", format!("bytes {from}-{}/{}", blob.len() - 1, blob.len())),
                Some(_) => Reply::new(416, ""),
                None => Reply::new(200, blob.clone()),
            };
        }
        match self.manifests.get(name) {
            Some((media_type, bytes)) => Reply::new(200, bytes.clone())
                .with("Content-Type", *media_type)
                .with("Docker-Content-Digest", digest(bytes)),
            None => unknown("MANIFEST_UNKNOWN"),
        }
    }
}

fn unknown(code: &str) -> Reply {
    Reply::new(404, format!(r#"{{"errors":[{{"code":"{code}","message":"nothing of that name"}}]}}"#))
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A listening registry; ends with the value.
pub struct Fake {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let (seen, ends, handler): (_, _, Arc<Handler>) =
            (Arc::clone(&requests), Arc::clone(&stop), Arc::new(handler));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (seen, handler) = (Arc::clone(&seen), Arc::clone(&handler));
                std::thread::spawn(move || serve(stream, &seen, &*handler));
            }
        });
        Fake { address, requests, stop, thread: Some(thread) }
    }

    /// Serves a site as it is.
    pub fn honest(site: Site) -> Fake {
        Fake::start(move |request| site.answer(request))
    }

    /// `127.0.0.1:43210/team/x`
    pub fn name(&self) -> String {
        format!("{}/team/x", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn blob_requests(&self) -> usize {
        self.requests().iter().filter(|r| r.is_blob()).count()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Request>>, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.trim_end().split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let request = Request { path, headers };
    seen.lock().unwrap().push(request.clone());
    // The client may go away in the middle: that is its right.
    let _ = handler(&request).write(&mut stream);
    let _ = stream.shutdown(std::net::Shutdown::Write);
}
