//! Promise: real programs work in the sandbox: threads, every way of multiprocessing, asyncio, subprocesses, sqlite. What must be refused is refused
//! with the right errno, in whatever way the filter came onto the process.

use crate::common::Ctx;

/// As tests/seccomp_kernel.rs has them, for the filter alone.
const PROGRAMS: &str = include_str!("../seccomp_kernel.rs");

/// The text of `const NAME: &str = r#"…"#` in that file.
fn text(name: &str) -> &'static str {
    let (_, rest) = PROGRAMS.split_once(&format!("const {name}: &str = r#\"")).unwrap();
    rest.split_once("\"#;").unwrap().0
}

#[test]
fn works() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.python(&["--cpus", "1", "--timeout", "100"], text("WORKS")).expect_ok();
    assert_eq!((report.stdout(), &report.json["stderr"]), ("done\n", &"".into()), "{report}");
}

#[test]
fn what_must_be_refused_is_refused() {
    let Some(ctx) = Ctx::new() else { return };
    let report = ctx.python(&["--timeout", "100"], text("REFUSED")).expect_ok();
    for line in [
        "unshare EPERM",
        "clone EPERM",
        "clone high EPERM",
        "clone3 ENOSYS",
        "tiocsti EPERM",
        "keyctl ENOSYS",
        "io_uring ENOSYS",
        "bpf EPERM",
        "alg EAFNOSUPPORT",
        "raw EPERM",
        "device EPERM",
        "unheard ENOSYS",
        "mount EPERM",
        "ptrace EPERM",
    ] {
        assert!(report.stdout().lines().any(|l| l == line), "{line}: {report}");
    }
}
