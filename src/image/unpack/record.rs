//! What is known of a layer beside its files.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::quoted;

/// What the store keeps of an unpacked layer (`layer.json`). Paths are relative to the layer's root, without `./` and without a
/// slash at the end; the root itself is the empty path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRecord {
    /// Paths that the layers below lose; sorted, each once. The layer may hold a new entry at the same path.
    pub whiteouts: Vec<PathBytes>,
    /// Directories of this layer that hide everything the layers below have in them; sorted, each once.
    pub opaque: Vec<PathBytes>,
    /// Directories that had no entry of their own and were made (mode 0755) because something is in them; sorted. Where the
    /// layers below have such a directory its mode and time are to be kept. The root is among them if it had no entry.
    pub implied: Vec<PathBytes>,
    /// Entries in the archive.
    pub entries: u64,
    /// Bytes of the regular files, as they appear.
    pub bytes: u64,
    /// What was left out, for people: `3 setuid bits`. At most about twenty lines.
    pub dropped: Vec<String>,
}

/// A path, which need not be UTF-8. In JSON it is a text, or else a list of its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Json", into = "Json")]
pub struct PathBytes(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Json {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Json> for PathBytes {
    fn from(json: Json) -> PathBytes {
        match json {
            Json::Text(text) => PathBytes(text.into_bytes()),
            Json::Bytes(bytes) => PathBytes(bytes),
        }
    }
}

impl From<PathBytes> for Json {
    fn from(path: PathBytes) -> Json {
        String::from_utf8(path.0).map_or_else(|e| Json::Bytes(e.into_bytes()), Json::Text)
    }
}

impl PathBytes {
    pub(super) fn sorted(set: BTreeSet<Vec<u8>>) -> Vec<PathBytes> {
        set.into_iter().map(PathBytes).collect()
    }
}

impl fmt::Display for PathBytes {
    /// Quoted, escaped and cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::os::unix::ffi::OsStrExt;
        f.write_str(&quoted(std::ffi::OsStr::from_bytes(&self.0)))
    }
}

impl fmt::Debug for PathBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_json() {
        let record = LayerRecord {
            whiteouts: vec![PathBytes("文档/a\nb".into()), PathBytes(b"\xff\x1b".to_vec())],
            opaque: vec![PathBytes(vec![])],
            entries: 3,
            dropped: vec!["3 setuid bits".into()],
            ..LayerRecord::default()
        };
        let json = serde_json::to_string(&record).unwrap();
        assert!(json.contains(r#""whiteouts":["文档/a\nb",[255,27]]"#), "{json}");
        assert_eq!(serde_json::from_str::<LayerRecord>(&json).unwrap(), record);
        assert_eq!(record.whiteouts[1].to_string(), "'\\xFF\\u{1b}'");
    }
}
