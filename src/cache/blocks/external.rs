//! An external pool: the engine has its own allocator, passes block ids to the cache, and takes
//! evicted ids back.
//!
//! An id that the cache does not use is in one of two bitmaps. In `Inner::pool` it belongs to the
//! engine; in `Inner::returned` it waits for the engine to take it back. Evictions, clears and
//! dropped reservations put ids there, without allocating. So an id is given back once, and cannot
//! be adopted again before that.
//!
//! Blocks of both bitmaps count as free. The cache cannot know how many of them the engine uses, so
//! `reserve` is refused, and the watermarks of a background evictor count the ids that wait to be
//! taken back.

use std::fmt;

use super::reservation::Reservation;
use crate::block::{BlockId, Pool};
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRefs;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::cache::numbers::counters::Count;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::session::Near;
use crate::cache::turn::LockMode;

/// Why blocks were not adopted. Nothing has changed.
///
/// # Examples
///
/// ```
/// use radixkv::{AdoptError, PrefixCache};
///
/// let cache = PrefixCache::builder(16, 8).external().build()?;
/// let pool = cache.external().expect("built as external");
/// let filled = pool.adopt(&[5])?;
/// assert_eq!(pool.adopt(&[6, 5]).unwrap_err(), AdoptError::Held { block: 5 });
/// assert_eq!(pool.adopt(&[8]).unwrap_err(), AdoptError::OutOfRange { block: 8, capacity: 8 });
/// # drop(filled);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdoptError {
    /// A block id is not below the cache's capacity. If it was built to [grow](PrefixCache::grow),
    /// let it grow first.
    OutOfRange {
        /// The first such id in the list.
        block: BlockId,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// The cache has this block already: it is cached, in a reservation, evicted and not yet [taken
    /// back](ExternalPool::take_evicted), or twice in the list.
    Held {
        /// The first such id in the list. If another thread is adopting some of the same ids, it
        /// may be an id that the other thread took briefly and gives back.
        block: BlockId,
    },
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { block, capacity } => {
                write!(f, "block {block} does not exist in a cache of {capacity} blocks: let the cache grow first")
            }
            Self::Held { block } => write!(f, "the cache already holds block {block}"),
        }
    }
}

impl std::error::Error for AdoptError {}

impl Inner {
    /// The pool that receives the blocks which the cache gives up.
    #[inline]
    pub(in crate::cache) fn sink(&self) -> &Pool {
        self.returned.as_ref().unwrap_or(&self.pool)
    }
}

/// Access to an external pool: passes the engine's block ids to the cache, and takes evicted ids
/// back; made by [`PrefixCache::external`].
#[derive(Debug, Clone, Copy)]
pub struct ExternalPool<'a> {
    cache: &'a PrefixCache,
    returned: &'a Pool,
}

impl<'a> ExternalPool<'a> {
    pub(in crate::cache) fn of(cache: &'a PrefixCache) -> Option<Self> {
        cache.inner.returned.as_ref().map(|returned| Self { cache, returned })
    }

    /// Passes the engine's blocks to the cache, for an insert: all of them or none. Lock-free.
    ///
    /// # Errors
    ///
    /// [`AdoptError`]; nothing has changed. It names the first id out of range, wherever it is in
    /// the list; if there is none, the first id that the cache has already or that is in the list
    /// for the second time.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).external().build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// let pool = cache.external().expect("built as external");
    /// let prompt: Vec<u32> = (0..8).collect();
    /// // The engine has filled its blocks 5 and 2 with the prompt.
    /// let hit = session.match_prefix(&space, &prompt);
    /// let inserted = session.insert(hit.lease(), &prompt, pool.adopt(&[5, 2])?)?;
    /// assert_eq!(inserted.blocks, [5, 2]);
    ///
    /// drop((hit, inserted));
    /// assert_eq!(cache.evict(1), 1);
    /// let mut free = Vec::new();
    /// assert_eq!(pool.take_evicted(&mut free), 1);
    /// assert_eq!(free, [2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn adopt(&self, blocks: &[BlockId]) -> Result<Reservation, AdoptError> {
        let inner = &self.cache.inner;
        let capacity = inner.pool.capacity();
        if let Some(&block) = blocks.iter().find(|&&block| block as usize >= capacity) {
            return Err(AdoptError::OutOfRange { block, capacity });
        }
        inner.pool.take_these(blocks).map_err(|block| AdoptError::Held { block })?;
        inner.note_blocks_left();
        inner.participant().count([(Count::Reservations, 1), (Count::TakenBlocks, blocks.len())]);
        Ok(Reservation::of(blocks.to_vec(), QuotaCharge::default(), StrongRefs::new(inner).take()))
    }

    /// Appends the evicted ids, which the engine owns again, to `blocks`; returns how many.
    ///
    /// These are evicted blocks, blocks of cleared namespaces, and blocks of reservations that were
    /// dropped. Each is returned once. Never waits; settles first, in steps, unless another thread
    /// is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).external().build()?;
    /// let pool = cache.external().expect("built as external");
    /// drop(pool.adopt(&[5, 2])?); // given up without an insert
    /// let mut free = Vec::new();
    /// assert_eq!(pool.take_evicted(&mut free), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_evicted(&self, blocks: &mut Vec<BlockId>) -> usize {
        self.take_evicted_at_most(usize::MAX, blocks)
    }

    /// Like [`take_evicted`](Self::take_evicted), but takes at most `most` ids. The others stay in
    /// the cache until a later call.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).external().build()?;
    /// let pool = cache.external().expect("built as external");
    /// drop(pool.adopt(&[5, 2, 7])?); // given up without an insert
    /// let mut free = Vec::new();
    /// assert_eq!(pool.take_evicted_at_most(2, &mut free), 2);
    /// assert_eq!(pool.take_evicted_at_most(2, &mut free), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_evicted_at_most(&self, most: usize, blocks: &mut Vec<BlockId>) -> usize {
        let (inner, returned) = (&self.cache.inner, self.returned);
        // Blocks of cleared namespaces and released leases are freed only when the evictor
        // processes these changes. Silent leases keep no such block.
        _ = inner.settled_near(Near::default(), LockMode::Tries, |_, _| ());
        let before = blocks.len();
        // Another thread may take some between the two calls: then try again with the new number.
        while !returned.try_take(returned.free().min(most), blocks) {}
        inner.pool.give_back(&blocks[before..]);
        inner.note_blocks_left();
        blocks.len() - before
    }
}
