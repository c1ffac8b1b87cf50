use std::io::Write;

use super::super::testing::{line, run, with};
use super::*;

#[test]
fn inputs_with_and_without_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("a=b"), "").unwrap();
    let arg = |arg: String| run(&["--input", &arg, "-c", ""]).map(|mut r| r.inputs.remove(0));
    let wants = |path: String, name: Option<&str>| Input { path: path.into(), name: name.map(str::to_owned) };
    assert_eq!(arg(at("a=b")).unwrap(), wants(at("a=b"), None));
    assert_eq!(arg(at("a=b=销售.csv")).unwrap(), wants(at("a=b"), Some("销售.csv")));
    assert_eq!(arg(at("c=d=../../x")).unwrap(), wants(at("c=d"), Some("../../x")));
    assert_eq!(arg(at("x")).unwrap(), wants(at("x"), None));
    assert!(arg(at("x=")).unwrap_err().message.ends_with("has an empty name after the '='"));
    assert!(arg("=x".into()).unwrap_err().message.contains("the path is an empty string"));
    assert!(arg(String::new()).unwrap_err().message.contains("the path is an empty string"));
    let odd = with(&[OsStr::new("--input"), OsStr::from_bytes(b"caf\xe9"), OsStr::new("-c"), OsStr::new("")]);
    assert_eq!(odd.unwrap().inputs[0].path, Path::new(OsStr::from_bytes(b"caf\xe9")));
}

#[test]
fn skills_have_ids() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("excel")).unwrap();
    std::fs::create_dir(at("表格")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink("excel", at("sheets")).unwrap();
    let skills = |args: &[&str]| {
        let words: Vec<&str> = args.iter().flat_map(|a| ["--skill", a]).chain(["-c", ""]).collect();
        run(&words).map(|r| r.skills.into_iter().map(|s| s.id).collect::<Vec<_>>())
    };
    let table = format!("{}=table", at("表格"));
    assert_eq!(skills(&[&at("excel/"), &table, &at("sheets")]).unwrap(), ["excel", "table", "sheets"]);
    let message = |args: &[&str]| skills(args).unwrap_err().message;
    assert!(message(&[&at("excel"), &at("excel")]).ends_with("two skills have the id 'excel'"));
    assert!(message(&[&at("表格")]).contains("'表格' is no id"));
    for id in ["..", "a/b", "", ".x", "a b", &"x".repeat(65)] {
        assert!(message(&[&format!("{}={id}", at("excel"))]).contains(" is no id"), "{id}");
    }
    assert!(message(&[&at("nosuch")]).ends_with("nosuch' does not exist"));
    assert!(message(&[&at("file")]).ends_with("file' is not a directory"));
}

#[test]
fn output_directories() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    assert_eq!(
        run(&["--output", &at("结果/x/y"), "-c", ""]).unwrap().output_dir,
        dir.path().join("结果/x/y")
    );
    assert!(!dir.path().join("结果").exists());
    assert!(run(&["-c", ""]).unwrap().output_dir.is_absolute());
    assert!(line(&["--output", &at("file"), "-c", ""]).ends_with("file' is not a directory"));
    assert!(line(&["--output", &at("file/x"), "-c", ""]).contains("not a directory"));
    assert!(line(&["--output", &at("dangling"), "-c", ""]).ends_with("is a symlink to nothing"));
    assert!(line(&["--output", "", "-c", ""]).contains("empty string"));
    // Root may write anywhere that isn't mounted read-only.
    if !rustix::process::geteuid().is_root() {
        assert!(line(&["--output", "/proc/x", "-c", ""]).contains("'/proc' can't be written"));
    }
}

#[test]
fn standard_input() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let open = |path: &Path| run(&["--stdin", path.to_str().unwrap(), "-c", ""]).map(|r| r.stdin);
    File::create(at("数据")).unwrap().write_all("你".as_bytes()).unwrap();
    let Stdin::File(mut file) = open(&at("数据")).unwrap() else { panic!() };
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "你");
    // A FIFO without a writer doesn't hold us.
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(open(&at("fifo")).is_ok());
    assert!(matches!(run(&["-c", ""]).unwrap().stdin, Stdin::Null));
    assert!(matches!(run(&["--stdin", "-", "-c", ""]).unwrap().stdin, Stdin::File(_)));
    assert!(open(&at("nosuch")).unwrap_err().message.ends_with("nosuch' does not exist"));
    assert!(open(dir.path()).unwrap_err().message.ends_with("is a directory, not a file to read"));
    assert!(line(&["--stdin", "-", "-"]).contains("can't be both"));
}
