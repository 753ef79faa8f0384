//! Counts of a running replay: each thread has its own, which are added up at the end.

use std::{collections::TryReserveError, mem};

use radixkv::{BlockId, Stats, Token};

use super::{latency::Latency, outcome::Outcome, stamps::Mismatch, times::RequestTimes};

/// Number of mismatches that are kept to be shown; the others are only counted.
const MISMATCHES_KEPT: usize = 10;
/// Index memory that does not count as overhead: structures of fixed size.
const INDEX_BASE: f64 = 1e6;

/// A lease that was held when the last request was served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The request's number in the trace.
    pub(super) number: usize,
    /// Number of tokens of the request's key that are leased.
    pub(super) tokens: usize,
}

/// The counts of one thread, or of all threads together.
pub(super) struct Tally {
    /// In the order of serving until `sort`; `numbers` has the requests' numbers in the trace.
    pub(super) outcomes: Vec<Outcome>,
    numbers: Vec<usize>,
    pub(super) inserted_blocks: u64,
    pub(super) peak_blocks: usize,
    pub(super) index_bytes_peak: usize,
    pub(super) index_ratio_peak: f64,
    pub(super) matches: Latency,
    pub(super) inserts: Latency,
    pub(super) evictions: Latency,
    pub(super) verify_errors: u64,
    /// Leases that were dropped early because blocks were short.
    pub(super) given_up: u64,
    pub(super) mismatches: Vec<Mismatch>,
    /// Only in trace time: one for each request, in the order of the trace.
    pub(super) times: Vec<RequestTimes>,
    /// Only in trace time: the most requests that ran concurrently.
    pub(super) peak_running: usize,
    pub(super) held: Vec<Held>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            outcomes: Vec::new(),
            numbers: Vec::new(),
            inserted_blocks: 0,
            peak_blocks: 0,
            index_bytes_peak: 0,
            index_ratio_peak: 0.0,
            matches: Latency::new(),
            inserts: Latency::new(),
            evictions: Latency::new(),
            verify_errors: 0,
            given_up: 0,
            mismatches: Vec::new(),
            times: Vec::new(),
            peak_running: 0,
            held: Vec::new(),
        }
    }

    /// Adds the outcome of request `number` of the trace.
    pub(super) fn served(&mut self, number: usize, outcome: Outcome) -> Result<(), TryReserveError> {
        self.numbers.try_reserve(1)?;
        self.outcomes.try_reserve(1)?;
        self.numbers.push(number);
        self.outcomes.push(outcome);
        Ok(())
    }

    /// Counts a mismatch, and keeps it if it is one of the first.
    pub(super) fn mismatched(&mut self, mismatch: Mismatch) {
        self.verify_errors += 1;
        if self.mismatches.len() < MISMATCHES_KEPT {
            self.mismatches.push(mismatch);
        }
    }

    pub(super) fn merge(&mut self, other: Self) -> Result<(), TryReserveError> {
        self.outcomes.try_reserve(other.outcomes.len())?;
        self.numbers.try_reserve(other.numbers.len())?;
        self.outcomes.extend(other.outcomes);
        self.numbers.extend(other.numbers);
        self.inserted_blocks += other.inserted_blocks;
        self.peak_blocks = self.peak_blocks.max(other.peak_blocks);
        self.index_bytes_peak = self.index_bytes_peak.max(other.index_bytes_peak);
        self.index_ratio_peak = self.index_ratio_peak.max(other.index_ratio_peak);
        self.matches.merge(&other.matches);
        self.inserts.merge(&other.inserts);
        self.evictions.merge(&other.evictions);
        self.verify_errors += other.verify_errors;
        self.given_up += other.given_up;
        self.mismatches.extend(other.mismatches);
        self.mismatches.truncate(MISMATCHES_KEPT);
        self.times.extend(other.times);
        self.peak_running = self.peak_running.max(other.peak_running);
        self.held.extend(other.held);
        Ok(())
    }

    /// Sorts the outcomes into the order of the trace.
    pub(super) fn sort(&mut self) -> Result<(), TryReserveError> {
        let numbers = mem::take(&mut self.numbers);
        if numbers.is_sorted() {
            return Ok(());
        }
        let (mut order, mut sorted) = (Vec::new(), Vec::new());
        order.try_reserve_exact(numbers.len())?;
        sorted.try_reserve_exact(numbers.len())?;
        order.extend(0..numbers.len());
        order.sort_unstable_by_key(|&at| numbers[at]);
        sorted.extend(order.into_iter().map(|at| self.outcomes[at]));
        self.outcomes = sorted;
        Ok(())
    }

    /// Samples the blocks in use and the index memory after a request.
    pub(super) fn sample(&mut self, stats: &Stats, block_size: usize) {
        let used = stats.capacity_blocks - stats.free_blocks - stats.reserved_blocks;
        self.peak_blocks = self.peak_blocks.max(used);
        self.index_bytes_peak = self.index_bytes_peak.max(stats.index_bytes);
        if used > 0 {
            let bare = size_of::<Token>() * used * block_size + size_of::<BlockId>() * used;
            self.index_ratio_peak = self.index_ratio_peak.max((stats.index_bytes as f64 - INDEX_BASE) / bare as f64);
        }
    }
}
