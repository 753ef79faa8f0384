//! Forks: reservations that share blocks copy-on-write.
//!
//! `shared_blocks` has the counts, and the invariants F1 and F2.

use std::fmt;

use super::reservation::Reservation;
use super::shared_blocks::{SharedBlock, SharedBlocks, share};
use crate::block::BlockId;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::sync::Arc;

/// A pending copy of a block; made by [`Reservation::make_unique`].
///
/// The source keeps its content until this is dropped, whatever the other forks do meanwhile.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// let mut beam = session.reserve(1)?;
/// let mut other = beam.fork();
/// let copy = other.make_unique(0, &mut session.reserve(1)?).expect("both have the block");
/// // ... copy the block `copy.source()` to `copy.destination()` ...
/// assert_eq!((copy.source(), copy.destination()), (beam.blocks()[0], other.blocks()[0]));
/// drop(copy); // now the source may be written to again
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it gives up the source block"]
pub struct PendingCopy {
    source: BlockId,
    destination: BlockId,
    _counted: Arc<SharedBlock>,
}

impl PendingCopy {
    /// The block to copy from. Do not write to it.
    pub fn source(&self) -> BlockId {
        self.source
    }

    /// The block to copy into; only this reservation has it.
    pub fn destination(&self) -> BlockId {
        self.destination
    }
}

impl fmt::Debug for PendingCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCopy")
            .field("source", &self.source)
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl Reservation {
    /// The index of the first block that a fork also has.
    pub(in crate::cache) fn first_shared(&mut self) -> Option<usize> {
        let forked = 0..self.shared.0.len();
        let shared = forked.into_iter().find(|&i| self.is_shared(i));
        if shared.is_none() && self.shared.counted() == 0 {
            self.shared = SharedBlocks::default();
        }
        shared
    }

    /// Replaces the shared block `i` with the last block of `fresh`.
    pub(in crate::cache) fn replace_shared(&mut self, i: usize, last: usize, fresh: &mut Self) -> Option<PendingCopy> {
        let counted = self.shared.0[i].take()?;
        let destination = fresh.blocks.pop()?;
        let charged_alone = fresh.shared.split_off(last).0.pop().flatten();
        let charge = if charged_alone.is_some() { QuotaCharge::default() } else { fresh.charge.split(1) };
        if self.charge.goes_with(&charge) {
            self.charge.append(charge);
            self.shared.0[i] = charged_alone;
        } else {
            self.shared.0[i] = Some(Arc::new(SharedBlock::alone(charge, self.cache.clone())));
        }
        let source = std::mem::replace(&mut self.blocks[i], destination);
        Some(PendingCopy { source, destination, _counted: counted })
    }
}

pub(in crate::cache) fn fork(own: &mut Reservation) -> Reservation {
    own.shared.0.resize(own.blocks.len(), None);
    let Reservation { blocks, charge, shared, cache } = own;
    for (&block, counted) in blocks.iter().zip(&mut shared.0) {
        share(counted, block, charge, cache);
    }
    Reservation {
        blocks: own.blocks.clone(),
        shared: SharedBlocks(own.shared.0.clone()),
        // A charge of no blocks to the same namespace, for blocks that are appended later.
        charge: own.charge.split(0),
        cache: own.cache.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::PrefixCache;

    #[test]
    #[should_panic(expected = "block index 1 is out of range: the reservation has 1 blocks")]
    fn a_block_that_it_does_not_hold_is_no_block_to_ask_for() {
        let cache = PrefixCache::builder(1, 1).build().expect("valid");
        cache.session().reserve(1).expect("free").is_shared(1);
    }
}
