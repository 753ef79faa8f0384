//! Partial hits: a cached block whose first tokens agree with a sequence, to be copied instead of
//! recomputed. `tree::nearest` finds it.

use std::fmt;

use crate::block::BlockId;
use crate::cache::leases::lease::Lease;
use crate::cache::numbers::counters::Count;
use crate::cache::session::Session;
use crate::key::Token;
use crate::tree::lease::{Refused, lease_at};
use crate::tree::nearest::nearest;
use crate::tree::path::append_blocks;

/// A cached block whose first tokens agree with a sequence beyond its match.
///
/// The block stays in place until this is dropped: copy the keys and values of its first
/// [`len_tokens`](Self::len_tokens) tokens into a block of your own, drop this, and compute the
/// rest. Like a [`Lease`] it may be sent to any thread. An insert cannot start from it, because the
/// rest of the block holds other tokens. Made by [`Session::match_partial`], which has an example.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(4, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// # let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
/// # drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(1)?)?);
/// // Cached are the tokens 1, 2, 3, 4 in one block.
/// let hit = session.match_prefix(&space, &[1, 2, 3, 9]);
/// let partial = session.match_partial(hit.lease(), &[1, 2, 3, 9], 1).expect("three tokens agree");
/// // ... copy the first `partial.len_tokens()` tokens of the block `partial.block()` ...
/// assert_eq!((hit.len_tokens(), partial.len_tokens()), (0, 3));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it gives up the source block"]
pub struct PartialHit {
    block: BlockId,
    len_tokens: usize,
    /// Leases the path up to the end of the block.
    source: Lease,
}

impl PartialHit {
    /// The block to copy from. Do not write to it.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Number of tokens at its beginning that agree with the sequence: at least one.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }
}

impl fmt::Debug for PartialHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialHit")
            .field("block", &self.block)
            .field("len_tokens", &self.len_tokens)
            .field("source_ends_at", &self.source.len_tokens())
            .finish()
    }
}

pub(in crate::cache) fn match_partial(
    session: &Session,
    lease: &Lease,
    tokens: &[Token],
    min_tokens: usize,
) -> Option<PartialHit> {
    session.check_sequence(lease, tokens);
    let inner = &**session.strong_refs.inner();
    let layout = lease.layout(inner);
    let leased = layout.depth_of(lease.len_tokens());
    let from = lease.held()?.point;
    let participant = session.participant();
    let guard = participant.pin();
    if from.is_invalidated(&guard) {
        return None;
    }
    let known = layout.blocks(leased);
    let end = layout.end_of(known + 1);
    // With bigrams, the first token of the sequence agrees but fills no key.
    let unfilled = end - leased - layout.tokens();
    let least = min_tokens.max(1).saturating_add(unfilled);
    let (agreed, held) = loop {
        let nearest = nearest(from, end, tokens, least, &guard)?;
        match lease_at(nearest.end, session.context(), &guard) {
            Ok(held) => break (nearest.agreed, held),
            // Trimmed meanwhile: look again, because another block may now agree longest.
            Err(Refused::Shorter(_)) => {}
            // `Gone` cannot occur: a space whose root is dead holds no leased point, and `lease` is
            // one.
            Err(Refused::Full | Refused::Gone) => return None,
        }
    };
    let source = Lease::new(held, false, layout, session.strong_refs.take());
    let mut block = Vec::with_capacity(1);
    append_blocks(held.point, known, layout, &mut block, &guard);
    drop(guard);
    let len_tokens = agreed - unfilled;
    participant.count([(Count::PartialTokens, len_tokens)]);
    let block = block.pop().expect("the leased path ends with the block");
    Some(PartialHit { block, len_tokens, source })
}
