//! Streams that are small and become large, or never end.

use std::io::{Read, repeat};

use creel::image::oci::Digest;
use creel::image::unpack::Limits;

use crate::support::*;

/// Asserted of the whole process, which may have run other tests too.
const MEMORY: u64 = 100 << 20;

/// Counts what is read of it.
struct Counted<R>(R, u64);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(buf)?;
        self.1 += n as u64;
        Ok(n)
    }
}

/// The same bytes again and again.
struct Again {
    part: Vec<u8>,
    at: usize,
}

impl Read for Again {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = buf.len().min(self.part.len() - self.at);
        buf[..n].copy_from_slice(&self.part[self.at..self.at + n]);
        self.at = (self.at + n) % self.part.len();
        Ok(n)
    }
}

fn again(part: Vec<u8>) -> Again {
    Again { part, at: 0 }
}

#[test]
fn decompression_bombs() {
    let head = Head::new(b'0', "bomb").size(4 << 30).bytes();
    let bomb = |zeros: u64| {
        let mut tar = head.clone();
        tar.resize(tar.len() + zeros as usize, 0);
        tar
    };
    for stream in [gz(&bomb(68 << 20)), zst(&bomb(68 << 20))] {
        refused(&stream, "image.layer_limit", &["entry 'bomb'", "300 times", "bomb"]);
    }
    // Zeros behind the end of the archive are a bomb too.
    let mut tail = tar(&[file("a", "x")]);
    tail.resize(tail.len() + (68 << 20), 0);
    refused(&gz(&tail), "image.layer_limit", &["300 times"]);
    // And what is below the free size is none, whatever its ratio.
    let small = tar(&[file("a", vec![0; 30 << 20])]);
    Trial::new().unpack(&gz(&small)).unwrap();
}

#[test]
fn damaged_compression() {
    let good = tar(&[file("a", (0..200_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect::<Vec<_>>())]);
    for (stream, format) in [(gz(&good), "gzip"), (zst(&good), "zstd")] {
        let cut = &stream[..stream.len() - 9];
        refused(cut, "image.layer_compression", &["entry 'a'", format, "is cut"]);
        let tail = [&stream[..], b"trailing garbage"].concat();
        refused(&tail, "image.layer_compression", &[format]);
        let mut damaged = stream.clone();
        damaged[stream.len() / 2] ^= 0xff;
        damaged[stream.len() / 2 + 1] ^= 0xff;
        match Trial::new().unpack(&damaged) {
            Err(error) => assert!(error.to_string().contains("'a'"), "{error}"),
            // By default zstd has no checksum: this is what the digest is for.
            Ok(done) => assert!(format == "zstd" && done.diff_id != Digest::of(&good)),
        }
    }
    // All members and all frames are one stream.
    for compress in [gz as fn(&[u8]) -> Vec<u8>, zst] {
        let parts: Vec<u8> = good.chunks(70_000).flat_map(compress).collect();
        let t = Trial::new();
        assert_eq!(t.unpack(&parts).unwrap().diff_id, Digest::of(&good));
        assert_eq!(t.stat("a").len(), 200_000);
    }
}

/// A frame's header alone makes a decoder take the memory of its window.
#[test]
fn a_window_larger_than_memory_allows() {
    let frame = |log| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        std::io::Write::write_all(&mut encoder, &tar(&[file("a", "x")])).unwrap();
        encoder.finish().unwrap()
    };
    Trial::new().unpack(&frame(26)).unwrap();
    for log in [27, 31] {
        refused(&frame(log), "image.layer_compression", &["zstd", "memory"]);
    }
}

#[test]
fn more_bytes_than_the_limit() {
    let limits = Limits { bytes: 10_000, ..Limits::default() };
    let claimed = tar(&[file("a", "x"), Head::new(b'0', "b").size(10_000).bytes()]);
    refused_with(&claimed[..], &limits, "image.layer_limit", &["entry 'b'", "more than 10000 bytes"]);
    // Entries that are no files count as bytes of the stream; it has no end.
    let mut endless = Counted(again(dir("d")), 0);
    let limits = Limits { bytes: 5 << 20, ..Limits::default() };
    refused_with(&mut endless, &limits, "image.layer_limit", &["entry 'd'", "limit of 5242880 bytes"]);
    assert!(endless.1 < 12 << 20, "{} bytes were read", endless.1);
    assert!(Trial::new().unpack_with(&tar(&[file("a", vec![1; 4000])])[..], &limits).is_ok());
}

#[test]
fn more_entries_than_the_limit() {
    let limits = Limits { entries: 3, ..Limits::default() };
    let parts: Vec<_> = (0..4).map(|n| file(format!("f{n}"), "")).collect();
    Trial::new().unpack_with(&tar(&parts[..3])[..], &limits).unwrap();
    refused_with(&tar(&parts)[..], &limits, "image.layer_limit", &["entry 'f3'", "more than 3 entries"]);
    // What leaves nothing behind counts too.
    for entry in [file(".wh.x", ""), Head::new(b'3', "dev/x").bytes(), file(".wh..wh.aufs", "")] {
        let stream = tar(&[&entry[..], &entry, &entry, &entry]);
        refused_with(&stream[..], &limits, "image.layer_limit", &["more than 3 entries"]);
    }
}

#[test]
fn a_million_entries_beyond_the_limit_are_not_read() {
    let limits = Limits { entries: 1000, ..Limits::default() };
    let mut stream = Counted(again(file("f", "")).take(512 * 1_001_000), 0);
    refused_with(&mut stream, &limits, "image.layer_limit", &["entry 'f'", "more than 1000 entries"]);
    assert!(stream.1 < 8 << 20, "{} bytes were read", stream.1);
}

#[test]
fn headers_for_all_entries_without_end() {
    let global = Head::new(b'g', "global").content(record("comment", "x")).bytes();
    let limits = Limits { entries: 1000, ..Limits::default() };
    let mut stream = Counted(again(global), 0);
    refused_with(&mut stream, &limits, "image.layer_limit", &["'global'", "more global PAX headers"]);
    assert!(stream.1 < 8 << 20, "{} bytes were read", stream.1);
}

#[test]
fn names_to_remember_are_bounded() {
    let limits = Limits { names: 20_000, ..Limits::default() };
    let long = "n".repeat(90);
    for entries in [
        (0..200).map(|n| dir(format!("{long}{n}"))).collect::<Vec<_>>(),
        (0..200).map(|n| file(format!(".wh.{long}{n}"), "")).collect(),
        (0..200).map(|n| file(format!("d/{n}/.wh..wh..opq"), "")).collect(),
        (0..300).map(|n| file(format!("d{n}/{long}"), "")).collect(),
    ] {
        refused_with(&tar(&entries)[..], &limits, "image.layer_limit", &["entry '", "too many directories"]);
        Trial::new().unpack(&tar(&entries)).unwrap();
    }
}

#[test]
fn memory_is_bounded() {
    // A file of half a GiB that compresses badly enough, an endless name, an endless map: none is held.
    let head = Head::new(b'0', "large").size(512 << 20).bytes();
    let limits = Limits { bytes: 1 << 30, ..Limits::default() };
    let before = peak_memory();
    let t = Trial::new();
    let stream = head.chain_all(repeat(7).take(512 << 20));
    t.unpack_with(stream, &limits).unwrap();
    assert_eq!(t.stat("large").len(), 512 << 20);
    for kind in [b'L', b'x', b'g'] {
        let endless = Head::new(kind, "long").size(1 << 30).bytes().chain_all(repeat(b'a'));
        refused_with(endless, &limits, "image.layer_limit", &["'long'", "1 MiB"]);
    }
    let grown = peak_memory() - before;
    assert!(grown < MEMORY, "{grown} bytes");
}

trait ChainAll {
    fn chain_all<R: Read>(self, next: R) -> std::io::Chain<std::io::Cursor<Vec<u8>>, R>;
}

impl ChainAll for Vec<u8> {
    fn chain_all<R: Read>(self, next: R) -> std::io::Chain<std::io::Cursor<Vec<u8>>, R> {
        std::io::Cursor::new(self).chain(next)
    }
}
