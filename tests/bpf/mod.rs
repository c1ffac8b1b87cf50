//! Filters under test: runs classic BPF as the kernel would, after the same checks.

#![allow(dead_code)] // each test file uses its part

use creel::sandbox::seccomp::{Arch, Filter, compile_for};

/// `struct seccomp_data` of linux/seccomp.h.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub number: u32,
    pub arch: u32,
    pub args: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            16..=63 if offset.is_multiple_of(4) => {
                let arg = self.args[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { arg as u32 } else { (arg >> 32) as u32 }
            }
            _ => panic!("load from offset {offset}"),
        }
    }
}

/// What `seccomp_check_filter` and `bpf_check_classic` demand: known opcodes, jumps inside, a return at the end.
pub fn check(code: &[libc::sock_filter]) {
    assert!((1..=4096).contains(&code.len()), "{} instructions", code.len());
    for (at, i) in code.iter().enumerate() {
        let inside =
            |jump: u32| assert!(at + 1 + (jump as usize) < code.len(), "jump out of the program at {at}");
        match i.code {
            0x20 => assert!(i.k < 64 && i.k.is_multiple_of(4), "load at {at}"),
            0x54 | 0x06 => {}
            0x05 => inside(i.k),
            0x15 | 0x25 | 0x35 | 0x45 => {
                inside(i.jt.into());
                inside(i.jf.into());
            }
            other => panic!("opcode {other:#x} at {at}"),
        }
    }
    assert_eq!(code[code.len() - 1].code, 0x06, "no return at the end");
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: u32,
    /// Instructions executed.
    pub steps: usize,
    /// Whether an argument was looked at: if not, the kernel (5.11 on) remembers an "allow" and skips the filter.
    pub read_args: bool,
}

/// The verdict on `call`.
pub fn run(code: &[libc::sock_filter], call: &Call) -> Outcome {
    let (mut at, mut acc, mut steps, mut read_args) = (0, 0u32, 0, false);
    loop {
        let i = &code[at];
        at += 1;
        steps += 1;
        read_args |= i.code == 0x20 && i.k >= 16;
        let mut branch = |holds: bool| at += usize::from(if holds { i.jt } else { i.jf });
        match i.code {
            0x20 => acc = call.word(i.k),
            0x54 => acc &= i.k,
            0x05 => at += i.k as usize,
            0x15 => branch(acc == i.k),
            0x25 => branch(acc > i.k),
            0x35 => branch(acc >= i.k),
            0x45 => branch(acc & i.k != 0),
            0x06 => {
                return Outcome { verdict: i.k, steps, read_args };
            }
            other => panic!("opcode {other:#x}"),
        }
    }
}

/// One filter under test, and the numbers of its architecture.
pub struct Subject {
    pub filter: Filter,
    pub audit: u32,
    /// `(number, name, answer)` of the default profile's table.
    pub table: Vec<(u32, &'static str, &'static str)>,
}

impl Subject {
    pub fn new(json: &str, arch: Arch) -> Subject {
        let filter = compile_for(json, "test", arch).unwrap();
        check(filter.instructions());
        let (audit, text) = match arch {
            Arch::X86_64 => (0xc000_003e, include_str!("../data/seccomp_expect_x86_64.txt")),
            Arch::Aarch64 => (0xc000_00b7, include_str!("../data/seccomp_expect_aarch64.txt")),
        };
        let table = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
                [number, name, answer] => (number.parse().unwrap(), name, answer),
                _ => panic!("odd line {line:?}"),
            })
            .collect();
        Subject { filter, audit, table }
    }

    pub fn both(json: &str) -> [Subject; 2] {
        [Subject::new(json, Arch::X86_64), Subject::new(json, Arch::Aarch64)]
    }

    pub fn number(&self, name: &str) -> Option<u32> {
        self.table.iter().find(|(_, n, _)| *n == name).map(|(number, ..)| *number)
    }

    pub fn by_number(&self, number: u32, args: &[u64]) -> Outcome {
        let mut call = Call { number, arch: self.audit, args: [0; 6] };
        call.args[..args.len()].copy_from_slice(args);
        run(self.filter.instructions(), &call)
    }

    /// The verdict on a call by name; `None` if the architecture lacks it.
    pub fn ask(&self, name: &str, args: &[u64]) -> Option<u32> {
        Some(self.by_number(self.number(name)?, args).verdict)
    }

    #[track_caller]
    pub fn expect(&self, name: &str, args: &[u64], verdict: u32) {
        if let Some(got) = self.ask(name, args) {
            assert_eq!(got, verdict, "{name}{args:x?}: {got:#x} instead of {verdict:#x}");
        }
    }
}
