//! The tmpfs rule: a full `/tmp` must be ENOSPC before it is an out-of-memory kill.
//!
//! Pages of a tmpfs are memory of the sandbox. Sizes that add up to more than the memory would make a program that fills
//! `/tmp` die, where on any other machine it is told "No space left on device".

use crate::limits::Limits;
use crate::units::{TMPFS_MIN, show_size};

const PAGE: u64 = 4096;

/// `--tmp` and `--memory` contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a /tmp of {tmp} does not fit into a memory of {memory}: its pages are memory, and /tmp, /dev/shm and /run together \
     get at most three quarters ({budget}); give a --tmp of at most {most}, or more --memory",
    tmp = show_size(*.tmp), memory = show_size(*.memory), budget = show_size(*.budget), most = show_size(*.most)
)]
pub struct TmpTooLarge {
    tmp: u64,
    memory: u64,
    budget: u64,
    most: u64,
}

/// Makes the three tmpfs sizes fit the memory; call it when all flags are applied. Returns a remark for the report when it
/// changed anything.
///
/// * Sizes from a profile are scaled together to half of the memory.
/// * A `/tmp` that the caller asked for (`tmp_is_explicit`) keeps its size; the other two are scaled as far as needed.
///
/// # Errors
/// [`TmpTooLarge`] if an explicit `/tmp` and the smallest `/dev/shm` and `/run` are more than 3/4 of the memory.
pub fn fit_tmpfs(limits: &mut Limits, tmp_is_explicit: bool) -> Result<Option<String>, TmpTooLarge> {
    let Limits { memory, tmp, shm, run, .. } = *limits;
    let sum = |tmp: u64, shm: u64, run: u64| tmp.saturating_add(shm).saturating_add(run);
    if sum(tmp, shm, run) <= memory / 2 {
        return Ok(None);
    }
    if tmp_is_explicit {
        let budget = memory / 4 * 3;
        if sum(tmp, shm, run) <= budget {
            return Ok(None);
        }
        let most = budget.saturating_sub(2 * TMPFS_MIN) / PAGE * PAGE;
        if tmp > most {
            return Err(TmpTooLarge { tmp, memory, budget, most });
        }
        let rest = budget - tmp;
        // Both get the floor first, and share what is left above it: so the sum never exceeds the budget.
        let total = (shm - TMPFS_MIN.min(shm)) + (run - TMPFS_MIN.min(run));
        limits.shm = share(shm, rest - 2 * TMPFS_MIN, total);
        limits.run = share(run, rest - 2 * TMPFS_MIN, total);
        return Ok(Some(format!(
            "/dev/shm scaled from {} to {} and /run from {} to {}: with a /tmp of {} all three are at most three quarters of the memory ({})",
            show_size(shm),
            show_size(limits.shm),
            show_size(run),
            show_size(limits.run),
            show_size(tmp),
            show_size(memory)
        )));
    }
    let above = |size: u64| size - TMPFS_MIN.min(size);
    let total = above(tmp) + above(shm) + above(run);
    let budget = (memory / 2).saturating_sub(3 * TMPFS_MIN);
    limits.tmp = share(tmp, budget, total);
    limits.shm = share(shm, budget, total);
    limits.run = share(run, budget, total);
    Ok(Some(format!(
        "/tmp scaled from {} to {}, /dev/shm from {} to {}, /run from {} to {}: together at most half of the memory ({})",
        show_size(tmp),
        show_size(limits.tmp),
        show_size(shm),
        show_size(limits.shm),
        show_size(run),
        show_size(limits.run),
        show_size(memory)
    )))
}

/// The part of `budget` for a tmpfs of `size`: the floor, and of what is above it `budget`/`total`, in whole pages.
fn share(size: u64, budget: u64, total: u64) -> u64 {
    if size <= TMPFS_MIN || total == 0 {
        return size;
    }
    let above = u128::from(size - TMPFS_MIN) * u128::from(budget) / u128::from(total);
    let above = u64::try_from(above).unwrap_or(u64::MAX) / PAGE * PAGE;
    TMPFS_MIN.saturating_add(above).min(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{MEMORY_MIN, SIZE_MAX};

    const M: u64 = 1 << 20;

    fn limits(memory: u64, tmp: u64, shm: u64, run: u64) -> Limits {
        let base = crate::profile::load(crate::profile::DEFAULT).unwrap().limits;
        Limits { memory, tmp, shm, run, ..base }
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut l = limits(512 * M, 128 * M, 64 * M, 16 * M);
        let before = l.clone();
        assert_eq!(fit_tmpfs(&mut l, false), Ok(None));
        assert_eq!(l, before);
        // An explicit /tmp may use up to three quarters.
        let mut l = limits(512 * M, 300 * M, 64 * M, 16 * M);
        assert_eq!(fit_tmpfs(&mut l, true), Ok(None));
        assert_eq!(l.shm, 64 * M);
    }

    #[test]
    fn sizes_of_a_profile_are_scaled_to_half() {
        let mut l = limits(64 * M, 128 * M, 64 * M, 16 * M);
        let note = fit_tmpfs(&mut l, false).unwrap().unwrap();
        assert!(note.contains("/tmp scaled from 128m to "), "{note}");
        let sum = l.tmp + l.shm + l.run;
        assert!(sum <= 32 * M && sum > 31 * M, "{sum}");
        assert!((19 * M..20 * M).contains(&l.tmp), "{}", l.tmp);
    }

    #[test]
    fn an_explicit_tmp_keeps_its_size_or_is_refused() {
        let mut l = limits(512 * M, 350 * M, 64 * M, 16 * M);
        assert!(fit_tmpfs(&mut l, true).unwrap().unwrap().starts_with("/dev/shm scaled from 64m to "));
        assert_eq!(l.tmp, 350 * M);
        assert!(l.tmp + l.shm + l.run <= 384 * M);

        let mut l = limits(512 * M, 512 * M, 64 * M, 16 * M);
        let line = fit_tmpfs(&mut l, true).unwrap_err().to_string();
        assert!(line.contains("a /tmp of 512m does not fit into a memory of 512m"), "{line}");
        assert!(line.contains("three quarters (384m)"), "{line}");
    }

    proptest::proptest! {
        #[test]
        fn never_above_the_budget(
            memory in MEMORY_MIN..=SIZE_MAX, tmp in TMPFS_MIN..=SIZE_MAX, shm in TMPFS_MIN..=SIZE_MAX,
            run in TMPFS_MIN..=SIZE_MAX, explicit: bool,
        ) {
            let mut l = limits(memory, tmp, shm, run);
            if fit_tmpfs(&mut l, explicit).is_ok() {
                let budget = if explicit { memory / 4 * 3 } else { memory / 2 };
                proptest::prop_assert!(l.tmp + l.shm + l.run <= budget);
                proptest::prop_assert!(l.tmp >= TMPFS_MIN && l.shm >= TMPFS_MIN && l.run >= TMPFS_MIN);
                proptest::prop_assert!(l.tmp <= tmp && l.shm <= shm && l.run <= run);
            }
        }
    }
}
