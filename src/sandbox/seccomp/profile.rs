//! The file format: the `linux.seccomp` object of an OCI `config.json`, as strict as a policy should be read.
//!
//! Own types instead of `oci_spec`'s: those skip keys they don't know, so a misspelt `errnoRet` or `valueTwo` would
//! silently weaken or change the rule.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A string that is read in place, unless it has escapes. (Hundreds of names: each allocation would count.)
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// One profile. Keys that creel can't honour (`flags`, `listenerPath`, `listenerMetadata`) are errors.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Profile<'a> {
    pub default_action: ActionName,
    pub default_errno_ret: Option<u32>,
    #[serde(default)]
    pub architectures: Vec<String>,
    #[serde(default, borrow)]
    pub syscalls: Vec<Entry<'a>>,
}

/// Calls that share a decision.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entry<'a> {
    #[serde(borrow)]
    pub names: Vec<Text<'a>>,
    pub action: ActionName,
    pub errno_ret: Option<u32>,
    /// `None` (absent or null, as some writers have it) is the same as an empty list: any arguments.
    pub args: Option<Vec<ArgTest>>,
    /// For the reader of the file. Not in the OCI text, but moby's profiles have it.
    #[serde(rename = "comment")]
    _comment: Option<IgnoredAny>,
}

/// One test of one argument.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ArgTest {
    pub index: u32,
    /// The value; for `SCMP_CMP_MASKED_EQ` the mask.
    pub value: u64,
    /// For `SCMP_CMP_MASKED_EQ` what is left under the mask; else 0 or absent.
    #[serde(default)]
    pub value_two: u64,
    pub op: OpName,
}

/// The actions that creel can carry out. `SCMP_ACT_NOTIFY` and `SCMP_ACT_TRACE` need a supervisor that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum ActionName {
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
    #[serde(rename = "SCMP_ACT_KILL_PROCESS")]
    KillProcess,
    #[serde(rename = "SCMP_ACT_KILL_THREAD", alias = "SCMP_ACT_KILL")]
    KillThread,
    #[serde(rename = "SCMP_ACT_TRAP")]
    Trap,
    #[serde(rename = "SCMP_ACT_LOG")]
    Log,
}

/// Comparisons, all unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum OpName {
    #[serde(rename = "SCMP_CMP_NE")]
    Ne,
    #[serde(rename = "SCMP_CMP_LT")]
    Lt,
    #[serde(rename = "SCMP_CMP_LE")]
    Le,
    #[serde(rename = "SCMP_CMP_EQ")]
    Eq,
    #[serde(rename = "SCMP_CMP_GE")]
    Ge,
    #[serde(rename = "SCMP_CMP_GT")]
    Gt,
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEq,
}
