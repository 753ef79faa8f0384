//! Forks: reservations that hold the same blocks, which are copied before one of them writes to them.
//!
//! `shared_blocks` has the counts, and the invariants F1 and F2.

use std::fmt;

use super::inner::Inner;
use super::quota::QuotaCharge;
use super::reservation::Reservation;
use super::shared_blocks::{SharedBlock, SharedBlocks, is_alone, share};
use crate::block::BlockId;
use crate::sync::Arc;

/// A block to be copied: made by [`Reservation::make_unique`].
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
    /// The block to copy from; not to be written to.
    pub fn source(&self) -> BlockId {
        self.source
    }

    /// The block to copy into: the reservation's own.
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
    /// A second reservation of the same blocks: for a sequence that continues in several ways from here.
    ///
    /// A block is given back when the last reservation that has it is dropped. While several have it, none of them may
    /// write to it or insert it: see [`make_unique`](Self::make_unique). The prefix that is already cached needs no fork:
    /// clone its [`Lease`](super::Lease). Allocates a count for each block that has none yet.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let session = cache.session();
    /// // Two full blocks and one that is being filled; a second beam goes on from there.
    /// let mut one = session.reserve(3)?;
    /// let mut two = one.fork();
    /// assert_eq!(cache.stats().reserved_blocks, 3);
    ///
    /// // Before the second one writes to the last block, it takes a copy.
    /// let mut fresh = session.reserve(1)?;
    /// if let Some(copy) = two.make_unique(2, &mut fresh) {
    ///     // ... copy `copy.source()` to `copy.destination()` ...
    ///     assert_eq!((copy.source(), copy.destination()), (one.blocks()[2], two.blocks()[2]));
    /// }
    /// // The first one has the last block alone now.
    /// assert!(one.is_shared(1) && !one.is_shared(2));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the fork gives its blocks back"]
    pub fn fork(&mut self) -> Self {
        self.shared.0.resize(self.blocks.len(), None);
        let Self { blocks, charge, shared, cache } = self;
        for (&block, counted) in blocks.iter().zip(&mut shared.0) {
            share(counted, block, charge, cache);
        }
        Self {
            blocks: self.blocks.clone(),
            shared: SharedBlocks(self.shared.0.clone()),
            // Of the same namespace, for what is appended.
            charge: self.charge.split(0),
            cache: self.cache.clone(),
        }
    }

    /// Whether a fork has block `i` too. If not, this reservation may write to it.
    ///
    /// # Panics
    ///
    /// If it has no more than `i` blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut one = session.reserve(1)?;
    /// let two = one.fork();
    /// assert!(one.is_shared(0));
    /// drop(two);
    /// assert!(!one.is_shared(0)); // it may be written to
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_shared(&mut self, i: usize) -> bool {
        assert!(i < self.blocks.len(), "block {i} of a reservation of {}", self.blocks.len());
        let charge = &mut self.charge;
        self.shared.0.get_mut(i).is_some_and(|share| !is_alone(share, charge))
    }

    /// The first block that a fork has too.
    pub(super) fn first_shared(&mut self) -> Option<usize> {
        let forked = 0..self.shared.0.len();
        let shared = forked.into_iter().find(|&i| self.is_shared(i));
        if shared.is_none() && self.shared.counted() == 0 {
            self.shared = SharedBlocks::default();
        }
        shared
    }

    /// Replaces block `i` by the last block of `fresh` if a fork has it too, and says what to copy; `None` if this
    /// reservation has the block alone.
    ///
    /// # Panics
    ///
    /// If it has no more than `i` blocks; if the block is shared and `fresh` is of another cache, empty, or ends with a
    /// block that is shared itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 4).build()?;
    /// # let session = cache.session();
    /// let mut one = session.reserve(1)?;
    /// let mut two = one.fork();
    /// let mut fresh = session.reserve(1)?;
    /// let copy = two.make_unique(0, &mut fresh).expect("shared with `one`");
    /// assert_eq!((copy.source(), copy.destination()), (one.blocks()[0], two.blocks()[0]));
    /// assert!(fresh.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn make_unique(&mut self, i: usize, fresh: &mut Self) -> Option<PendingCopy> {
        self.try_make_unique(i, fresh).unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// Whether it is of the same cache.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        std::ptr::eq::<Inner>(&*other.cache, &*self.cache)
    }

    /// Replaces the shared block `i` by the last block of `fresh`.
    pub(super) fn replace_shared(&mut self, i: usize, last: usize, fresh: &mut Self) -> Option<PendingCopy> {
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

#[cfg(test)]
mod tests {
    use crate::PrefixCache;

    #[test]
    #[should_panic(expected = "block 1 of a reservation of 1")]
    fn a_block_that_it_does_not_hold_is_no_block_to_ask_for() {
        let cache = PrefixCache::builder(1, 1).build().expect("valid");
        cache.session().reserve(1).expect("free").is_shared(1);
    }
}
