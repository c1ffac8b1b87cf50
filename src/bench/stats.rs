//! What is said of a sample: order statistics, and how sure a median is.

use serde::Serialize;

/// Order statistics, in the unit of the values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    pub min: f64,
    pub mean: f64,
}

/// The median of something, and an interval that holds the true one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    pub n: usize,
    pub median: f64,
    pub low: f64,
    pub high: f64,
    /// The probability that the true median is between them, at least 0.95 where there are enough values: with fewer than six even the
    /// smallest and the largest give less.
    pub confidence: f64,
}

impl Summary {
    /// None of no values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Summary {
            n: sorted.len(),
            median: quantile(&sorted, 0.5),
            p95: quantile(&sorted, 0.95),
            p99: quantile(&sorted, 0.99),
            max,
            min,
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        })
    }
}

/// The values in order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile `q` of sorted values, between neighbours in proportion (as numpy's default, Hyndman and Fan's type 7). 0 of no values.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// The median with an interval from order statistics: no distribution is assumed, only that the values are independent.
///
/// The number of values below the true median is binomial(n, 1/2). So the k-th smallest and the k-th largest have it between them unless
/// fewer than k values fall on one side: with probability 1 - 2 P(B < k). The largest k that keeps 0.95 is taken.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 {
        return None;
    }
    let mut k = 1;
    while 2 * (k + 1) <= n + 1 && coverage(n, k + 1) >= 0.95 {
        k += 1;
    }
    Some(Interval {
        n,
        median: quantile(&sorted, 0.5),
        low: sorted[k - 1],
        high: sorted[n - k],
        confidence: coverage(n, k).max(0.0),
    })
}

/// 1 - 2 P(B < k), B binomial(n, 1/2). By logarithms: 2^-n is no number of its own from 1,075 on.
fn coverage(n: usize, k: usize) -> f64 {
    let mut log_choose = 0.0;
    let mut below = 0.0;
    for i in 0..k {
        if i > 0 {
            log_choose += ((n - i + 1) as f64).ln() - (i as f64).ln();
        }
        below += (log_choose - n as f64 * std::f64::consts::LN_2).exp();
    }
    1.0 - 2.0 * below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4
    }

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.percentile([15, 20, 35, 40, 50], [50, 95, 99]) = 35, 48, 49.6
        let s = Summary::of(&[50.0, 15.0, 40.0, 20.0, 35.0]).unwrap();
        assert_eq!((s.n, s.median, s.min, s.max, s.mean), (5, 35.0, 15.0, 50.0, 32.0));
        assert!(near(s.p95, 48.0) && near(s.p99, 49.6));
        assert!(near(Summary::of(&[1.0, 2.0]).unwrap().median, 1.5));
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.p99, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Sign test, 95 %: n = 6 takes the outermost; n = 10 the 2nd and 9th (97.9 %); n = 20 the 6th and 15th (95.9 %).
        let of = |n: usize| interval(&(1..=n).map(|v| v as f64).collect::<Vec<_>>()).unwrap();
        let (six, ten, twenty) = (of(6), of(10), of(20));
        assert_eq!((six.low, six.high), (1.0, 6.0));
        assert!(near(six.confidence, 0.96875));
        assert_eq!((ten.low, ten.high), (2.0, 9.0));
        assert!(near(ten.confidence, 0.97852));
        assert_eq!((twenty.low, twenty.high), (6.0, 15.0));
        assert!(near(twenty.confidence, 0.95861));
    }

    #[test]
    fn few_values_promise_less() {
        let three = interval(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((three.low, three.median, three.high), (1.0, 2.0, 3.0));
        assert!(near(three.confidence, 0.75));
        let one = interval(&[4.0]).unwrap();
        assert_eq!((one.low, one.high, one.confidence), (4.0, 4.0, 0.0));
        assert_eq!(interval(&[]), None);
    }

    #[test]
    fn many_values_do_not_underflow() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let i = interval(&values).unwrap();
        assert!(i.confidence >= 0.95 && i.confidence < 0.96, "{i:?}");
        // About n/2 ± 0.98 √n.
        assert!(i.low > 2420.0 && i.high < 2580.0, "{i:?}");
    }
}
