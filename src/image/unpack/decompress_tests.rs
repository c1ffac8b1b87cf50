use std::io::Write;

use super::*;

fn gz(data: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

fn zst(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

fn all(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decompress(data)?.read_to_end(&mut out)?;
    Ok(out)
}

fn error(data: &[u8]) -> StreamError {
    StreamError::of(&all(data).unwrap_err()).unwrap()
}

/// Data that doesn't compress well.
fn noise(n: usize) -> Vec<u8> {
    let mut x = 1u32;
    std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x as u8
    })
    .take(n)
    .collect()
}

/// Gives one byte at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(1);
        self.0.read(&mut buf[..n])
    }
}

#[test]
fn the_kind_is_found() {
    let data = noise(300_000);
    for (compression, stream) in
        [(Compression::None, data.clone()), (Compression::Gzip, gz(&data)), (Compression::Zstd, zst(&data))]
    {
        let mut reader = decompress(&stream[..]).unwrap();
        assert_eq!(reader.compression(), compression);
        let mut out = Vec::new();
        reader.read_to_end(&mut out).unwrap();
        assert!(out == data, "{compression:?}");
        assert_eq!(reader.consumed(), stream.len() as u64);
        let mut out = Vec::new();
        decompress(Slow(&stream)).unwrap().read_to_end(&mut out).unwrap();
        assert!(out == data, "{compression:?}, byte by byte");
    }
    for short in [&b""[..], b"a", b"\x1f", b"\x28\xb5\x2f"] {
        assert_eq!(all(short).unwrap(), short);
    }
}

#[test]
fn all_members_and_frames_are_read() {
    let parts: Vec<Vec<u8>> = (0..50).map(|n| noise(n * 997)).collect();
    let whole = parts.concat();
    let members: Vec<u8> = parts.iter().flat_map(|p| gz(p)).collect();
    assert!(all(&members).unwrap() == whole);
    let zeros = [&members[..], &[0; 200_000]].concat();
    assert!(all(&zeros).unwrap() == whole, "zeros behind a gzip stream are filling");
    let skippable = b"\x50\x2a\x4d\x18\x05\0\0\0hello";
    let mut frames = skippable.to_vec();
    for part in &parts {
        frames.extend_from_slice(&zst(part));
        frames.extend_from_slice(skippable);
    }
    assert!(all(&frames).unwrap() == whole);
}

#[test]
fn a_cut_stream_is_an_error_wherever_it_is_cut() {
    for (stream, format) in [(gz(&noise(3000)), "gzip"), (zst(&noise(3000)), "zstd")] {
        for n in 4..stream.len() {
            match error(&stream[..n]) {
                StreamError::Truncated { format: found } if found == format => {}
                other => panic!("{format} cut at {n} of {}: {other:?}", stream.len()),
            }
        }
    }
}

#[test]
fn what_follows_a_stream_is_an_error() {
    for tail in [&b"x"[..], b"\x1f", b"\0\0\0x", b"PK\x03\x04", b"\x1f\x8c"] {
        let stream = [gz(b"data").as_slice(), tail].concat();
        assert_eq!(error(&stream), StreamError::Trailing { format: "gzip" }, "{tail:?}");
        let stream = [zst(b"data").as_slice(), tail].concat();
        assert!(all(&stream).is_err(), "{tail:?}");
    }
    // Far behind, too.
    let stream = [gz(b"data").as_slice(), &[0; 300_000], b"x"].concat();
    assert_eq!(error(&stream), StreamError::Trailing { format: "gzip" });
}

#[test]
fn damage_never_gives_other_bytes() {
    let data = noise(3000);
    let mut with_checksum = zstd::Encoder::new(Vec::new(), 1).unwrap();
    with_checksum.include_checksum(true).unwrap();
    with_checksum.write_all(&data).unwrap();
    for (good, format) in [(gz(&data), "gzip"), (with_checksum.finish().unwrap(), "zstd")] {
        let mut found = 0;
        // Behind the magic: without it the stream would be taken as it is.
        for n in 4..good.len() {
            let mut bad = good.clone();
            bad[n] ^= 0x10;
            match all(&bad) {
                // Some bits mean nothing: the time in a gzip header, the filling of a block's header.
                Ok(out) => assert!(out == data, "{format} with byte {n} changed"),
                Err(e) => found += usize::from(StreamError::of(&e).is_some()),
            }
        }
        assert!(found > good.len() - 20, "{format}: {found} of {}", good.len());
    }
}

#[test]
fn a_bomb_is_stopped() {
    for (bomb, name) in [(gz(&vec![0; 100 << 20]), "gzip"), (zst(&vec![0; 100 << 20]), "zstd")] {
        let mut reader = decompress(&bomb[..]).unwrap();
        let mut buf = vec![0; 64 << 10];
        let mut total = 0;
        let error = loop {
            match reader.read(&mut buf) {
                Ok(0) => panic!("{name}: not stopped"),
                Ok(n) => total += n as u64,
                Err(e) => break StreamError::of(&e).unwrap(),
            }
        };
        assert_eq!(error, StreamError::Ratio { ratio: 300 });
        assert!(
            (Limits::RATIO_FREE - (64 << 10)..=Limits::RATIO_FREE + (64 << 10)).contains(&total),
            "{total}"
        );
        // What the limit is not about: the same with a wider one.
        let mut sink = io::sink();
        let mut reader = decompress(&bomb[..]).unwrap().with_ratio(1_000_000);
        assert_eq!(io::copy(&mut reader, &mut sink).unwrap(), 100 << 20);
    }
}

#[test]
fn a_zstd_window_over_64_mib_is_refused() {
    // A frame header by hand: no single segment, window descriptor exponent 17 (2^27), an empty last raw block.
    let frame = |log: u8| [0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3, 0x01, 0x00, 0x00];
    assert_eq!(all(&frame(26)).unwrap(), b"");
    assert!(matches!(error(&frame(27)), StreamError::Corrupt { format: "zstd", .. }));
}

#[test]
fn a_source_that_fails_is_not_taken_for_damage() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "registry gone"))
        }
    }
    for stream in [gz(&noise(3000)), zst(&noise(3000)), noise(3000)] {
        let mut out = Vec::new();
        let mut reader = decompress((&stream[..1000]).chain(Failing)).unwrap();
        let error = reader.read_to_end(&mut out).unwrap_err();
        assert!(StreamError::of(&error).is_none() && error.to_string() == "registry gone", "{error:?}");
    }
}

#[test]
fn many_empty_members_are_nothing() {
    let member = gz(b"");
    let mut stream = io::Read::take(Repeat { part: &member, at: 0 }, member.len() as u64 * 100_000);
    assert_eq!(io::copy(&mut decompress(&mut stream).unwrap(), &mut io::sink()).unwrap(), 0);
}

struct Repeat<'a> {
    part: &'a [u8],
    at: usize,
}

impl Read for Repeat<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        for byte in buf.iter_mut() {
            *byte = self.part[self.at];
            self.at = (self.at + 1) % self.part.len();
        }
        Ok(buf.len())
    }
}
