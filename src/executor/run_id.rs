//! Names of runs.

use std::fmt::Write as _;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A fresh name: `run_` and 32 hexadecimal digits of the kernel's randomness.
///
/// # Errors
/// The kernel has no randomness to give (it isn't built in, or this is the first second of a boot).
pub fn new_run_id() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::NONBLOCK)?;
    }
    let mut id = String::with_capacity(36);
    id.push_str("run_");
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_have_one_shape() {
        let (a, b) = (new_run_id().unwrap(), new_run_id().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.len(), 36);
        assert!(a.strip_prefix("run_").unwrap().bytes().all(|c| c.is_ascii_hexdigit()));
    }
}
