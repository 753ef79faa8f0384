//! Histograms of call durations, measured for a sample of the calls.

use std::cell::Cell;
use std::time::Instant;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Histograms of the durations of allocations (including waits) and evictions. Only a sample of the
/// calls is timed.
///
/// # Examples
///
/// ```
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{Timers, text};
///
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let mut registry = Registry::default();
/// let timers = Timers::register(100, &mut registry);
/// // Each scheduler thread has timers of its own.
/// let (session, allocation) = (cache.session(), timers.allocation());
/// let blocks = allocation.time(|| session.reserve(2))?;
/// assert!(text(&registry).contains("\nradixkv_allocation_seconds_count 1\n"));
/// # drop(blocks);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Timers {
    allocation: Histogram,
    eviction: Histogram,
    every: u32,
}

impl Timers {
    /// Adds the histograms to a registry. Each timer times its first call and then one in `every`
    /// calls, or each call if `every` is zero.
    pub fn register(every: u32, registry: &mut Registry) -> Self {
        // Buckets from a microsecond to a minute.
        let histogram = || Histogram::new(exponential_buckets(1e-6, 4.0, 14));
        let timers = Self { allocation: histogram(), eviction: histogram(), every };
        for (name, help, histogram) in [
            (
                "radixkv_allocation_seconds",
                "Duration of calls that allocate blocks, waits included; sampled",
                &timers.allocation,
            ),
            ("radixkv_eviction_seconds", "Duration of calls that evict; sampled", &timers.eviction),
        ] {
            registry.register(name, help, histogram.clone());
        }
        timers
    }

    /// Makes a timer for calls that allocate blocks: `reserve`, `acquire`, and their waiting
    /// variants.
    pub fn allocation(&self) -> Timer {
        Timer::new(&self.allocation, self.every)
    }

    /// Makes a timer for calls that evict: `evict`, `run_once`.
    pub fn eviction(&self) -> Timer {
        Timer::new(&self.eviction, self.every)
    }
}

/// Times calls of one thread into one histogram. Made by [`Timers`].
#[derive(Debug)]
pub struct Timer {
    histogram: Histogram,
    every: u32,
    /// The number of calls before the next timed one.
    left: Cell<u32>,
}

impl Timer {
    fn new(histogram: &Histogram, every: u32) -> Self {
        Self { histogram: histogram.clone(), every: every.max(1), left: Cell::new(0) }
    }

    /// Runs `work` and measures its duration if this call is sampled.
    pub fn time<R>(&self, work: impl FnOnce() -> R) -> R {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return work();
        }
        self.left.set(self.every - 1);
        let began = Instant::now();
        let result = work();
        self.histogram.observe(began.elapsed().as_secs_f64());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn one_of_so_many_calls_is_timed() {
        let mut registry = Registry::default();
        let timers = Timers::register(10, &mut registry);
        let timer = timers.eviction();
        assert_eq!((0..31).map(|i| timer.time(|| i)).sum::<i32>(), 465);
        assert!(text(&registry).contains("radixkv_eviction_seconds_count 4\n"), "{}", text(&registry));
    }
}
