//! Counters: what the verbs were asked for, and what came of it.
//!
//! Each participant counts in a record of its own (`reclaim::records`), so that counting writes nothing that other threads
//! write. [`Stats`] has the sums.

use std::time::Duration;

use super::acquire::Acquired;
use super::inner::Inner;
use super::participant::Participant;
use super::reservation::{Reservation, ReserveError};
use super::session::Session;
use super::stats::Stats;
use crate::key::Token;
use crate::reclaim::COUNTS;

/// A number of a record, named as in [`Stats`]. Those of lookups are first, on one cache line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Count {
    Lookups,
    QueryTokens,
    HitTokens,
    ResumedTokens,
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
    pub(super) fn count<const N: usize>(&self, amounts: [(Count, usize); N]) {
        self.record().add(amounts.map(|(count, amount)| (count as usize, amount as u64)));
    }

    /// Counts a lookup of so many tokens, and how many of them it found.
    #[inline]
    pub(super) fn count_lookup(&self, query_tokens: usize, hit_tokens: usize) {
        self.count([(Count::Lookups, 1), (Count::QueryTokens, query_tokens), (Count::HitTokens, hit_tokens)]);
    }

    /// Counts tokens that a resume found beyond its lease.
    #[inline]
    pub(super) fn count_resumed(&self, tokens: usize) {
        self.count([(Count::ResumedTokens, tokens)]);
    }

    /// Counts a request that has waited for so long.
    pub(super) fn count_wait(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.record().add([(Count::Waits as usize, 1), (Count::WaitedNanos as usize, nanos)]);
    }

    /// Counts what became of a request for blocks.
    #[inline]
    pub(super) fn count_reserved(&self, reserved: Result<&Reservation, &ReserveError>) {
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
            // The caller's mistakes.
            ReserveError::External | ReserveError::TooLarge { .. } => {}
        }
    }
}

impl Session {
    /// Counts what became of a request for blocks.
    #[inline]
    pub(super) fn count_reserved(&self, reserved: &Result<Reservation, ReserveError>) {
        self.participant().count_reserved(reserved.as_ref());
    }

    /// Counts what became of a request for the match of a prompt and blocks.
    pub(super) fn count_acquired(&self, tokens: &[Token], acquired: &Result<Acquired, ReserveError>) {
        let participant = self.participant();
        participant.count_reserved(acquired.as_ref().map(|acquired| &acquired.blocks));
        if let Ok(Acquired { hit, .. }) = acquired {
            participant.count_lookup(tokens.len(), hit.len_tokens());
        }
    }
}

impl Inner {
    /// Adds up what was counted.
    pub(super) fn counted(&self, gauged: Stats) -> Stats {
        let counts = self.domain.counts();
        let of = |count: Count| counts[count as usize];
        Stats {
            lookups: of(Count::Lookups),
            query_tokens: of(Count::QueryTokens),
            hit_tokens: of(Count::HitTokens),
            resumed_tokens: of(Count::ResumedTokens),
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
