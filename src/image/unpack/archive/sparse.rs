//! Maps of sparse files: old GNU (type `S`) and GNU 1.0 (PAX).

use super::super::error::{Fault, Rule};
use super::header::{Block, number};

/// The most pieces of data. A map is held in memory, and read before its file.
const MAX_PIECES: usize = 10_000;

/// Where the data of a sparse file belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::image) struct Sparse {
    /// Offset and length of each piece, ascending.
    pub pieces: Vec<(u64, u64)>,
    /// The size of the file, its holes included.
    pub size: u64,
}

impl Sparse {
    pub fn new(size: u64) -> Sparse {
        Sparse { pieces: Vec::new(), size }
    }

    pub fn push(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        if self.pieces.len() == MAX_PIECES {
            // CVE-2025-58183
            return Fault::refused(Rule::Limit, "it is a sparse file of more than 10000 pieces");
        }
        let from = self.pieces.last().map_or(0, |(offset, length)| offset + length);
        if offset < from || offset.checked_add(length).is_none_or(|end| end > self.size) {
            return malformed("the map of the sparse file has pieces that overlap or are outside the file");
        }
        self.pieces.push((offset, length));
        Ok(())
    }

    /// Adds the places of an old GNU map, up to the first unused one.
    pub fn push_places(&mut self, places: &[u8]) -> Result<(), Fault> {
        for place in places.chunks_exact(24) {
            // Some readers look at the one number for the end, some at the other.
            match (place[0], place[12]) {
                (0, 0) => break,
                (0, _) | (_, 0) => return malformed("the map of the sparse file has half a piece"),
                _ => {}
            }
            self.push(number(&place[..12], "sparse map")?, number(&place[12..], "sparse map")?)?;
        }
        Ok(())
    }

    /// Adds a block of an old GNU map that follows the header; whether one more follows.
    pub fn push_block(&mut self, block: &Block) -> Result<bool, Fault> {
        self.push_places(&block[..504])?;
        Ok(block[504] != 0)
    }

    /// `stored` bytes are in the archive: as many as the pieces have together?
    pub fn check(&self, stored: u64) -> Result<(), Fault> {
        if self.pieces.iter().map(|(_, length)| length).sum::<u64>() != stored {
            return malformed("the map of the sparse file does not fit the size of its data");
        }
        Ok(())
    }
}

/// Reads the map at the beginning of a GNU 1.0 file: lines of decimal numbers, the count first, filled up to a block.
#[derive(Debug)]
pub(super) struct Lines {
    sparse: Sparse,
    count: Option<u64>,
    offset: Option<u64>,
    /// The number that is being read, and how many digits it has.
    number: u64,
    digits: u32,
}

impl Lines {
    pub fn new(size: u64) -> Lines {
        Lines { sparse: Sparse::new(size), count: None, offset: None, number: 0, digits: 0 }
    }

    /// Takes one block; the map if this was its last. The rest of the block is filling.
    pub fn push(&mut self, block: &Block) -> Result<Option<Sparse>, Fault> {
        for &byte in block {
            match byte {
                b'0'..=b'9' if self.digits < 18 => {
                    self.number = self.number * 10 + u64::from(byte - b'0');
                    self.digits += 1;
                }
                b'\n' if self.digits > 0 => {
                    let number = std::mem::take(&mut self.number);
                    self.digits = 0;
                    match (self.count, self.offset.take()) {
                        (None, _) => self.count = Some(number),
                        (_, None) => self.offset = Some(number),
                        (_, Some(offset)) => self.sparse.push(offset, number)?,
                    }
                    if self.offset.is_none() && self.count == Some(self.sparse.pieces.len() as u64) {
                        return Ok(Some(std::mem::replace(&mut self.sparse, Sparse::new(0))));
                    }
                }
                _ => return malformed("the map of the sparse file is not lines of decimal numbers"),
            }
        }
        Ok(None)
    }
}

fn malformed<T>(reason: &'static str) -> Result<T, Fault> {
    Fault::refused(Rule::Malformed, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::unpack::archive::header::BLOCK;

    fn lines(size: u64, text: &str) -> Result<Sparse, Fault> {
        let mut lines = Lines::new(size);
        for part in text.as_bytes().chunks(BLOCK) {
            let mut block = [0; BLOCK];
            block[..part.len()].copy_from_slice(part);
            if let Some(sparse) = lines.push(&block)? {
                return Ok(sparse);
            }
        }
        panic!("not ended: {text:?}")
    }

    #[test]
    fn maps() {
        assert_eq!(lines(10, "2\n0\n3\n10\n0\n").unwrap().pieces, [(0, 3), (10, 0)]);
        assert_eq!(lines(10, "0\n").unwrap(), Sparse::new(10));
        let many: String = (0..3000).map(|n| format!("{}\n1\n", n * 10)).collect();
        assert_eq!(lines(1 << 40, &format!("3000\n{many}")).unwrap().pieces.len(), 3000);
    }

    #[test]
    fn maps_that_are_refused() {
        let many: String = (0..20_000).map(|n| format!("{n}\n0\n")).collect();
        for (size, text, reason) in [
            (10, "1\n0\n11\n", "outside"),
            (10, "1\n11\n0\n", "outside"),
            (10, "2\n5\n2\n6\n1\n", "overlap"),
            (10, "2\n5\n2\n0\n1\n", "overlap"),
            (u64::MAX, "1\n999999999999999999\n9999999999999999999\n", "decimal"),
            (10, "x\n", "decimal"),
            (10, "\n", "decimal"),
            (10, "-1\n", "decimal"),
            (1 << 40, &format!("20000\n{many}"), "10000"),
        ] {
            match lines(size, text) {
                Err(Fault::Refused(_, said)) => assert!(said.contains(reason), "{said}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(lines(10, "1\n0\n5\n").unwrap().check(4).is_err());
        lines(10, "1\n0\n5\n").unwrap().check(5).unwrap();
    }
}
