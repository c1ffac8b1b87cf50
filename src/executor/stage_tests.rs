use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use super::*;

fn input(path: impl AsRef<Path>, name: Option<&str>) -> Input {
    Input { path: path.as_ref().to_owned(), name: name.map(str::to_owned) }
}

fn stage_inputs(inputs: Vec<Input>) -> (tempfile::TempDir, Result<(), StageError>) {
    let run = tempfile::tempdir().unwrap();
    let result = stage(run.path(), &inputs);
    (run, result)
}

fn reason(inputs: Vec<Input>) -> String {
    let line = stage_inputs(inputs).1.unwrap_err().to_string();
    assert!(!line.contains('\n'));
    line
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn without_inputs_there_is_an_empty_manifest() {
    let (run, result) = stage_inputs(vec![]);
    result.unwrap();
    let manifest = run.path().join("manifest.json");
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), "[]");
    assert_eq!(mode(&manifest), 0o444);
}

#[test]
fn inputs_are_numbered_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &OsStr| dir.path().join(name);
    let chinese = at(OsStr::new("销售 数据.csv"));
    let latin = at(OsStr::from_bytes(b"caf\xe9.txt"));
    std::fs::write(&chinese, "a,b\n").unwrap();
    std::fs::write(&latin, "12345").unwrap();
    let inputs = vec![
        input(&chinese, None),
        input(&chinese, Some("../../etc/passwd")),
        input(&latin, None),
        input(&latin, Some("manifest.json")),
    ];
    let (run, result) = stage_inputs(inputs);
    result.unwrap();
    let text = std::fs::read_to_string(run.path().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        manifest,
        serde_json::json!([
            {"displayName": "销售 数据.csv", "path": "/inputs/00-销售_数据.csv", "ref": "file:0",
             "mimeType": "text/csv", "size": 4},
            {"displayName": "../../etc/passwd", "path": "/inputs/01-___.._etc_passwd", "ref": "file:1",
             "mimeType": "application/octet-stream", "size": 4},
            {"displayName": "caf\\xE9.txt", "path": "/inputs/02-caf_xE9.txt", "ref": "file:2",
             "mimeType": "text/plain", "size": 5},
            {"displayName": "manifest.json", "path": "/inputs/03-manifest.json", "ref": "file:3",
             "mimeType": "application/json", "size": 5},
        ])
    );
    for entry in manifest.as_array().unwrap() {
        let copy = run.path().join(entry["path"].as_str().unwrap().trim_start_matches("/inputs/"));
        assert_eq!(mode(&copy), 0o444);
        assert_eq!(copy.metadata().unwrap().len(), entry["size"].as_u64().unwrap());
        assert_eq!(copy.metadata().unwrap().nlink(), 1);
    }
    // Nothing else is there, and the originals are not the copies.
    assert_eq!(run.path().read_dir().unwrap().count(), 5);
    assert_ne!(mode(&chinese), 0o444);
}

#[test]
fn more_than_a_hundred_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    std::fs::write(&file, "x").unwrap();
    let (run, result) = stage_inputs((0..101).map(|_| input(&file, None)).collect());
    result.unwrap();
    assert!(run.path().join("99-x").exists() && run.path().join("100-x").exists());
    let line = reason((0..1001).map(|_| input(&file, None)).collect());
    assert_eq!(line, "1001 inputs are too many; at most 1000");
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("管道");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let good = dir.path().join("good");
    std::fs::write(&good, "x").unwrap();
    let second = |path: &Path| reason(vec![input(&good, None), input(path, None)]);
    assert_eq!(second(Path::new("/nonexistent/x")), "input '/nonexistent/x' does not exist");
    assert!(second(dir.path()).ends_with("is a directory, not a regular file"));
    assert!(second(&fifo).ends_with("管道' is a FIFO (named pipe), not a regular file"));
    assert_eq!(second(Path::new("/dev/null")), "input '/dev/null' is a character device, not a regular file");
    assert_eq!(reason(vec![input(&good, Some(""))]), format!("input '{}' has an empty name", good.display()));
    assert_eq!(second(Path::new("")), "input '' does not exist");
}

#[test]
fn sizes_are_bounded_before_anything_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let giant = dir.path().join("giant");
    File::create(&giant).unwrap().set_len(1 << 40).unwrap();
    let (run, result) = stage_inputs(vec![input(&giant, None)]);
    let error = result.unwrap_err();
    assert!(error.to_string().starts_with("the inputs are larger than 2 GiB together, at "), "{error}");
    assert_eq!(error.code(), "input.too_large");
    assert_eq!(run.path().read_dir().unwrap().count(), 0);
}

#[test]
fn files_that_hide_their_size_are_read() {
    let (run, result) = stage_inputs(vec![input("/proc/self/status", None)]);
    result.unwrap();
    assert!(run.path().join("00-status").metadata().unwrap().len() > 100);
}

#[test]
fn an_input_that_grows_is_cut_at_its_first_size() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    std::fs::write(&log, vec![b'x'; 1 << 20]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = OpenOptions::new().append(true).open(&log).unwrap();
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) && written < 256 << 20 {
                file.write_all(&[b'y'; 65536]).unwrap();
                written += 65536;
            }
        });
        let (run, result) = stage_inputs(vec![input(&log, None)]);
        let after = log.metadata().unwrap().len();
        stop.store(true, Ordering::Relaxed);
        result.unwrap();
        assert!(run.path().join("00-log").metadata().unwrap().len() <= after);
    });
}

#[test]
fn a_leftover_is_not_written_over() {
    let run = tempfile::tempdir().unwrap();
    std::fs::create_dir(run.path().join("manifest.json")).unwrap();
    let error = stage(run.path(), &[]).unwrap_err();
    assert!(error.is_host_fault());
    assert_eq!(error.code(), "host.write_failed");
}
