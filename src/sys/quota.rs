//! Project quotas: a bound on bytes and inodes of a directory tree that the file system itself holds (quotactl(2), Linux 5.14 for
//! `quotactl_fd`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

const PRJQUOTA: u32 = 2;
const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
/// Hard limits of blocks and inodes are valid (linux/quota.h: QIF_BLIMITS | QIF_ILIMITS).
const LIMITS: u32 = 1 | 4;
/// linux/fs.h
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820_u32 as libc::Ioctl;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;

/// `struct if_dqblk`
#[repr(C)]
#[derive(Default)]
struct Block {
    block_hard: u64,
    block_soft: u64,
    space: u64,
    inode_hard: u64,
    inode_soft: u64,
    inodes: u64,
    block_time: u64,
    inode_time: u64,
    valid: u32,
}

/// `struct fsxattr`
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

fn quotactl(fs: BorrowedFd<'_>, command: u32, project: u32, block: &mut Block) -> io::Result<()> {
    let command = command << 8 | PRJQUOTA;
    // SAFETY: both commands take a struct if_dqblk, which lives through the call.
    check(unsafe { libc::syscall(libc::SYS_quotactl_fd, fs.as_raw_fd(), command, project, &raw mut *block) })
        .map(drop)
}

/// Whether the file system of `fs` has project quotas switched on and this process may set them.
pub fn available(fs: BorrowedFd<'_>, project: u32) -> bool {
    quotactl(fs, Q_GETQUOTA, project, &mut Block::default()).is_ok() && limit(fs, project, 0, 0).is_ok()
}

/// Limits `project` to `bytes` and `inodes`; 0 and 0: no limit.
pub fn limit(fs: BorrowedFd<'_>, project: u32, bytes: u64, inodes: u64) -> io::Result<()> {
    // Blocks of 1 KiB (QIF_DQBLKSIZE).
    let mut block =
        Block { block_hard: bytes.div_ceil(1024), inode_hard: inodes, valid: LIMITS, ..Block::default() };
    quotactl(fs, Q_SETQUOTA, project, &mut block)
}

/// Makes `dir`, and all that will be made in it, part of `project`. The payload can't change that: only the initial user namespace may.
pub fn assign(dir: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut attributes = Attributes::default();
    // SAFETY: the ioctl fills a struct fsxattr, which lives through the call.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) }.into())?;
    attributes.project = project;
    attributes.flags |= FS_XFLAG_PROJINHERIT;
    // SAFETY: the ioctl reads a struct fsxattr, which lives through the call.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const attributes) }.into()).map(drop)
}
