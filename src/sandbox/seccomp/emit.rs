//! From decisions to classic BPF.
//!
//! The program is written from its end to its beginning: jumps in classic BPF go forward only, so whatever a jump
//! leads to is there already, and its distance known.

use libc::sock_filter;

use super::Arch;
use super::args::Width;
use super::policy::{Block, Policy, RET_ENOSYS, RET_KILL_PROCESS, Target, Test};
use super::profile::OpName;

// Opcodes of linux/bpf_common.h, in the combinations that seccomp takes.
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQ: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_GT: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
const JUMP_GE: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// `struct seccomp_data` of linux/seccomp.h.
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGS: u32 = 16;

/// `__X32_SYSCALL_BIT`: from here on x86_64 numbers name calls of the x32 ABI.
const X32: u32 = 0x4000_0000;

/// The whole program: architecture, x32, number, arguments.
pub(super) fn program(policy: &Policy, arch: Arch) -> Vec<sock_filter> {
    let mut code = Backwards::default();
    let blocks: Vec<Place> = policy.blocks.iter().map(|block| code.block(block, policy.default)).collect();
    let mut body = code.search(&policy.ranges, &blocks);
    if arch == Arch::X86_64 {
        // x32 calls pass the architecture test, they have AUDIT_ARCH_X86_64 too: without this a call that the
        // profile refuses goes through under its other number (nix#1432).
        body = code.branch(JUMP_GE, X32, Place::Return(RET_ENOSYS), body);
    }
    code.then(body);
    code.load(OFFSET_NUMBER);
    let number = code.here();
    // `int 0x80` on x86_64, or an aarch32 program: the same numbers mean other calls, so nothing below holds for
    // them and there is no right answer but the end (CVE-2015-2830 passed filters by way of `int 0x80`).
    code.branch(JUMP_EQ, arch.audit(), number, Place::Return(RET_KILL_PROCESS));
    code.load(OFFSET_ARCH);
    code.reversed.reverse();
    code.reversed
}

/// Somewhere to go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// An instruction, by its distance from the program's end.
    At(usize),
    /// The end, with this verdict.
    Return(u32),
}

/// A program that grows at its front.
#[derive(Debug, Default)]
struct Backwards {
    /// The last instruction first.
    reversed: Vec<sock_filter>,
    /// Verdicts that were written, and where last.
    returns: Vec<(u32, usize)>,
}

impl Backwards {
    fn put(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.reversed.push(sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.put(LOAD, 0, 0, offset);
    }

    /// The instruction written last, which is the first of what there is.
    fn here(&self) -> Place {
        Place::At(self.reversed.len() - 1)
    }

    /// How far a jump goes that is written after `more` further instructions.
    fn distance(&self, to: usize, more: usize) -> usize {
        self.reversed.len() + more - to - 1
    }

    /// A place that a conditional jump, written after at most `more` further instructions, can reach: its
    /// distances have 8 bits. Writes a verdict again, or a long jump, where the place itself is too far.
    fn near(&mut self, place: Place, more: usize) -> usize {
        let (verdict, known) = match place {
            Place::At(to) if self.distance(to, more) <= 255 => return to,
            Place::At(to) => {
                let far = self.distance(to, 0) as u32; // at most some thousands
                self.put(JUMP, 0, 0, far);
                return self.reversed.len() - 1;
            }
            Place::Return(verdict) => (verdict, self.returns.iter().position(|(v, _)| *v == verdict)),
        };
        if let Some((_, at)) = known.map(|n| self.returns[n])
            && self.distance(at, more) <= 255
        {
            return at;
        }
        self.put(RETURN, 0, 0, verdict);
        let at = self.reversed.len() - 1;
        match known {
            Some(n) => self.returns[n].1 = at,
            None => self.returns.push((verdict, at)),
        }
        at
    }

    /// A conditional jump. Returns its own place, which is the front.
    fn branch(&mut self, code: u16, k: u32, yes: Place, no: Place) -> Place {
        let no = self.near(no, 1); // 1: a long jump for `yes` may come between
        let yes = self.near(yes, 0);
        // Both are within 255: near() saw to it.
        let (jt, jf) = (self.distance(yes, 0) as u8, self.distance(no, 0) as u8);
        self.put(code, jt, jf, k);
        self.here()
    }

    /// Makes `place` what follows: what is written next, if it does not jump, goes on there.
    fn then(&mut self, place: Place) {
        match place {
            Place::At(to) if to + 1 == self.reversed.len() => {}
            Place::At(to) => {
                let far = self.distance(to, 0) as u32;
                self.put(JUMP, 0, 0, far);
            }
            Place::Return(verdict) => self.put(RETURN, 0, 0, verdict),
        }
    }

    /// Binary search for the number in the accumulator.
    fn search(&mut self, ranges: &[(u32, Target)], blocks: &[Place]) -> Place {
        let place = |target: Target| match target {
            Target::Return(verdict) => Place::Return(verdict),
            Target::Block(n) => blocks[n],
        };
        match ranges {
            [] => Place::Return(RET_KILL_PROCESS), // never: a policy has at least one range
            [(_, only)] => place(*only),
            // One number alone in the midst of others: one test instead of two.
            [(_, left), (number, alone), (next, right)] if left == right && number + 1 == *next => {
                self.branch(JUMP_EQ, *number, place(*alone), place(*left))
            }
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let no = self.search(high, blocks);
                let yes = self.search(low, blocks);
                self.branch(JUMP_GE, high[0].0, no, yes)
            }
        }
    }

    /// The rules of one call, the first that holds decides.
    ///
    /// A test's outcome is known for the rest of the way: rules with a test that failed are passed over, and in the
    /// rule gone on with, leading tests that held are not repeated. So a list like that of `socket`, each rule of
    /// which starts with the family, costs little more than its last rule.
    fn block(&mut self, block: &Block, default: u32) -> Place {
        let rules = &block.rules;
        // For each rule the places of its tests, then its verdict. After the last rule: what is left.
        let mut places: Vec<Vec<Place>> = rules.iter().map(|rule| vec![Place::Return(rule.ret)]).collect();
        places.push(vec![Place::Return(block.otherwise.unwrap_or(default))]);
        for (n, rule) in rules.iter().enumerate().rev() {
            for (t, test) in rule.tests.iter().enumerate().rev() {
                let later = &rules[n + 1..];
                let passed = later.iter().take_while(|rule| rule.tests.contains(test)).count();
                let held = later.get(passed).map_or(0, |next| {
                    next.tests.iter().take_while(|known| rule.tests[..t].contains(known)).count()
                });
                let place = self.test(test, places[n][0], places[n + 1 + passed][held]);
                places[n].insert(0, place);
            }
        }
        places[0][0]
    }

    /// Goes to `yes` if the test holds, else to `no`.
    fn test(&mut self, test: &Test, yes: Place, no: Place) -> Place {
        let low_at = OFFSET_ARGS + 8 * test.index; // both architectures are little-endian
        let (high, low) = halves(test.value);
        let (high_two, low_two) = halves(test.under_mask);
        let (code, k, yes, no) = match test.op {
            OpName::MaskedEq => (JUMP_EQ, low_two, yes, no),
            OpName::Eq => (JUMP_EQ, low, yes, no),
            OpName::Ne => (JUMP_EQ, low, no, yes),
            OpName::Gt => (JUMP_GT, low, yes, no),
            OpName::Le => (JUMP_GT, low, no, yes),
            OpName::Ge => (JUMP_GE, low, yes, no),
            OpName::Lt => (JUMP_GE, low, no, yes),
        };
        self.branch(code, k, yes, no);
        match (test.op, test.width) {
            (OpName::MaskedEq, _) => self.put(AND, 0, 0, low),
            // The kernel drops the upper half of the register here too.
            (_, Width::Mode) => self.put(AND, 0, 0, 0xffff),
            _ => {}
        }
        self.load(low_at);
        if test.width != Width::Long || (test.op == OpName::MaskedEq && high == 0) {
            // CVE-2019-7303, CVE-2019-10063 (TIOCSTI with a high bit set): the kernel does not look at the high
            // half, so neither do we.
            return self.here();
        }
        let low_half = self.here();
        match test.op {
            OpName::MaskedEq => {
                self.branch(JUMP_EQ, high_two, low_half, no);
                self.put(AND, 0, 0, high);
            }
            // `yes` and `no` are those of the jump above: swapped already for Ne, Le and Lt.
            OpName::Eq | OpName::Ne => {
                self.branch(JUMP_EQ, high, low_half, no);
            }
            OpName::Gt | OpName::Le | OpName::Ge | OpName::Lt => {
                let not_greater = self.branch(JUMP_EQ, high, low_half, no);
                self.branch(JUMP_GT, high, yes, not_greater);
            }
        }
        self.load(low_at + 4);
        self.here()
    }
}

fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}
