//! Sizes, CPUs, counts and times as people write them.
//!
//! Everything is read with whole-number arithmetic: no rounding surprises, and `nan`, `inf` and `1e9` are not numbers here.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::text::quoted;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// No limit of creel is larger than this: one pebibyte.
pub const SIZE_MAX: u64 = 1 << 50;
/// The kernel's own bound on process numbers (`PID_MAX_LIMIT` on 64 bits).
pub const PIDS_MAX: u64 = 1 << 22;
/// Below this not even `/bin/true` and Python start (measured: Python 3.11 needs 3 MiB on cgroup v1).
pub const MEMORY_MIN: u64 = 4 * MIB;
/// The smallest tmpfs: sixteen pages.
pub const TMPFS_MIN: u64 = 64 * KIB;
/// cgroup v2 takes no quota below 1 ms in a period of 100 ms.
const CPU_MILLIS: RangeInclusive<u64> = 10..=1_024_000;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const SECOND_MIN: Duration = Duration::from_millis(1);

/// Why a value was not taken. One line: what is wrong, the value, and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value} {problem}; accepted: {accepted}")]
pub struct UnitError {
    /// The value, quoted.
    value: String,
    problem: Problem,
    accepted: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("is empty")]
    Empty,
    #[error("is not a number")]
    NotANumber,
    #[error("is negative")]
    Negative,
    #[error("is zero, which does not mean \"no limit\"")]
    Zero,
    #[error("has an unknown unit")]
    Unit,
    #[error("is not a whole number")]
    Fraction,
    #[error("is too small")]
    Small,
    #[error("is too large")]
    Large,
}

/// Bytes: `1048576`, `64k`, `512m`, `1.5g`, `50MiB`, `50 MB`. All multiples are binary (1 k = 1,024). `min` is in bytes.
///
/// # Errors
/// Not a number, zero, negative, below `min`, or above 1 PiB.
pub fn size(text: &str, min: u64) -> Result<u64, UnitError> {
    let fail = |problem| {
        let accepted = format!("{} to 1p, such as 512m, 1g or 1048576", show_size(min));
        Err(UnitError { value: quoted(text), problem, accepted })
    };
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number = match decimal(number.trim_end()) {
        Ok(number) => number,
        Err(Problem::Empty) if !unit.is_empty() => return fail(Problem::NotANumber),
        Err(problem) => return fail(problem),
    };
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return fail(Problem::Unit),
    };
    if shift == 0 && number % NANO != 0 {
        return fail(Problem::Fraction);
    }
    // Compared before the shift, which could overflow.
    if number > (u128::from(SIZE_MAX) * NANO) >> shift {
        return fail(Problem::Large);
    }
    match u64::try_from((number << shift) / NANO) {
        Ok(bytes) if bytes < min => fail(Problem::Small),
        Ok(bytes) => Ok(bytes),
        Err(_) => fail(Problem::Large),
    }
}

/// CPUs in thousandths: `0.5` → 500. A fourth decimal is cut.
///
/// # Errors
/// Not a number, below 0.01 or above 1024.
pub fn cpus(text: &str) -> Result<u32, UnitError> {
    let fail = |problem| {
        let accepted = "0.01 to 1024 CPUs, such as 0.5 or 2".to_owned();
        Err(UnitError { value: quoted(text), problem, accepted })
    };
    match decimal(text.trim()) {
        Ok(number) => match u64::try_from(number / (NANO / 1000)) {
            Ok(millis) if millis < *CPU_MILLIS.start() => fail(Problem::Small),
            Ok(millis) if millis <= *CPU_MILLIS.end() => {
                u32::try_from(millis).or_else(|_| fail(Problem::Large))
            }
            _ => fail(Problem::Large),
        },
        Err(problem) => fail(problem),
    }
}

/// A whole number from 1 to `max`.
///
/// # Errors
/// Not a whole number, zero, negative, or above `max`.
pub fn count(text: &str, max: u64) -> Result<u64, UnitError> {
    let fail = |problem| {
        Err(UnitError { value: quoted(text), problem, accepted: format!("a whole number from 1 to {max}") })
    };
    match decimal(text.trim()) {
        Ok(number) if number % NANO != 0 => fail(Problem::Fraction),
        Ok(number) => match u64::try_from(number / NANO) {
            Ok(count) if count <= max => Ok(count),
            _ => fail(Problem::Large),
        },
        Err(problem) => fail(problem),
    }
}

/// Seconds: `30`, `0.5`, `1.5`.
///
/// # Errors
/// Not a number, below a millisecond, or above a year.
pub fn seconds(text: &str) -> Result<Duration, UnitError> {
    let fail = |problem| {
        let accepted = "0.001 to 31536000 seconds, such as 30 or 0.5".to_owned();
        Err(UnitError { value: quoted(text), problem, accepted })
    };
    match decimal(text.trim()) {
        Ok(nanos) => match u64::try_from(nanos).map(Duration::from_nanos) {
            Ok(time) if time < SECOND_MIN => fail(Problem::Small),
            Ok(time) if time <= YEAR => Ok(time),
            _ => fail(Problem::Large),
        },
        Err(problem) => fail(problem),
    }
}

/// `512m` for a whole multiple, `67174400` for none.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, 't'), (30, 'g'), (20, 'm'), (10, 'k')] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// `30` or `0.5`: seconds without needless digits.
pub fn show_seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// What [`decimal`] counts in: billionths.
const NANO: u128 = 1_000_000_000;

/// `digits[.digits]` in billionths; decimals beyond the ninth are cut.
fn decimal(text: &str) -> Result<u128, Problem> {
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(Problem::NotANumber);
    }
    if whole.is_empty() && !digits.contains('.') {
        return Err(Problem::NotANumber);
    }
    let is_zero = digits.bytes().all(|b| matches!(b, b'0' | b'.'));
    match (negative, is_zero) {
        (_, true) => return Err(Problem::Zero),
        (true, false) => return Err(Problem::Negative),
        (false, false) => {}
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > 18 {
        return Err(Problem::Large);
    }
    let mut value: u128 = 0;
    for byte in whole.bytes() {
        value = value * 10 + u128::from(byte - b'0');
    }
    let mut fraction = fraction.bytes();
    for _ in 0..9 {
        value = value * 10 + u128::from(fraction.next().unwrap_or(b'0') - b'0');
    }
    // A number such as 1e-12 written out is not zero, but nothing is left of it.
    if value == 0 { Err(Problem::Small) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem<T: std::fmt::Debug>(result: Result<T, UnitError>) -> Problem {
        result.unwrap_err().problem
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("64k", 64 << 10),
            ("512m", 512 << 20),
            ("1g", 1 << 30),
            ("50MiB", 50 << 20),
            ("50 MB", 50 << 20),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            (" 2T ", 2 << 40),
            ("1p", 1 << 50),
            ("100b", 100),
            ("007k", 7 << 10),
        ] {
            assert_eq!(size(text, 1), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bad_sizes() {
        for (text, what) in [
            ("", Problem::Empty),
            ("m", Problem::NotANumber),
            ("0", Problem::Zero),
            ("0m", Problem::Zero),
            ("-0", Problem::Zero),
            ("-1m", Problem::Negative),
            ("nan", Problem::NotANumber),
            ("1e9", Problem::Unit),
            ("five", Problem::NotANumber),
            ("512x", Problem::Unit),
            ("512 m b", Problem::Unit),
            ("1,5g", Problem::NotANumber),
            ("1.2.3m", Problem::NotANumber),
            ("--5", Problem::NotANumber),
            ("٣m", Problem::NotANumber),
            ("1.5", Problem::Fraction),
            ("2p", Problem::Large),
            ("1.001p", Problem::Large),
            ("99999999999999999999999999999999", Problem::Large),
            ("999999999999999999p", Problem::Large),
            ("0.0000000001k", Problem::Small),
            ("0.0001k", Problem::Small),
        ] {
            assert_eq!(problem(size(text, 1)), what, "{text}");
        }
        assert_eq!(problem(size("3m", MEMORY_MIN)), Problem::Small);
        assert_eq!(
            size("-5m", MEMORY_MIN).unwrap_err().to_string(),
            "'-5m' is negative; accepted: 4m to 1p, such as 512m, 1g or 1048576"
        );
    }

    #[test]
    fn cpu_shares() {
        for (text, millis) in
            [("0.5", 500), ("1", 1000), ("0.01", 10), (".25", 250), ("2.", 2000), ("1024", 1_024_000)]
        {
            assert_eq!(cpus(text), Ok(millis), "{text}");
        }
        for (text, what) in [
            ("0", Problem::Zero),
            ("0.0", Problem::Zero),
            ("0.009", Problem::Small),
            ("1025", Problem::Large),
            ("1e400", Problem::NotANumber),
            ("NaN", Problem::NotANumber),
            ("inf", Problem::NotANumber),
            ("-0.5", Problem::Negative),
            (".", Problem::NotANumber),
            ("", Problem::Empty),
            ("18446744073709551616", Problem::Large),
        ] {
            assert_eq!(problem(cpus(text)), what, "{text}");
        }
    }

    #[test]
    fn counts_and_times() {
        assert_eq!(count("128", PIDS_MAX), Ok(128));
        assert_eq!(count("4194304", PIDS_MAX), Ok(4_194_304));
        assert_eq!(problem(count("4194305", PIDS_MAX)), Problem::Large);
        assert_eq!(problem(count("1.5", PIDS_MAX)), Problem::Fraction);
        assert_eq!(problem(count("max", PIDS_MAX)), Problem::NotANumber);
        assert_eq!(seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(problem(seconds("0.0005")), Problem::Small);
        assert_eq!(problem(seconds("31536001")), Problem::Large);
        assert_eq!(problem(seconds("99999999999999999999")), Problem::Large);
        assert_eq!(problem(seconds("10s")), Problem::NotANumber);
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        assert_eq!(show_size(512 << 20), "512m");
        assert_eq!(show_size(3 << 29), "1536m");
        assert_eq!(show_size(4097), "4097");
        assert_eq!(show_size(0), "0");
        assert_eq!(show_seconds(Duration::from_millis(1500)), "1.5");
        assert_eq!(show_seconds(Duration::from_secs(120)), "120");
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in ".*") {
            let _ = (size(&text, 1), cpus(&text), count(&text, PIDS_MAX), seconds(&text));
        }

        #[test]
        fn sizes_come_back(bytes in 1..=SIZE_MAX) {
            proptest::prop_assert_eq!(size(&show_size(bytes), 1), Ok(bytes));
        }
    }
}
