//! The eviction sink: receives evicted blocks before they are used again.
//!
//! Under the evictor's lock a victim's blocks are gathered in [`Victims`] in place of being freed. When the turn has given up the
//! lock, the thread makes reservations of them and calls the sink. Until the sink drops these, the blocks count as reserved.
//!
//! A thread that needs the blocks now evicts past the sink while that keeps any of those which the thread has offered: it never waits
//! for it. One that waits for blocks counts what the sink has as on its way, and is woken when it is dropped.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E29 | `KeptBlocks::for_waiter` | `KeptBlocks::end` | a sink that drops blocks which a waiter has counted as on their way sees the waiter |

use std::fmt;

use super::evicted::{Evicted, pieces};
use super::evictor::ForSink;
use super::inner::Inner;
use super::quota::QuotaCharge;
use super::reservation::Reservation;
use super::shared_blocks::SharedBlocks;
use super::strong_ref::{StrongRef, StrongRefs};
use crate::reclaim::Guard;
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{Arc, gauge};

/// Receives every block that a cache evicts: for a reservation, by the background thread, for a
/// quota, for its age.
///
/// Set by [`Builder::eviction_sink`](crate::Builder::eviction_sink). A closure over an
/// [`EvictedBatch`] is a sink.
///
/// Blocks that are cleared or invalidated, and those that
/// [`evict_into`](crate::PrefixCache::evict_into) returns, do not come here.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use radixkv::{EvictedBatch, PrefixCache};
///
/// let evicted = Arc::new(Mutex::new(Vec::new()));
/// let sink = Arc::clone(&evicted);
/// let cache = PrefixCache::builder(2, 2)
///     .eviction_sink(move |batch: EvictedBatch| {
///         for piece in &batch.pieces {
///             // ... copy the blocks, as long as `piece` is there ...
///             sink.lock().unwrap().push(piece.tokens[piece.start..].to_vec());
///         }
///     })
///     .build()?;
/// let (session, space) = (cache.session(), cache.default_namespace());
/// for prompt in [[1, 2, 3, 4], [5, 6, 7, 8]] {
///     let start = session.acquire(&space, &prompt, 0)?;
///     drop(session.insert(start.hit.lease(), &prompt, start.blocks)?);
/// }
/// assert_eq!(*evicted.lock().unwrap(), [[1, 2, 3, 4]]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait EvictionSink: Send + Sync {
    /// Takes evicted blocks. Dropping a piece frees its blocks.
    ///
    /// Called on the thread that evicted, under no lock of the cache. It may match, lease and
    /// insert in the same cache, and must not reserve there: that could evict, and call it again.
    /// A panic reaches the verb that evicted, after it has changed the cache.
    ///
    /// If [`is_needed`](EvictedBatch::is_needed), a thread has asked for these blocks: copy them
    /// and drop the pieces before returning. For pieces that are kept longer the thread evicts
    /// others, which are [passed by](Self::passed_by). Otherwise the pieces may go to another
    /// thread and be dropped there at any time.
    fn take(&self, batch: EvictedBatch);

    /// A mark of the present moment, which comes back in [`EvictedBatch::mark`].
    ///
    /// Called under the evictor's lock when the first block of a batch is evicted. A
    /// [`clear`](crate::PrefixCache::clear) takes that lock too: a sink that counts clears knows
    /// by the mark which blocks are from before one. Must be quick and must not call the cache.
    fn mark(&self) -> u64 {
        0
    }

    /// So many blocks were evicted and not offered, because a thread needed them while the sink
    /// kept those that it was offered.
    fn passed_by(&self, blocks: usize) {
        let _ = blocks;
    }
}

impl<F: Fn(EvictedBatch) + Send + Sync> EvictionSink for F {
    fn take(&self, batch: EvictedBatch) {
        self(batch);
    }
}

/// Blocks that were evicted together, for an [`EvictionSink`].
#[derive(Debug)]
#[non_exhaustive]
pub struct EvictedBatch {
    /// The blocks, by sequence, in the order of eviction.
    pub pieces: Vec<Evicted>,
    /// What [`EvictionSink::mark`] returned when the first of them was evicted.
    pub mark: u64,
    /// The thread that evicted them needs them now.
    pub is_needed: bool,
}

/// A sink that several caches, builders and turns share.
#[derive(Clone)]
pub(super) struct Sink(Arc<Box<dyn EvictionSink>>);

impl Sink {
    pub(super) fn new(sink: impl EvictionSink + 'static) -> Self {
        Self(Arc::new(Box::new(sink)))
    }
}

impl std::ops::Deref for Sink {
    type Target = dyn EvictionSink;

    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EvictionSink")
    }
}

/// What a turn has evicted for the sink, on its way there.
pub(super) struct Departure<'a> {
    inner: &'a Inner,
    for_sink: ForSink,
}

impl<'a> Departure<'a> {
    /// Under the evictor's lock: a waiter that looks afterwards counts the blocks.
    pub(super) fn new(inner: &'a Inner, for_sink: ForSink) -> Self {
        let blocks = for_sink.victims.blocks.len();
        inner.kept.begin(blocks);
        if let Some(needed) = &for_sink.needed {
            needed.fetch_add(blocks, gauge::Relaxed);
        }
        Self { inner, for_sink }
    }

    /// The batch, made under a guard that was pinned before the blocks were evicted; nothing if the last handle of the cache is being
    /// dropped.
    pub(super) fn into_batch(mut self, guard: &Guard<'_>) -> Option<(Sink, EvictedBatch)> {
        let inner = self.inner.namespaces.cache()?;
        let strong_refs = StrongRefs::new(&inner);
        let ForSink { sink, victims, mark, needed } = &mut self.for_sink;
        let mut victims = std::mem::take(&mut **victims);
        let mut held = Reservation {
            blocks: std::mem::take(&mut victims.blocks),
            shared: SharedBlocks::default(),
            charge: QuotaCharge::default(),
            cache: strong_refs.take(),
        };
        let mut kept = Kept { blocks: held.blocks.len(), needed: needed.clone(), cache: strong_refs.take() };
        let mut pieces = pieces(victims, &mut held, guard);
        for piece in &mut pieces {
            piece.kept = Some(kept.split(piece.blocks.len()));
        }
        Some((sink.clone(), EvictedBatch { pieces, mark: *mark, is_needed: needed.is_some() }))
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut self.for_sink.victims.blocks);
        if !blocks.is_empty() {
            self.inner.give_back(&blocks);
            self.inner.end_keeping(blocks.len());
        }
    }
}

/// How many blocks a sink has.
#[derive(Debug)]
pub(crate) struct KeptBlocks(AtomicUsize);

impl Default for KeptBlocks {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl KeptBlocks {
    pub(crate) fn begin(&self, blocks: usize) {
        // Relaxed: the evictor's lock hands it on.
        self.0.fetch_add(blocks, Relaxed);
    }

    /// For a waiter: whoever ends what is counted here sees that it waits.
    pub(crate) fn for_waiter(&self) -> usize {
        // Release: E29.
        self.0.fetch_add(0, Release)
    }

    pub(crate) fn end(&self, blocks: usize) {
        // Acquire: E29.
        self.0.fetch_sub(blocks, Acquire);
    }
}

/// Blocks that a sink has, counted until it drops them.
#[derive(Debug)]
pub(super) struct Kept {
    blocks: usize,
    /// Where the thread that has offered them counts what is kept.
    needed: Option<Arc<gauge::AtomicUsize>>,
    cache: StrongRef<Inner>,
}

impl Kept {
    fn split(&mut self, blocks: usize) -> Self {
        self.blocks -= blocks;
        Self { blocks, needed: self.needed.clone(), cache: self.cache.clone() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.blocks > 0 {
            // Relaxed: a number to go by.
            self.needed.iter().for_each(|needed| _ = needed.fetch_sub(self.blocks, gauge::Relaxed));
            self.cache.end_keeping(self.blocks);
        }
    }
}

impl Inner {
    /// The sink has dropped so many blocks, and perhaps moved them elsewhere: then they do not come back.
    fn end_keeping(&self, blocks: usize) {
        self.kept.end(blocks);
        self.ring();
    }
}
