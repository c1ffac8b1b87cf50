//! The kernel takes the default and the strict filter, and real programs work under them: threads, every way of
//! multiprocessing, asyncio, subprocesses. What must be refused is refused with the right errno.
//!
//! Each filter is put on a thread of this test, whose children inherit it.

use std::process::{Command, Output};

use creel::sandbox::seccomp::compile;

/// Runs `code` in a Python under the filter `json`.
fn python(json: &'static str, code: &'static str) -> Output {
    let filter = compile(json, "test").unwrap();
    std::thread::spawn(move || {
        let copy =
            |i: &libc::sock_filter| seccompiler::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
        let program: Vec<_> = filter.instructions().iter().map(copy).collect();
        seccompiler::apply_filter(&program).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("entry.py");
        std::fs::write(&file, code).unwrap(); // a file: spawn and forkserver import it again
        Command::new("python3").arg("-I").arg(&file).current_dir(dir.path()).output().unwrap()
    })
    .join()
    .unwrap()
}

#[track_caller]
fn succeeds(output: &Output, stdout: &str) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim() == stdout, "{:?}\n{out}\n{err}", output.status);
}

const WORKS: &str = r#"
import asyncio, concurrent.futures, ctypes, fcntl, mmap, multiprocessing, os, select, signal, socket, sqlite3
import subprocess, sys, tempfile, threading, time

def square(x):
    return x * x

async def later():
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(7)", stdout=subprocess.PIPE)
    out, _ = await p.communicate()
    return int(out), await asyncio.get_running_loop().run_in_executor(None, square, 3)

def main():
    t = threading.Thread(target=square, args=(2,)); t.start(); t.join()
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, [1, 2, 3]) == [1, 4, 9], method
    with multiprocessing.Manager() as manager:
        assert manager.list([1])[0] == 1
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=64); shared.close(); shared.unlink()
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        assert pool.submit(square, 5).result() == 25
    assert asyncio.run(later()) == (7, 9)
    assert subprocess.run("echo a | cat; exit 3", shell=True, stdout=subprocess.PIPE).returncode == 3
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    db = sqlite3.connect("t.db"); db.execute("create table t(x)"); db.commit(); db.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    fcntl.flock(open("t.db"), fcntl.LOCK_EX)
    os.memfd_create("m"); os.eventfd(0); os.getrandom(8); os.sched_getaffinity(0); os.pidfd_open(os.getpid())
    mmap.mmap(-1, 4096); select.epoll().close(); time.sleep(0.001); os.sync()

if __name__ == "__main__":
    import multiprocessing.shared_memory
    main()
    print("done")
"#;

#[test]
fn the_standard_library_works_under_default() {
    succeeds(&python(include_str!("../profiles/seccomp/default.json"), WORKS), "done");
}

#[test]
fn the_standard_library_works_under_strict() {
    succeeds(&python(include_str!("../profiles/seccomp/strict.json"), WORKS), "done");
}

#[test]
fn sockets_fifos_and_names_work_under_default() {
    let code = r#"
import os, socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); socket.create_connection(s.getsockname()).close()
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); socket.if_nameindex()
socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
os.mkfifo("f"); os.mknod("r")
print("done")
"#;
    succeeds(&python(include_str!("../profiles/seccomp/default.json"), code), "done");
}

/// Prints the errno of each call. Numbers that both architectures share, or looked up by machine.
const REFUSED: &str = r#"
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(a) for a in args])
    return "ok" if result != -1 else errno.errorcode[ctypes.get_errno()]
HIGH = 1 << 40
for name, (on_x86, on_arm), args in [
    ("unshare", (272, 97), [0x10000000]), ("clone", (56, 220), [0x10000011, 0, 0, 0, 0]),
    ("clone high", (56, 220), [HIGH | 0x10000011, 0, 0, 0, 0]), ("clone3", (435, 435), [0, 88]),
    ("tiocsti", (16, 29), [0, 0x5412, 0]), ("tiocsti high", (16, 29), [0, HIGH | 0x5412, 0]),
    ("keyctl", (250, 219), [0, 0, 0]), ("io_uring", (425, 425), [1, 0]), ("bpf", (321, 280), [0, 0, 0]),
    ("alg", (41, 198), [38, 5, 0]), ("vsock high", (41, 198), [HIGH | 40, 1, 0]), ("raw", (41, 198), [2, 3, 1]),
    ("device", (259, 33), [0xffffffffffffff9c, 0, 0o20644, 0x103]), ("unheard", (600, 600), []),
    ("mount", (165, 40), [0, 0, 0, 0, 0]), ("ptrace", (101, 117), [0, 0, 0, 0]),
]:
    print(name, call(on_x86 if x86 else on_arm, *args))
if x86:
    print("x32", call(0x40000000 + 39))
"#;

#[test]
fn what_must_be_refused_is_refused() {
    let output = python(include_str!("../profiles/seccomp/default.json"), REFUSED);
    let mut expected = "unshare EPERM\nclone EPERM\nclone high EPERM\nclone3 ENOSYS\ntiocsti EPERM\n\
        tiocsti high EPERM\nkeyctl ENOSYS\nio_uring ENOSYS\nbpf EPERM\nalg EAFNOSUPPORT\n\
        vsock high EAFNOSUPPORT\nraw EPERM\ndevice EPERM\nunheard ENOSYS\nmount EPERM\nptrace EPERM"
        .to_owned();
    if cfg!(target_arch = "x86_64") {
        expected.push_str("\nx32 ENOSYS");
    }
    succeeds(&output, &expected);
}

/// `int 0x80` from 64-bit code: getpid of i386, which is writev for x86_64.
#[test]
#[cfg(target_arch = "x86_64")]
fn int_0x80_is_killed() {
    let code = r#"
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"#;
    let output = python(include_str!("../profiles/seccomp/default.json"), code);
    use std::os::unix::process::ExitStatusExt;
    // A kernel without IA32 emulation answers SIGSEGV by itself.
    assert!(matches!(output.status.signal(), Some(libc::SIGSYS | libc::SIGSEGV)), "{output:?}");
}
