//! What was left out of a layer, counted.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::text::quoted;

/// So many kinds of extended attributes are named; the rest are counted together.
const MAX_ATTRIBUTES: usize = 10;

/// A kind of entry that was left out: one, and many.
pub(super) type Left = (&'static str, &'static str);

/// Counts of what was left out.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub setuid: u64,
    pub setgid: u64,
    /// Kinds of entries → the first one's name, and how many more.
    entries: BTreeMap<Left, (Vec<u8>, u64)>,
    attributes: BTreeMap<Vec<u8>, u64>,
    other_attributes: u64,
}

impl Notes {
    /// An entry of this kind was left out.
    pub fn entry(&mut self, kind: Left, path: &[u8]) {
        self.entries.entry(kind).and_modify(|(_, more)| *more += 1).or_insert_with(|| (path.to_vec(), 0));
    }

    /// An extended attribute was left out.
    pub fn attribute(&mut self, name: &[u8]) {
        if let Some(count) = self.attributes.get_mut(name) {
            *count += 1;
        } else if self.attributes.len() < MAX_ATTRIBUTES {
            self.attributes.insert(name.to_vec(), 1);
        } else {
            self.other_attributes += 1;
        }
    }

    /// For people, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (count, what) in [(self.setuid, "setuid bit"), (self.setgid, "setgid bit")] {
            if count > 0 {
                lines.push(counted(count, what));
            }
        }
        for ((one, many), (first, more)) in &self.entries {
            let first = quoted(OsStr::from_bytes(first));
            lines.push(match more {
                0 => format!("{first}, {one}"),
                more => format!("{first} and {more} more {many}"),
            });
        }
        for (name, count) in &self.attributes {
            lines.push(format!(
                "{} {}",
                counted(*count, "extended attribute"),
                quoted(OsStr::from_bytes(name))
            ));
        }
        if self.other_attributes > 0 {
            lines.push(counted(self.other_attributes, "other extended attribute"));
        }
        lines
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_whatever_there_was() {
        let mut notes = Notes { setuid: 3, setgid: 1, ..Notes::default() };
        for name in ["dev/null", "dev/zero", "dev/\x1btty"] {
            notes.entry(("a device node", "device nodes"), name.as_bytes());
        }
        notes.entry(("a FIFO", "FIFOs"), b"run/\x1b[2J");
        for n in 0..1000 {
            notes.attribute(format!("user.{n:03}").as_bytes());
            notes.attribute(b"security.capability");
        }
        let lines = notes.lines();
        assert_eq!(lines[0], "3 setuid bits");
        assert_eq!(lines[1], "1 setgid bit");
        assert!(lines.contains(&"'dev/null' and 2 more device nodes".to_owned()), "{lines:?}");
        assert!(lines.contains(&"'run/\\u{1b}[2J', a FIFO".to_owned()), "{lines:?}");
        assert!(lines.contains(&"1000 extended attributes 'security.capability'".to_owned()), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "991 other extended attributes");
        assert!(lines.len() <= 20);
        assert!(Notes::default().lines().is_empty());
    }
}
