//! System-call filters: a profile in OCI JSON goes in, a classic BPF program comes out.
//!
//! The program (see `emit`) tests, in this order: the architecture (any other is killed), x32 numbers (ENOSYS), then
//! finds the number by binary search over ranges of equal decision, then compares arguments where a rule asks for it.
//! It is installed elsewhere (`sys`): this module only makes it.
//!
//! What a profile means, where the OCI text leaves it open:
//!
//! * Rules of one call are tried in the order of the file; the first whose tests all hold decides. If none does, the
//!   default action does. A rule that an earlier one without tests hides is an error if its action is another.
//! * Arguments are compared in the width the kernel gives them (see `args`; CVE-2019-7303).
//! * A name that no architecture knows is an error (a typo in an allow-list should be seen); one that only the other
//!   architecture has is skipped.
//! * With a default of ERRNO, numbers newer than creel's table answer ENOSYS whatever the profile says: an EPERM there
//!   makes a newer libc fail instead of falling back.
//! * `architectures` may name any; only the one creel runs on is served, calls of the others are killed.

mod args;
mod emit;
mod policy;
mod profile;
mod table;

/// An architecture that filters can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// The architecture this program was built for, if filters can be made for it.
    pub fn native() -> Option<Arch> {
        if cfg!(target_arch = "x86_64") {
            Some(Arch::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Arch::Aarch64)
        } else {
            None
        }
    }

    /// `AUDIT_ARCH_*` of linux/audit.h: the value the kernel puts into `seccomp_data.arch`.
    fn audit(self) -> u32 {
        match self {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        }
    }

    /// The name in the `architectures` of a profile.
    fn oci_name(self) -> &'static str {
        match self {
            Arch::X86_64 => "SCMP_ARCH_X86_64",
            Arch::Aarch64 => "SCMP_ARCH_AARCH64",
        }
    }
}

/// A compiled filter, ready for `seccomp(SECCOMP_SET_MODE_FILTER)`.
#[derive(Debug, Clone)]
pub struct Filter {
    code: Vec<libc::sock_filter>,
}

impl Filter {
    /// The program; 1 to 4096 instructions.
    pub fn instructions(&self) -> &[libc::sock_filter] {
        &self.code
    }
}

/// Why a profile can't become a filter. `profile` is the name given to [`compile`].
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// Not JSON, a missing or unknown key, an unknown action or operator. The source names line and column.
    #[error("seccomp profile {profile} can't be read")]
    Parse { profile: String, source: serde_json::Error },
    /// A name that is no system call of any architecture.
    #[error("seccomp profile {profile} names the unknown system call {syscall}")]
    UnknownSyscall { profile: String, syscall: String },
    /// A rule that can't be kept, or that can't mean what it says.
    #[error("seccomp profile {profile}, rule for {syscall}: {problem}")]
    Rule { profile: String, syscall: String, problem: String },
    /// An errno given to an action that returns none, or one that Linux has not.
    #[error("seccomp profile {profile}: {problem}")]
    Errno { profile: String, problem: String },
    /// The profile lists architectures, and the one asked for is not there, or one is unknown.
    #[error("seccomp profile {profile}: {problem}")]
    Architecture { profile: String, problem: String },
    /// More instructions than the kernel takes (`BPF_MAXINSNS`).
    #[error(
        "seccomp profile {profile} needs {instructions} instructions, the kernel takes {MAX_INSTRUCTIONS}"
    )]
    TooLarge { profile: String, instructions: usize },
    /// creel makes filters for x86_64 and aarch64 only.
    #[error("seccomp profile {profile}: no filters can be made for this machine's architecture")]
    Machine { profile: String },
}

/// `BPF_MAXINSNS` of linux/bpf_common.h.
const MAX_INSTRUCTIONS: usize = 4096;

/// Compiles the profile `json` for the architecture creel runs on. `name` stands for it in errors.
pub fn compile(json: &str, name: &str) -> Result<Filter, SeccompError> {
    match Arch::native() {
        Some(arch) => compile_for(json, name, arch),
        None => Err(SeccompError::Machine { profile: name.to_owned() }),
    }
}

/// Compiles the profile `json` for `arch`. `name` stands for it in errors.
pub fn compile_for(json: &str, name: &str, arch: Arch) -> Result<Filter, SeccompError> {
    let profile = serde_json::from_str(json)
        .map_err(|source| SeccompError::Parse { profile: name.to_owned(), source })?;
    let policy = policy::resolve(&profile, name, arch)?;
    let code = emit::program(&policy, arch);
    if code.len() > MAX_INSTRUCTIONS {
        return Err(SeccompError::TooLarge { profile: name.to_owned(), instructions: code.len() });
    }
    Ok(Filter { code })
}
