//! Unpacks the layer named by CREEL_BENCH_LAYER once and prints the seconds; driven by `benches/unpack.sh`. It is no promise about
//! time, only about memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use creel::image::unpack::{Limits, layer};

/// Bytes: item "Speed" of issue 3.
const MEMORY: u64 = 100 << 20;

#[test]
#[ignore = "a measurement: benches/unpack.sh runs it"]
fn unpack_once() {
    let path = |name| std::env::var_os(name).map(PathBuf::from).expect(name);
    let (blob, into) = (path("CREEL_BENCH_LAYER"), path("CREEL_BENCH_INTO"));
    std::fs::create_dir(&into).unwrap();
    let into = File::open(into).unwrap();
    let start = Instant::now();
    let done = layer(File::open(blob).unwrap(), into.as_fd(), &Limits::default()).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let memory = peak_memory();
    println!("seconds {seconds:.3}");
    println!("memory_mib {}", memory >> 20);
    println!("entries {} bytes {} diff_id {}", done.record.entries, done.record.bytes, done.diff_id);
    assert!(memory < MEMORY, "{memory} bytes of memory at the peak");
}

/// Bytes of this process's memory at its peak.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
