//! The eviction sink: receives evicted blocks before they are used again.
//!
//! Under the evictor's lock a victim's blocks are gathered in `Victims` in place of being freed. When the turn has given up the
//! lock, the thread makes reservations of them and calls the sink. Until the sink drops these, the blocks count as reserved.
//!
//! A thread that needs the blocks now evicts past the sink while that keeps any of those which the thread has offered: it never waits
//! for it. One that is in the wait list counts what the sink has as on its way, and is woken when it is dropped. A request that may wait
//! and finds that the sink keeps what it has offered joins the list at once.
//!
//! | who evicts | how it gets its blocks |
//! |---|---|
//! | a reservation | offers what it evicts and tries again; then evicts past the sink |
//! | a request that may wait | the same, but joins the wait list instead of the last step |
//! | a waiter, a background evictor | evicts what is missing beyond what the sink has (E29) |
//! | `evict`, `settle`, quotas, ages | hand the blocks over and continue |
//!
//! The number of offers is bounded: a sink may cache the blocks again each time, or other threads
//! take them. A panic in the sink frees the blocks of its batch; after a panic before the call the
//! next turn finds the victims. Without a sink this costs one branch for each victim.

use std::fmt;

use super::evicted::Evicted;
use crate::sync::Arc;

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
    /// insert in the same cache. It must not reserve there, nor insert into a namespace that
    /// exceeds its quota: both could evict, and call it again, as deep as there is to evict.
    /// A panic reaches the verb that evicted, after it has changed the cache.
    ///
    /// If [`is_needed`](EvictedBatch::is_needed), a thread has asked for these blocks: copy them
    /// and drop the pieces before returning. For pieces that are kept longer the thread evicts
    /// others, which are [passed by](Self::passed_by). Otherwise the pieces may go to another
    /// thread and be dropped there at any time.
    ///
    /// A request that may wait evicts no others for pieces that are kept: it expects their blocks,
    /// and a piece that is never dropped can keep it waiting until its deadline.
    fn take(&self, batch: EvictedBatch);

    /// A mark of the present moment, which comes back in [`EvictedBatch::mark`].
    ///
    /// Called under the evictor's lock when the first block of a batch is evicted. A
    /// [`clear`](crate::PrefixCache::clear) takes that lock too: a sink that counts clears knows
    /// by the mark which blocks are from before one. Must be quick and must not call the cache. If
    /// it panics, the panic is caught and the blocks are [passed by](Self::passed_by).
    fn mark(&self) -> u64 {
        0
    }

    /// So many blocks were evicted and not offered, because a thread needed them while the sink
    /// kept those that it was offered, or because [`mark`](Self::mark) panicked.
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
    /// The thread or task that evicted them needs them now.
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
