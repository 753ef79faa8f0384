//! Latencies of the cache's operations, as histograms over all threads.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::Tally;

/// Percentiles of a latency, in nanoseconds; all zero if nothing was measured.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?;
/// let match_ns = replayed.report.match_ns;
/// assert!(match_ns.p50 <= match_ns.p99 && match_ns.p99 <= match_ns.p999);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// One call in a hundred takes longer.
    pub p99: u64,
    /// One call in a thousand takes longer.
    pub p999: u64,
}

/// A bar of a latency histogram: the number of calls that took longer than the previous bar's
/// `to_ns`, and at most its own.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?;
/// let calls: u64 = replayed.latencies.match_ns.iter().map(|bar| bar.calls).sum();
/// assert_eq!(calls, 1000);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LatencyBar {
    /// The longest latency that the bar counts, in nanoseconds: a power of two, less one.
    pub to_ns: u64,
    /// Number of calls.
    pub calls: u64,
}

/// Histograms of latencies, from the first bar with calls to the last one; empty if nothing was
/// measured.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let latencies = replay(&CLASSES[2].trace(0), &ReplayConfig::default(), &|| {})?.latencies;
/// assert!(latencies.match_ns.is_sorted_by_key(|bar| bar.to_ns));
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Latencies {
    /// Latencies of matches.
    pub match_ns: Vec<LatencyBar>,
    /// Latencies of inserts.
    pub insert_ns: Vec<LatencyBar>,
    /// Latencies of reservations that had to evict.
    pub evict_ns: Vec<LatencyBar>,
}

impl Latencies {
    pub(super) fn new(tally: &Tally) -> Self {
        Self { match_ns: tally.matches.bars(), insert_ns: tally.inserts.bars(), evict_ns: tally.evictions.bars() }
    }
}

/// Longer latencies are recorded as this one.
const LONGEST_NS: u64 = 60_000_000_000;

/// Latencies of one operation, kept with three significant digits.
#[derive(Debug, Clone)]
pub(super) struct Latency(Histogram<u64>);

impl Latency {
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("three digits and these bounds are supported"))
    }

    pub(super) fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("equal bounds");
    }

    /// Bars whose ends are powers of two, less one; the empty ones before the first call are left
    /// out.
    fn bars(&self) -> Vec<LatencyBar> {
        let bars = self.0.iter_log(1, 2.0);
        let bar = |to: hdrhistogram::iterators::IterationValue<u64>| LatencyBar {
            to_ns: to.value_iterated_to(),
            calls: to.count_since_last_iteration(),
        };
        bars.map(bar).skip_while(|bar| bar.calls == 0).collect()
    }

    /// All zero if nothing was recorded.
    pub(super) fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_all_threads() {
        let (mut a, mut b) = (Latency::new(), Latency::new());
        assert_eq!(a.percentiles(), Percentiles::default());
        for ns in 1..=990 {
            a.record(Duration::from_nanos(ns));
        }
        for _ in 0..10 {
            b.record(Duration::from_micros(100));
        }
        a.merge(&b);
        let bars: Vec<_> = a.bars().iter().map(|bar| (bar.to_ns, bar.calls)).collect();
        assert_eq!(bars[..3], [(1, 1), (3, 2), (7, 4)]);
        assert_eq!((bars.last(), bars.len()), (Some(&(131_071, 10)), 17));
        let Percentiles { p50, p99, p999 } = a.percentiles();
        assert_eq!((p50, p99), (500, 990));
        assert!((99_900..=100_100).contains(&p999), "{p999}");
    }
}
