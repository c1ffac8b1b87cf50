//! Promise: creel works on the kernels that Debian 12 ships. The fidelity lane: one guest for each kernel in software emulation, where
//! everything takes 10 to 20 times as long, and so a sample only (`tests/vm/guest/sample.py`).

mod vm_common;

use vm_common::check_in_guest;

const CHECKS: [&str; 10] = [
    "inputs-outputs-and-the-report",
    "mounts-are-read-only",
    "memory-limit-bites",
    "death-by-sigkill-is-no-oom",
    "pids-limit-bites",
    "cpu-quota-throttles-and-the-timeout-ends-stubborn-children",
    "a-fork-bomb-ends",
    "disk-by-tmpfs",
    "killed-and-cleaned",
    "an-ordinary-user-with-a-delegated-cgroup",
];

/// Without open_tree on detached trees, idmapped tmpfs and most of landlock.
#[test]
fn linux_6_1_with_landlock_abi_2() {
    check_in_guest(&["run-in-qemu.sh", "6.1"], "sample.py", &["2"], &CHECKS);
}

#[test]
fn linux_6_12_with_landlock_abi_6() {
    check_in_guest(&["run-in-qemu.sh", "6.12"], "sample.py", &["6"], &CHECKS);
}
