//! Subscribing to a cache: a channel of event batches, and a snapshot of one moment.
//!
//! Each subscriber has a bounded channel. A batch that finds the channel full is lost to that
//! subscriber, which notices by the batch numbers; no thread waits. The evictor makes and sends the
//! batches (`evictor::listeners::observers`).

use std::fmt;
use std::ops::Range;

use super::draft::Draft;
use super::events::{EventBatch, Gathered};
use crate::cache::evictor::{GONE, Listed, Subscriber};
use crate::cache::inner::Inner;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::turn::LockMode;
use crate::sync::channel::{Receiver, TryRecvError, channel};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, Weak};

/// The receiving end of a bounded channel of event batches; made by [`PrefixCache::subscribe`]. It
/// does not keep the cache alive.
pub struct Subscription {
    drafts: Receiver<Arc<Draft>>,
    /// A draft received while the cache was being dropped; the drop copies its tokens.
    taken: Option<Arc<Draft>>,
    /// Number of batches in the channel.
    waiting: Arc<AtomicUsize>,
    cache: Weak<Inner>,
    /// The number of the next batch, if no batch is lost.
    next: u64,
    lost: u64,
    has_ended: bool,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { next, lost, .. } = self;
        f.debug_struct("Subscription").field("next", next).field("lost", lost).finish_non_exhaustive()
    }
}

impl Subscription {
    /// Receives the next batch. If the channel is empty, first lets the evictor process the changes
    /// made before the call, unless another thread is evicting. Copies the stored tokens. Never
    /// waits, and returns `None` while the cache is being dropped, even if batches are left.
    pub fn try_next(&mut self) -> Option<EventBatch> {
        if let Some(batch) = self.receive() {
            return Some(batch);
        }
        let inner = self.cache.upgrade()?;
        inner.settle_by(LockMode::Tries);
        let published = inner.try_evicting(|evictor, resources| {
            evictor.publish(resources);
            evictor.common.listeners.observers.next()
        });
        drop(inner);
        let batch = self.receive();
        if let (None, None, Some(next)) = (&batch, &self.taken, published) {
            // Earlier batches that were not received are lost. A batch in `taken` is not: it is
            // returned once the cache was dropped.
            self.lost += next - self.next;
            self.next = next;
        }
        batch
    }

    fn receive(&mut self) -> Option<EventBatch> {
        let draft = match self.taken.take() {
            Some(draft) => draft,
            None => match self.drafts.try_recv() {
                Ok(draft) => {
                    // Relaxed: only a bound.
                    self.waiting.fetch_sub(1, Relaxed);
                    draft
                }
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    self.has_ended = true;
                    return None;
                }
            },
        };
        // While the cache lives, so do the arrays that the draft names. When it is dropped, it
        // copies the drafts.
        let Some(batch) = self.cache.upgrade().map(|_cache| draft.batch()).or_else(|| draft.copied()) else {
            self.taken = Some(draft);
            return None;
        };
        self.lost += batch.number() - self.next;
        self.next = batch.number() + 1;
        Some(batch)
    }

    /// The number of the next batch, if no batch is lost.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Number of batches that were lost because the channel was full. Start again from a
    /// [snapshot](PrefixCache::snapshot).
    pub fn lost_batches(&self) -> u64 {
        self.lost
    }

    /// Whether the cache was dropped and all its batches were received.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Relaxed: only a bound.
        self.waiting.store(GONE, Relaxed);
    }
}

pub(in crate::cache) fn subscribe(cache: &PrefixCache, batches: usize) -> Subscription {
    let (sender, receiver) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let subscriber = Subscriber { drafts: sender, waiting: Arc::clone(&waiting), most: batches.clamp(1, GONE - 1) };
    let next = cache.inner.settled(|evictor, resources| evictor.subscribe(subscriber, resources));
    Subscription {
        drafts: receiver,
        taken: None,
        waiting,
        cache: Arc::downgrade(&cache.inner),
        next,
        lost: 0,
        has_ended: false,
    }
}

pub(in crate::cache) fn snapshot(cache: &PrefixCache) -> EventBatch {
    let participant = cache.inner.participant();
    // Pinned before the listing begins and until it is copied, so that the paths stay readable.
    let guard = participant.pin();
    let listing = cache.inner.list(None, &guard);
    let (paths, mut gathered) = (listing.paths, Gathered::numbered(listing.next_batch));
    for Listed { run, piece, at, namespace, layout, .. } in listing.runs {
        let (parent, first) =
            (paths.block_before(piece, at.start, &guard), run.get(&guard).start() + at.start as usize);
        let (blocks, first) = (paths.blocks(piece, at, &guard), layout.blocks(first));
        if blocks.is_empty() {
            continue;
        }
        gathered.store(namespace, layout, first, parent, blocks, |Range { start, end }, tokens| {
            paths.append_tokens(piece, start, end, tokens, &guard);
        });
    }
    gathered.batch()
}
