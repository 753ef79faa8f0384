//! Evicted blocks that the caller keeps until it has copied them, for example to a lower tier.

use crate::cache::blocks::reservation::Reservation;
use crate::cache::evictor::{Victim, Victims};
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::{StrongRef, StrongRefs};
use crate::cache::listening::events::EvictionReason;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::cache::prefix_cache::PrefixCache;
use crate::key::Token;
use crate::name::NamespaceName;
use crate::reclaim::Guard;
use crate::sync::Arc;
use crate::sync::gauge::{AtomicUsize, Relaxed};

/// Evicted blocks of one sequence, which stay reserved until this is dropped.
///
/// No lookup finds them, and no other owner writes to them: copy them, or insert them again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Evicted {
    /// The namespace in which they were cached.
    pub namespace: NamespaceName,
    /// Number of tokens before them in their sequence.
    pub start: usize,
    /// The tokens of the sequence from its beginning to the end of the blocks; in a namespace of
    /// bigrams, also the next token.
    pub tokens: Vec<Token>,
    /// The blocks, in the order of the sequence.
    pub blocks: Reservation,
    /// Why they were evicted.
    pub reason: EvictionReason,
    /// Dropped after the blocks.
    pub(in crate::cache) kept: Option<Kept>,
}

/// Makes the entries for the victims, from the blocks in `held`.
pub(in crate::cache) fn pieces(taken: Victims, held: &mut Reservation, guard: &Guard<'_>) -> Vec<Evicted> {
    let piece = |Victim { namespace, piece, reason, start, end, blocks }| {
        let mut tokens = Vec::with_capacity(end);
        taken.paths.append_tokens(piece, 0, end, &mut tokens, guard);
        Evicted { namespace, start, tokens, blocks: held.split(blocks), reason, kept: None }
    };
    taken.victims.into_iter().map(piece).collect()
}

/// Counts some of the blocks that an eviction sink holds, until it is dropped.
#[derive(Debug)]
pub(in crate::cache) struct Kept {
    blocks: usize,
    /// The counter of the thread that offered the blocks: how many of them the sink still has.
    needed: Option<Arc<AtomicUsize>>,
    cache: StrongRef<Inner>,
}

impl Kept {
    pub(in crate::cache) fn new(blocks: usize, needed: Option<Arc<AtomicUsize>>, cache: StrongRef<Inner>) -> Self {
        Self { blocks, needed, cache }
    }

    pub(in crate::cache) fn split(&mut self, blocks: usize) -> Self {
        self.blocks -= blocks;
        Self { blocks, needed: self.needed.clone(), cache: self.cache.clone() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.blocks > 0 {
            // Relaxed: only a heuristic.
            self.needed.iter().for_each(|needed| _ = needed.fetch_sub(self.blocks, Relaxed));
            self.cache.kept.end(self.blocks);
            // Even if the sink has moved the blocks elsewhere, a waiter must learn that it need not
            // expect them.
            self.cache.ring();
        }
    }
}

pub(in crate::cache) fn evict_into(cache: &PrefixCache, blocks: usize, evicted: &mut Vec<Evicted>) -> usize {
    let participant = cache.inner.participant();
    // Pinned before each turn and until the entries are made, so that the victims' paths stay
    // readable.
    let guard = participant.pin();
    let mut taken = Box::<Victims>::default();
    // Made first, so that evicted blocks are in a reservation, which gives them back after a panic.
    let mut held = Reservation::of(Vec::new(), QuotaCharge::default(), StrongRefs::new(&cache.inner).take());
    cache.inner.evict_in_turns(blocks, |evictor, want, resources| {
        evictor.common.listeners.victims = Some(std::mem::take(&mut taken));
        let mut entries = usize::MAX;
        let freed = evictor.evict(want, &mut entries, resources);
        taken = evictor.common.listeners.victims.take().unwrap_or_default();
        let has_none = taken.blocks.is_empty();
        held.blocks.append(&mut taken.blocks);
        // If all freed blocks belong to trees that are being cleared, none of them counts, and
        // another turn is needed.
        (!has_none || freed == 0).then_some(freed)
    });
    // Not the number of freed blocks, which includes those of trees that are being cleared.
    let count = held.blocks.len();
    evicted.extend(pieces(*taken, &mut held, &guard));
    count
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
