//! An external pool: the engine has an allocator of its own; the cache takes its ids in and hands evicted ids back.
//!
//! Every id is in one of two bitmaps or with the cache: in the engine's hands (`Inner::pool`), or on the way back
//! (`Inner::returned`), where evictions, clears and dropped reservations put it without allocating. So an id is handed
//! back once, and cannot be taken in before it was.

use std::fmt;

use super::fork::SharedBlocks;
use super::quota::QuotaCharge;
use super::{Inner, PrefixCache, Reservation, Session};
use crate::block::{BlockId, Pool};

/// Why the engine's blocks were not taken in. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdoptError {
    /// There is no such block: the cache was built with fewer.
    OutOfRange {
        /// The first such id in the list.
        block: BlockId,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// The cache has this block: it is cached, in a reservation, evicted and not [taken
    /// back](PrefixCache::take_evicted) yet, or stands in the list twice.
    Held {
        /// The first such id in the list. While other threads adopt some of the same ids it may be one that they have
        /// taken for a moment and give back.
        block: BlockId,
    },
    /// The cache owns its pool: [`reserve`](Session::reserve), or build it with [`external`](super::Builder::external).
    NotExternal,
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { block, capacity } => write!(f, "block {block} is none of a cache of {capacity}"),
            Self::Held { block } => write!(f, "the cache holds block {block} already"),
            Self::NotExternal => f.write_str("the cache owns its pool"),
        }
    }
}

impl std::error::Error for AdoptError {}

impl Inner {
    /// Where blocks go that the cache lets go of.
    #[inline]
    pub(super) fn sink(&self) -> &Pool {
        self.returned.as_ref().unwrap_or(&self.pool)
    }
}

impl Session {
    /// Takes blocks of the engine's in, to be inserted: all of them, or nothing. Lock-free.
    ///
    /// # Errors
    ///
    /// [`AdoptError`]; nothing has changed. It names the first id that there is no block for, wherever that stands in
    /// the list; if there is none, the first that the cache has, or that stands there for the second time.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).external().build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt: Vec<u32> = (0..8).collect();
    /// // The engine has filled its blocks 5 and 2 with the prompt.
    /// let hit = session.match_prefix(&space, &prompt);
    /// let inserted = session.insert(hit.lease(), &prompt, session.adopt(&[5, 2])?)?;
    /// assert_eq!(inserted.blocks, [5, 2]);
    ///
    /// drop((hit, inserted));
    /// assert_eq!(cache.evict(1), 1);
    /// let mut free = Vec::new();
    /// assert_eq!(cache.take_evicted(&mut free), 1);
    /// assert_eq!(free, [2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn adopt(&self, blocks: &[BlockId]) -> Result<Reservation, AdoptError> {
        let inner = &**self.strong_refs.inner();
        if inner.returned.is_none() {
            return Err(AdoptError::NotExternal);
        }
        let capacity = inner.pool.capacity();
        if let Some(&block) = blocks.iter().find(|&&block| block as usize >= capacity) {
            return Err(AdoptError::OutOfRange { block, capacity });
        }
        inner.pool.take_these(blocks).map_err(|block| AdoptError::Held { block })?;
        if let Some(background) = inner.background.get() {
            background.blocks_left(inner.sink().free());
        }
        Ok(Reservation {
            blocks: blocks.to_vec(),
            shared: SharedBlocks::default(),
            charge: QuotaCharge::default(),
            cache: self.strong_refs.take(),
        })
    }
}

impl Reservation {
    /// Gives the engine its blocks back at once, past [`PrefixCache::take_evicted`]: duplicates of an insert, say.
    ///
    /// A block that a fork holds too is not among them: the fork keeps it.
    ///
    /// # Panics
    ///
    /// If the cache owns its pool.
    pub fn into_blocks(mut self) -> Vec<BlockId> {
        assert!(self.cache.returned.is_some(), "the blocks are the cache's own");
        self.shared.keep_alone(&mut self.blocks);
        let blocks = std::mem::take(&mut self.blocks);
        self.cache.pool.give_back(&blocks);
        blocks
    }
}

impl PrefixCache {
    /// Appends to `blocks` the ids that the cache has let go of, which are the engine's again; how many.
    ///
    /// Evicted blocks, those of cleared namespaces, and those of reservations that were dropped. Each is handed out
    /// once. Lock-free; nothing comes where the cache owns its pool.
    pub fn take_evicted(&self, blocks: &mut Vec<BlockId>) -> usize {
        let Some(returned) = &self.inner.returned else {
            return 0;
        };
        // What was cleared or let go of is with the evictor until it is taken in.
        self.inner.settle_by(|| self.inner.evictor.try_lock());
        let before = blocks.len();
        // Another thread may have taken them in between: then there is less, or new ones.
        while !returned.try_take(returned.free(), blocks) {}
        self.inner.pool.give_back(&blocks[before..]);
        if let Some(background) = self.inner.background.get() {
            background.blocks_left(returned.free());
        }
        blocks.len() - before
    }
}
