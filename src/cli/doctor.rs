//! Placeholder in this copy: the lead's file replaces it.

use std::process::ExitCode;

pub fn main(_json: bool) -> ExitCode {
    ExitCode::from(125)
}
