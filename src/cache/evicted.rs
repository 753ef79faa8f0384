//! Evicted blocks that their caller keeps until it has copied them: to a lower tier, or elsewhere.

use super::events::EvictionReason;
use super::evictor::{Victim, Victims};
use super::prefix_cache::PrefixCache;
use super::quota::QuotaCharge;
use super::reservation::Reservation;
use super::shared_blocks::SharedBlocks;
use super::strong_ref::StrongRefs;
use crate::key::Token;
use crate::name::NamespaceName;

/// Blocks that one trim took out of the cache, which are reserved until this is dropped.
///
/// No lookup finds them any more, and nobody writes to them: copy them, or insert them again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Evicted {
    /// Where they were cached.
    pub namespace: NamespaceName,
    /// Tokens of their sequence before theirs.
    pub start: usize,
    /// Their sequence's tokens from its beginning up to the last of theirs; in a namespace of bigrams, the one behind them too.
    pub tokens: Vec<Token>,
    /// The blocks, in the order of the sequence.
    pub blocks: Reservation,
    /// Why they were evicted.
    pub reason: EvictionReason,
}

impl PrefixCache {
    /// Evicts up to `blocks` blocks as [`evict`](Self::evict) does, appends what it evicted to `evicted`, in the order of eviction,
    /// and returns how many blocks these are. Fewer than could be evicted, if blocks of a namespace that is being cleared were freed in
    /// their place: those are in no entry.
    ///
    /// They stay reserved, and are free when the entries are dropped: for an engine that copies evicted blocks to slower memory
    /// before they are written to again. Tokens are copied under no lock: an entry costs its sequence's length, from the beginning, so a
    /// conversation of n runs costs n squared: ask for as many blocks as are needed, not for all. Waits its turn if
    /// another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4];
    /// let miss = session.match_prefix(&space, &prompt);
    /// let inserted = session.insert(miss.lease(), &prompt, session.reserve(2)?)?;
    /// let ids = inserted.blocks.clone();
    /// drop((miss, inserted));
    ///
    /// let mut evicted = Vec::new();
    /// assert_eq!(cache.evict_into(1, &mut evicted), 1);
    /// let victim = evicted.pop().expect("one block");
    /// assert_eq!((victim.start, &victim.tokens[..], victim.blocks.blocks()), (2, &prompt[..], &ids[1..]));
    /// // ... copy the block to host memory ...
    /// assert_eq!(cache.stats().free_blocks, 6);
    /// drop(victim);
    /// assert_eq!(cache.stats().free_blocks, 7);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_into(&self, blocks: usize, evicted: &mut Vec<Evicted>) -> usize {
        let participant = self.inner.participant();
        // Pinned before the lock and after it: what the victims' excerpt has stays readable.
        let guard = participant.pin();
        let mut taken = Box::<Victims>::default();
        // First: blocks that were evicted are in a reservation, which gives them back if anything panics.
        let mut held = Reservation {
            blocks: Vec::new(),
            shared: SharedBlocks::default(),
            charge: QuotaCharge::default(),
            cache: StrongRefs::new(&self.inner).take(),
        };
        self.inner.evict_in_turns(blocks, |evictor, want, resources| {
            evictor.victims = Some(std::mem::take(&mut taken));
            let mut entries = usize::MAX;
            let freed = evictor.evict(want, &mut entries, resources);
            taken = evictor.victims.take().unwrap_or_default();
            let has_none = taken.blocks.is_empty();
            held.blocks.append(&mut taken.blocks);
            // Where all that was freed is of trees that are being cleared, another turn is needed.
            (!has_none || freed == 0).then_some(freed)
        });
        // Not what was freed: blocks of a tree that is being cleared are evicted from nowhere.
        let count = held.blocks.len();
        evicted.reserve(taken.victims.len());
        for Victim { namespace, piece, reason, start, end, blocks } in taken.victims {
            let mut tokens = Vec::with_capacity(end);
            taken.excerpt.append_tokens(piece, 0, end, &mut tokens, &guard);
            evicted.push(Evicted { namespace, start, tokens, blocks: held.split(blocks), reason });
        }
        count
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
