//! From a parsed profile to decisions by number.

use super::args::{self, Width};
use super::profile::{ActionName, ArgTest, Entry, OpName, Profile, Text};
use super::{Arch, SeccompError, table};

/// `SECCOMP_RET_ERRNO` of linux/seccomp.h; the errno is in the low 16 bits.
const RET_ERRNO: u32 = 0x0005_0000;
/// What a call that does not exist answers. libc falls back on it; it does not on EPERM.
pub(super) const RET_ENOSYS: u32 = RET_ERRNO | libc::ENOSYS as u32;
/// `SECCOMP_RET_KILL_PROCESS`.
pub(super) const RET_KILL_PROCESS: u32 = 0x8000_0000;
/// `MAX_ERRNO` of linux/err.h: the kernel lowers what is above.
const MAX_ERRNO: u32 = 4095;
/// What `SCMP_ACT_ERRNO` without a number means, as in the OCI text.
const DEFAULT_ERRNO: u32 = libc::EPERM as u32;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// This `SECCOMP_RET_*` value, whatever the arguments.
    Return(u32),
    /// It depends on the arguments: the rules at this place of [`Policy::blocks`].
    Block(usize),
}

/// What the profile says of one call: the first rule whose tests all hold decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub rules: Vec<Rule>,
    /// If none of them does: the entry without tests; without one, the default action.
    pub otherwise: Option<u32>,
}

/// A decision that hangs on arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// At least one.
    pub tests: Vec<Test>,
    pub ret: u32,
}

/// One comparison, already known to fit the argument's width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub index: u32,
    pub width: Width,
    pub op: OpName,
    /// The value, or the mask of `MaskedEq`.
    pub value: u64,
    /// What `MaskedEq` compares with.
    pub under_mask: u64,
}

/// Decisions for every number of one architecture.
#[derive(Debug)]
pub(super) struct Policy {
    /// The verdict of a block without `otherwise`.
    pub default: u32,
    /// `(first number, target)`, ascending from 0; neighbours differ; the last reaches to the end.
    pub ranges: Vec<(u32, Target)>,
    pub blocks: Vec<Block>,
}

/// Checks `profile` and turns names into numbers of `arch`.
pub(super) fn resolve(profile: &Profile<'_>, name: &str, arch: Arch) -> Result<Policy, SeccompError> {
    check_architectures(profile, name, arch)?;
    let default = return_value(profile.default_action, profile.default_errno_ret, name, "defaultErrnoRet")?;
    let mut calls = vec![Block::default(); table::NEWEST as usize + 1];
    for entry in &profile.syscalls {
        let ret = return_value(entry.action, entry.errno_ret, name, "errnoRet")?;
        for Text(syscall) in &entry.names {
            let Some((x86_64, aarch64)) = table::find(syscall) else {
                return Err(SeccompError::UnknownSyscall {
                    profile: name.to_owned(),
                    syscall: syscall.to_string(),
                });
            };
            let wrong = |problem: String| SeccompError::Rule {
                profile: name.to_owned(),
                syscall: syscall.to_string(),
                problem,
            };
            // Checked also for a call that this architecture lacks: a profile is right or wrong everywhere.
            let tests = tests(entry, syscall).map_err(wrong)?;
            let number = match arch {
                Arch::X86_64 => x86_64,
                Arch::Aarch64 => aarch64,
            };
            if number != table::NONE {
                add(&mut calls[usize::from(number)], tests, ret).map_err(wrong)?;
            }
        }
    }
    Ok(merge(calls, default))
}

fn check_architectures(profile: &Profile<'_>, name: &str, arch: Arch) -> Result<(), SeccompError> {
    let wrong = |problem| SeccompError::Architecture { profile: name.to_owned(), problem };
    if let Some(odd) = profile.architectures.iter().find(|a| !a.starts_with("SCMP_ARCH_")) {
        return Err(wrong(format!("{odd} is no architecture")));
    }
    if !profile.architectures.is_empty() && !profile.architectures.iter().any(|a| a == arch.oci_name()) {
        return Err(wrong(format!("its architectures lack {}", arch.oci_name())));
    }
    Ok(())
}

/// The `SECCOMP_RET_*` value of an action.
fn return_value(action: ActionName, errno: Option<u32>, name: &str, key: &str) -> Result<u32, SeccompError> {
    let wrong = |problem| SeccompError::Errno { profile: name.to_owned(), problem };
    let plain = match action {
        ActionName::Errno => {
            let errno = errno.unwrap_or(DEFAULT_ERRNO);
            if errno > MAX_ERRNO {
                return Err(wrong(format!("{key} {errno} is above {MAX_ERRNO}")));
            }
            return Ok(RET_ERRNO | errno);
        }
        ActionName::Allow => 0x7fff_0000,
        ActionName::Log => 0x7ffc_0000,
        ActionName::Trap => 0x0003_0000,
        ActionName::KillThread => 0,
        ActionName::KillProcess => RET_KILL_PROCESS,
    };
    match errno {
        Some(_) => Err(wrong(format!("{key} is given to an action that returns no error"))),
        None => Ok(plain),
    }
}

/// The tests of an entry, for one of its names.
fn tests(entry: &Entry<'_>, syscall: &str) -> Result<Vec<Test>, String> {
    let given = entry.args.as_deref().unwrap_or_default();
    for (n, test) in given.iter().enumerate() {
        if given[..n].iter().any(|earlier| earlier.index == test.index) {
            // runc takes it as "or", libseccomp as an error; a policy must not depend on who reads it.
            return Err(format!("argument {} is tested twice in one rule", test.index));
        }
    }
    given.iter().map(|given| test(given, syscall)).collect()
}

fn test(given: &ArgTest, syscall: &str) -> Result<Test, String> {
    let index = given.index;
    let Some(width) = args::width(syscall, index) else {
        return Err(format!("creel does not know how wide argument {index} is"));
    };
    let under_mask = given.value_two;
    for value in [given.value, under_mask] {
        if value & !width.mask() != 0 {
            return Err(format!(
                "{value} does not fit argument {index}, of which the kernel reads {width:?}"
            ));
        }
    }
    if given.op == OpName::MaskedEq {
        if under_mask & !given.value != 0 {
            return Err(format!("argument {index} under mask {} is never {under_mask}", given.value));
        }
    } else if under_mask != 0 {
        return Err(format!("valueTwo of argument {index} belongs to SCMP_CMP_MASKED_EQ only"));
    }
    Ok(Test { index, width, op: given.op, value: given.value, under_mask })
}

/// Adds an entry behind those a call has.
fn add(block: &mut Block, tests: Vec<Test>, ret: u32) -> Result<(), String> {
    match block.otherwise {
        Some(decided) if decided != ret => {
            return Err("an earlier entry without args decides already, and differently".to_owned());
        }
        Some(_) => {}
        None if tests.is_empty() => block.otherwise = Some(ret),
        None => block.rules.push(Rule { tests, ret }),
    }
    Ok(())
}

/// Joins neighbouring numbers of equal decision.
fn merge(calls: Vec<Block>, default: u32) -> Policy {
    let mut policy = Policy { default, ranges: Vec::new(), blocks: Vec::new() };
    let mut push = |number: usize, target: Target| {
        if policy.ranges.last().is_none_or(|(_, last)| *last != target) {
            policy.ranges.push((number as u32, target));
        }
    };
    let end = calls.len();
    for (number, call) in calls.into_iter().enumerate() {
        let target = if call.rules.is_empty() {
            Target::Return(call.otherwise.unwrap_or(default))
        } else {
            let known = policy.blocks.iter().position(|block| *block == call);
            Target::Block(known.unwrap_or_else(|| {
                policy.blocks.push(call);
                policy.blocks.len() - 1
            }))
        };
        push(number, target);
    }
    // Numbers that this creel has never heard of. A new libc tries them first and falls back on ENOSYS only; EPERM
    // would break it (the clone3 story, moby#42680).
    let unheard = if default & 0xffff_0000 == RET_ERRNO { RET_ENOSYS } else { default };
    push(end, Target::Return(unheard));
    policy
}
