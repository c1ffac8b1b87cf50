//! Which landlock the kernel has; the rules themselves are made with the landlock crate.

/// The kernel's landlock ABI version, 0 when it has none or it is switched off (landlock_create_ruleset(2)).
pub fn abi() -> i32 {
    const VERSION: u32 = 1;
    // SAFETY: with the VERSION flag the kernel takes a null pointer and a size of 0.
    let ret =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    i32::try_from(ret).unwrap_or(0).max(0)
}
