//! Computes medians with quartiles, and measures calls in a loop.

use std::time::{Duration, Instant};

/// Median and quartiles of a set of measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        // With few values, the quartiles are rounded outwards.
        let quarter = (values.len() - 1) / 4;
        let (low, high) = (values[quarter], values[values.len() - 1 - quarter]);
        Self { low, median: share(&values, 0.5), high }
    }
}

/// The quantile `share` of the sorted values: the value at that rank.
pub(crate) fn share(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Mean time of a call of `work` over `calls` calls, in nanoseconds.
pub(crate) fn time(calls: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        work();
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Millions of operations per second.
pub(crate) fn millions(operations: usize, taken: Duration) -> f64 {
    operations as f64 / taken.as_nanos() as f64 * 1e3
}
