//! Giving up capabilities.

use std::io;

use super::check;

/// `struct __user_cap_header_struct` and two `__user_cap_data_struct` (capset(2), version 3).
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

pub const VERSION_3: u32 = 0x2008_0522;

/// Capability numbers that the CLI keeps when it runs as root: those that handle files and processes of another uid, none that changes
/// the system (capabilities(7)).
pub const FILES_AND_KILL: u64 = CHOWN | DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER | KILL;

/// Capabilities as bits of a set (capabilities(7)).
pub const CHOWN: u64 = 1;
pub const DAC_OVERRIDE: u64 = 1 << 1;
pub const DAC_READ_SEARCH: u64 = 1 << 2;
pub const FOWNER: u64 = 1 << 3;
pub const FSETID: u64 = 1 << 4;
pub const KILL: u64 = 1 << 5;
pub const SETGID: u64 = 1 << 6;
pub const SETUID: u64 = 1 << 7;

/// The number of the last capability that this kernel knows (capabilities(7)).
pub fn last() -> u32 {
    // SAFETY: plain integers.
    let known = |cap: u32| unsafe { libc::prctl(libc::PR_CAPBSET_READ, cap, 0, 0, 0) } >= 0;
    (0..63).take_while(|cap| known(*cap)).last().unwrap_or(0)
}

/// Takes all capabilities but `keep` out of the bounding set. A new user namespace gives a full one back, so this is done in each child.
pub fn bound_to(keep: u64) -> io::Result<()> {
    for cap in (0..64).filter(|cap| keep & 1 << cap == 0) {
        // SAFETY: plain integers.
        let ret = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, cap, 0, 0, 0) };
        if ret != 0 {
            let err = io::Error::last_os_error();
            // EINVAL: past the last capability that this kernel knows.
            return if err.raw_os_error() == Some(libc::EINVAL) && cap > 0 { Ok(()) } else { Err(err) };
        }
    }
    Ok(())
}

/// Sets effective and permitted capabilities of the calling thread to `keep` and empties the inheritable and ambient sets
/// (non-empty inheritable sets: CVE-2022-29162, CVE-2022-27650, CVE-2025-27612).
pub fn keep_only(keep: u64) -> io::Result<()> {
    // SAFETY: plain integers.
    let ret = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    check(ret.into())?;
    let mut header = CapHeader { version: VERSION_3, pid: 0 };
    let half = |bits: u64| CapData { effective: bits as u32, permitted: bits as u32, inheritable: 0 };
    let data = [half(keep), half(keep >> 32)];
    // SAFETY: a version-3 header and the two data elements it asks for, alive through the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) }).map(drop)
}

/// The calling thread's effective capabilities.
pub fn effective() -> io::Result<u64> {
    let mut header = CapHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: a version-3 header and the two data elements it fills, alive through the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].effective) | u64::from(data[1].effective) << 32)
}
