//! The eviction sink: receives evicted blocks before they are used again.
//!
//! Under the evictor's lock a victim's blocks are gathered in `Victims` instead of being freed.
//! After the turn has released the lock, its thread makes reservations of them and calls the sink.
//! Until the sink drops these, the blocks count as reserved.
//!
//! A thread that needs the blocks now never waits for the sink: while the sink keeps blocks that
//! the thread has offered, the thread evicts past it. A request in the wait list counts the blocks
//! that the sink has as expected back, and is woken when they are dropped. A request that may wait
//! joins the list at once if the sink keeps the offered blocks.
//!
//! | who evicts | how it gets its blocks |
//! |---|---|
//! | a reservation | offers its victims and tries again; then evicts past the sink |
//! | a request that may wait | the same, but joins the wait list instead of the last step |
//! | a waiter, a background evictor | evicts only the blocks that are missing beyond those that the sink has (E29) |
//! | `evict`, `settle`, quotas, time to idle | pass the blocks to the sink and continue |
//!
//! The number of offers is bounded, because a sink may cache the blocks again each time, or other
//! threads take them. A panic in the sink frees the blocks of its batch. After a panic before the
//! reservations are made, the next turn frees the victims. Without a sink this costs one branch for
//! each victim.

use std::fmt;

use super::evicted::Evicted;
use crate::sync::Arc;

/// Receives every block that a cache evicts: for a reservation, by the background thread, for a
/// quota or for its age.
///
/// Set by [`Builder::eviction_sink`](crate::Builder::eviction_sink). A closure over an
/// [`EvictedBatch`] is a sink.
///
/// It does not receive blocks that are cleared or invalidated, nor those that
/// [`evict_into`](crate::PrefixCache::evict_into) returns.
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
    /// insert in the same cache. It must not reserve there, nor insert into a namespace that is or
    /// gets over its quota: both could evict and call it again, recursively, for as long as there
    /// is something to evict. A panic propagates out of the operation that evicted, after it has
    /// changed the cache.
    ///
    /// If [`is_needed`](EvictedBatch::is_needed), a thread needs these blocks now: copy them and
    /// drop the pieces before returning. If pieces are kept longer, the thread evicts other blocks
    /// instead, which are [passed by](Self::passed_by). Otherwise the pieces may be sent to another
    /// thread and be dropped there at any time.
    ///
    /// A request that may wait does not evict other blocks instead of kept ones: it expects the
    /// kept blocks back, and a piece that is never dropped can keep it waiting until its deadline.
    fn take(&self, batch: EvictedBatch);

    /// Returns a mark of the present moment, passed back in [`EvictedBatch::mark`].
    ///
    /// Called under the evictor's lock when the first block of a batch is evicted. A
    /// [`clear`](crate::PrefixCache::clear) also takes that lock: a sink that counts clears can
    /// tell by the mark which blocks were evicted before a clear. Must be quick and must not call
    /// the cache. If it panics, the panic is caught and the blocks are
    /// [passed by](Self::passed_by).
    fn mark(&self) -> u64 {
        0
    }

    /// Reports `blocks` blocks that were evicted but not offered, because a thread needed them
    /// while the sink kept offered ones, or because [`mark`](Self::mark) panicked.
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
    /// Whether the thread or task that evicted them needs them now.
    pub is_needed: bool,
}

/// A sink that several caches, builders and turns share.
#[derive(Clone)]
pub(in crate::cache) struct Sink(Arc<Box<dyn EvictionSink>>);

impl Sink {
    pub(in crate::cache) fn new(sink: impl EvictionSink + 'static) -> Self {
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
