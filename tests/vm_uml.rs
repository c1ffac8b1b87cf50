//! Promise: on pure cgroup v2 every limit holds, every end is told truly and everything is cleaned, as root and as an ordinary user. The
//! daily lane: guests of User-Mode Linux 6.12 (`tests/vm/README.md`), one for each test; the checks are in `tests/vm/guest/`.

mod vm_common;

use vm_common::check_in_guest;

const UML: [&str; 1] = ["run-in-uml.sh"];

#[test]
fn limits_as_root() {
    let checks = [
        "cgroup2-holds-all-three",
        "values-are-written-and-init-has-its-own-leaf",
        "memory-limit-bites",
        "a-childs-oom-ends-the-run",
        "oom-kills-the-whole-leaf-and-init-tells",
        "an-oom-above-the-run-is-told-too",
        "dev-shm-is-memory-of-the-run",
        "death-by-sigkill-is-no-oom",
        "tmp-is-full-before-memory-is",
        "pids-limit-bites",
        "cpu-quota-throttles",
        "the-launcher-sleeps",
        "disk-by-tmpfs",
        "disk-by-watcher",
        "disk-by-project-quota",
        "office-profile",
        "an-unlimited-outsider-is-left-alone",
    ];
    check_in_guest(&UML, "limits.py", &[], &checks);
}

#[test]
fn endings_as_root() {
    let checks = [
        "a-timeout-ends-stubborn-children",
        "a-good-end-ends-stubborn-children",
        "a-fork-bomb-ends",
        "cgroup-kill-is-used",
        "a-cancel-cleans",
        "init-killed-is-a-lost-end",
        "launcher-killed-is-a-lost-end",
        "creel-killed-and-the-launcher-cleans",
        "all-killed-and-gc-cleans",
        "gc-leaves-the-living-alone",
        "killed-at-any-moment",
        "the-next-run-cleans-too",
        "fifty-at-once",
    ];
    check_in_guest(&UML, "endings.py", &[], &checks);
}

#[test]
fn delegation_to_an_ordinary_user() {
    let checks = [
        "without-delegation-a-refusal-names-both-ways",
        "without-delegation-the-rest-holds-when-allowed",
        "delegated-limits-hold",
        "delegated-memory",
        "delegated-pids",
        "delegated-cpu",
        "delegated-disk-by-tmpfs",
        "delegated-timeout-and-stubborn-children",
        "delegated-and-killed",
        "delegated-ten-at-once",
        "nothing-but-our-directory-in-the-users-cgroup",
        "alone-in-a-delegated-scope",
        "alone-in-a-scope-below-a-delegated-one",
        "a-shared-scope-is-not-divided",
        "a-missing-controller-is-named",
        "half-a-delegation-is-none",
        "a-read-only-cgroup-mount-is-refused-as-root-too",
        "no-cgroup-mount-is-refused",
        "in-a-cgroup-namespace",
    ];
    check_in_guest(&UML, "delegation.py", &[], &checks);
}

/// What must hold in a sandbox that was made ahead, too.
const AHEAD: [&str; 8] = [
    "cgroup2-holds-all-three",
    "memory-limit-bites",
    "oom-kills-the-whole-leaf-and-init-tells",
    "death-by-sigkill-is-no-oom",
    "pids-limit-bites",
    "cpu-quota-throttles-and-the-timeout-ends-stubborn-children",
    "disk-by-tmpfs",
    "inputs-and-outputs",
];

#[test]
fn limits_warm() {
    check_in_guest(&UML, "modes.py", &["warm"], &AHEAD);
}

#[test]
fn limits_zygote() {
    check_in_guest(&UML, "modes.py", &["zygote"], &AHEAD);
}
