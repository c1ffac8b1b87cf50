//! What `creel` says when it doesn't run: one line on stderr, and an exit code.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use crate::executor::stage::StageError;
use crate::text::one_line;

/// Exit code for what the caller has to mend.
pub const REFUSED: u8 = 126;
/// Exit code for a fault of the host or of creel.
pub const HOST_FAULT: u8 = 125;

/// Exit code for what the caller ended with a signal.
pub const CANCELLED: u8 = 130;

/// A request that is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `area.reason`; the area `host` means that the caller is not at fault.
    pub code: String,
    /// What is wrong, on what.
    pub message: String,
    /// How to mend it; may be empty.
    pub hint: String,
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Refusal { code: code.to_owned(), message: message.into(), hint: String::new() }
    }

    /// The same with a word on how to mend it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// 125 if the host is at fault, 130 for what the caller cancelled, else 126.
    pub fn exit_code(&self) -> u8 {
        match self.code.as_str() {
            code if code.starts_with("host.") => HOST_FAULT,
            code if code.ends_with("_cancelled") => CANCELLED,
            _ => REFUSED,
        }
    }

    /// Writes the line to stderr and gives the exit code.
    pub fn report(&self) -> ExitCode {
        // With stderr gone there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "{self}");
        ExitCode::from(self.exit_code())
    }
}

/// `creel: message (hint)`, always one printable line.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "creel: {}", one_line(&self.message))?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " ({})", one_line(&self.hint)) }
    }
}

impl From<StageError> for Refusal {
    fn from(error: StageError) -> Self {
        let code = match error.is_host_fault() {
            true => "host.write_failed",
            false => error.code(),
        };
        Refusal::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_printable_line() {
        let refusal = Refusal::new("usage.invalid", "bad\nthing \x1b[2J").hint("do\nthis");
        assert_eq!(refusal.to_string(), "creel: bad thing \\u{1b}[2J (do this)");
        assert_eq!(refusal.exit_code(), 126);
        assert_eq!(Refusal::new("host.random", "x").exit_code(), 125);
    }
}
