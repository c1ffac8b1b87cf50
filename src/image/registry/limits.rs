//! What a registry may send, and how long it may take.

use std::time::Duration;

/// The largest manifest or index, as the distribution specification advises.
pub const MAX_DOCUMENT: u64 = 4 << 20;
/// The largest answer of a token server.
pub const MAX_TOKEN: u64 = 1 << 20;
/// What is read of the body of an error.
pub const MAX_ERROR_BODY: u64 = 64 << 10;
/// The largest layer.
pub const MAX_BLOB: u64 = 32 << 30;
/// The largest image configuration.
pub const MAX_CONFIG: u64 = 8 << 20;
/// Layers of an image, each of which is a file that stays open until all are there. Docker makes at most 127.
pub const MAX_LAYERS: usize = 256;
/// Redirects of one request.
pub const MAX_REDIRECTS: usize = 5;
/// The longest wait that a registry may ask for with `Retry-After`.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Layers that are downloaded at once.
pub const PARALLEL: usize = 2;
/// Bytes of a status line and headers.
pub const MAX_HEADERS: usize = 64 << 10;
/// Manifests and indexes that are fetched to find this machine's.
pub const MAX_DOCUMENTS: usize = 16;
/// A download that brought at least this much since the connection last broke counts as one that gets on.
pub const GETS_ON: u64 = 1 << 20;

/// Times and counts that a caller (a test, mostly) may want otherwise.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Until a name is resolved, and again until a connection stands.
    pub connect: Duration,
    /// Without a single byte.
    pub stall: Duration,
    /// For the headers of an answer, and for the whole body of one that is not a blob.
    pub answer: Duration,
    /// A blob's download must bring [`slowest`](Limits::slowest) bytes in each such time.
    pub pace: Duration,
    /// Bytes in a [`pace`](Limits::pace): 1 KiB a second is slower than any line that is worth waiting for.
    pub slowest: u64,
    /// How often a download is resumed that does not get on, and a request repeated that the registry put off.
    pub retries: u32,
    /// The first pause before a retry; each further one is twice as long, up to [`MAX_RETRY_AFTER`].
    pub backoff: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            pace: Duration::from_secs(60),
            slowest: 60 << 10,
            retries: 5,
            backoff: Duration::from_millis(200),
        }
    }
}

impl Limits {
    /// The pause before retry number `n`, counted from 0.
    pub(super) fn pause(&self, n: u32) -> Duration {
        self.backoff.saturating_mul(1 << n.min(10)).min(MAX_RETRY_AFTER)
    }
}
