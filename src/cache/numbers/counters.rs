//! Counters of requested operations and their results.
//!
//! Each participant counts in its own record (`reclaim::records`), so counting writes no memory
//! that other threads write. [`Stats`] has the sums.

use std::time::Duration;

use super::stats::Stats;
use crate::cache::blocks::acquire::Acquired;
use crate::cache::blocks::reservation::{Reservation, ReserveError};
use crate::cache::clock::nanoseconds;
use crate::cache::inner::Inner;
use crate::cache::participant::Participant;
use crate::cache::session::Session;
use crate::reclaim::COUNTS;

/// A counter of a record, named as in [`Stats`]. The results of lookups are counted in rows instead
/// (`lookups`).
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) enum Count {
    Inserts,
    DuplicateBlocks,
    Reservations,
    TakenBlocks,
    PartialTokens,
    ExhaustedRefusals,
    OverQuotaRefusals,
    Waits,
    WaitedNanos,
    Retentions,
    RetainedBlocks,
}

const _: () = assert!((Count::RetainedBlocks as usize) < COUNTS);

impl Participant<'_> {
    #[inline]
    pub(in crate::cache) fn count<const N: usize>(&self, amounts: [(Count, usize); N]) {
        self.record().add(amounts.map(|(count, amount)| (count as usize, amount as u64)));
    }

    /// Counts a request that has waited for `waited`.
    pub(in crate::cache) fn count_wait(&self, waited: Duration) {
        self.record().add([(Count::Waits as usize, 1), (Count::WaitedNanos as usize, nanoseconds(waited))]);
    }

    /// Counts the result of a request for blocks.
    #[inline]
    pub(in crate::cache) fn count_reserved(&self, reserved: Result<&Reservation, &ReserveError>) {
        match reserved {
            Ok(blocks) => self.count([(Count::Reservations, 1), (Count::TakenBlocks, blocks.len())]),
            Err(refused) => self.count_refusal(refused),
        }
    }

    #[cold]
    fn count_refusal(&self, refused: &ReserveError) {
        match refused {
            ReserveError::Exhausted { .. } | ReserveError::TimedOut { .. } => {
                self.count([(Count::ExhaustedRefusals, 1)]);
            }
            ReserveError::OverQuota { .. } => self.count([(Count::OverQuotaRefusals, 1)]),
            // Mistakes of the caller.
            ReserveError::External | ReserveError::TooLarge { .. } => {}
        }
    }
}

impl Session {
    /// Counts the result of a request for blocks.
    #[inline]
    pub(in crate::cache) fn count_reserved(&self, reserved: &Result<Reservation, ReserveError>) {
        self.participant().count_reserved(reserved.as_ref());
    }

    /// Counts the result of a request for a prompt's match and blocks. Its lookup is counted when
    /// the request is served.
    pub(in crate::cache) fn count_acquired(&self, acquired: &Result<Acquired, ReserveError>) {
        self.participant().count_reserved(acquired.as_ref().map(|acquired| &acquired.blocks));
    }
}

impl Inner {
    /// Adds the sums of all counters to `gauged`.
    pub(in crate::cache) fn counted(&self, gauged: Stats) -> Stats {
        let counts = self.domain.records().sum();
        let of = |count: Count| counts[count as usize];
        let found = self.all_lookups();
        Stats {
            lookups: found.lookups,
            query_tokens: found.query_tokens,
            hit_tokens: found.hit_tokens,
            resumed_tokens: found.resumed_tokens,
            missed_evicted_tokens: found.missed_evicted_tokens,
            missed_diverged_tokens: found.missed_diverged_tokens,
            missed_elsewhere_tokens: found.missed_elsewhere_tokens,
            missed_new_tokens: found.missed_new_tokens,
            partial_tokens: of(Count::PartialTokens),
            inserts: of(Count::Inserts),
            duplicate_blocks: of(Count::DuplicateBlocks),
            reservations: of(Count::Reservations),
            taken_blocks: of(Count::TakenBlocks),
            exhausted_refusals: of(Count::ExhaustedRefusals),
            over_quota_refusals: of(Count::OverQuotaRefusals),
            waits: of(Count::Waits),
            waited_nanos: of(Count::WaitedNanos),
            retentions: of(Count::Retentions),
            retained_blocks: of(Count::RetainedBlocks),
            ..gauged
        }
    }
}
