//! Whatever the bytes are: no panic, nothing outside the target.

use creel::image::unpack::Limits;
use proptest::prelude::*;

use crate::support::*;

const LIMITS: Limits = Limits { bytes: 1 << 20, entries: 200, ratio: 300, names: 100_000 };

/// An archive with one of each.
fn sample() -> Vec<u8> {
    tar(&[
        dir("./"),
        dir("d"),
        file("d/a", "content of a"),
        symlink("d/out", "../../outside"),
        hard_link("b", "d/a"),
        pax(&[("path", "报告/长.txt"), ("mtime", "1700000000.5"), ("SCHILY.xattr.user.x", "y")]),
        file("x", "pax"),
        gnu_long(b'L', "long/".repeat(40) + "name"),
        Head::new(b'0', "x").magic(GNU).content("gnu").bytes(),
        file("d/.wh.gone", ""),
        file("e/.wh..wh..opq", ""),
        Head::new(b'3', "dev/null").bytes(),
        pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.name", "sparse"),
            ("GNU.sparse.realsize", "9000"),
        ]),
        file("x", [padded(b"1\n8000\n5\n"), b"hello".to_vec()].concat()),
    ])
}

/// Makes the checksums right again, so that more than the checksum is tried.
fn mend(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        if block[257..262] == *b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

/// Unpack asserts that all around the target is as before.
fn try_it(stream: &[u8]) {
    let t = Trial::in_memory();
    let _ = t.unpack_with(stream, &LIMITS);
    t.clear();
}

#[test]
fn the_sample_itself_is_good() {
    Trial::new().unpack_with(&sample()[..], &LIMITS).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes(stream in prop::collection::vec(any::<u8>(), 0..3000)) {
        try_it(&stream);
    }

    #[test]
    fn one_header_of_any_bytes(mut block in prop::collection::vec(any::<u8>(), 1536), kind in prop::sample::select(b"0123456789LKxgSVD\0".to_vec())) {
        block[257..265].copy_from_slice(POSIX);
        block[156] = kind;
        block[100..148].copy_from_slice(b"0000644\x000000000\x000000000\x0000000001000\x0000000000000\0");
        mend(&mut block[..512]);
        try_it(&block);
    }

    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut archive = sample();
        for (at, byte) in changes {
            let at = at.index(archive.len());
            archive[at] = byte;
        }
        mend(&mut archive);
        try_it(&archive);
    }

    #[test]
    fn moved_blocks(from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), n in 1usize..5) {
        let archive = sample();
        let blocks: Vec<_> = archive.chunks(512).collect();
        let (from, to) = (from.index(blocks.len()), to.index(blocks.len()));
        let moved = &blocks[from..(from + n).min(blocks.len())];
        let mixed = [&blocks[..to], moved, &blocks[to..]].concat().concat();
        try_it(&mixed);
        try_it(&archive[..to * 512]);
    }

    #[test]
    fn damaged_compression(at in any::<prop::sample::Index>(), byte in any::<u8>(), kind in any::<bool>()) {
        let mut stream = if kind { gz(&sample()) } else { zst(&sample()) };
        let at = at.index(stream.len());
        stream[at] = byte;
        try_it(&stream);
    }
}
