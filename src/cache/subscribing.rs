//! Listening to a cache: a channel of event batches, and what is cached at one moment.
//!
//! Each subscriber has a bounded channel. A batch that finds it full is lost to that subscriber, who sees it by the numbers; no
//! thread waits.

use std::fmt;
use std::ops::Range;

use super::draft::Draft;
use super::events::{EventBatch, Gathered};
use super::evictor::{GONE, Listed, Subscriber};
use super::inner::{Inner, Patience};
use super::prefix_cache::PrefixCache;
use crate::sync::channel::{Receiver, TryRecvError, channel};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, Weak};

/// A listener's end of a bounded channel of event batches; made by [`PrefixCache::subscribe`]. It does not keep the cache alive.
pub struct Subscription {
    drafts: Receiver<Arc<Draft>>,
    /// Taken out of the channel while the cache ended, which copies it.
    taken: Option<Arc<Draft>>,
    /// Batches that wait in the channel.
    waiting: Arc<AtomicUsize>,
    cache: Weak<Inner>,
    /// The number of the next batch, if none is lost.
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
    /// The next batch that is there. If there is none, takes the changes that were made before the call into the evictor's
    /// accounts, unless another thread is evicting, and looks again. Copies the tokens of what was stored. Never waits: there is
    /// none, either, while the cache is being dropped.
    pub fn try_next(&mut self) -> Option<EventBatch> {
        if let Some(batch) = self.receive() {
            return Some(batch);
        }
        let inner = self.cache.upgrade()?;
        inner.settle_by(Patience::Tries);
        let published = inner.try_evicting(|evictor, resources| {
            evictor.observers.publish(resources.guard);
            evictor.observers.next()
        });
        drop(inner);
        let batch = self.receive();
        if let (None, None, Some(next)) = (&batch, &self.taken, published) {
            // Those before it that did not come were lost; one that is taken comes once the cache has ended.
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
                    // Relaxed: a bound.
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
        // While the cache is there, what the draft names is, too; as it ends, it copies what drafts name.
        let Some(batch) = self.cache.upgrade().map(|_cache| draft.batch()).or_else(|| draft.copied()) else {
            self.taken = Some(draft);
            return None;
        };
        self.lost += batch.number() - self.next;
        self.next = batch.number() + 1;
        Some(batch)
    }

    /// The number of the next batch, if none is lost.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Batches that were lost to it because its channel was full. Start anew from a [snapshot](PrefixCache::snapshot).
    pub fn lost_batches(&self) -> u64 {
        self.lost
    }

    /// Whether the cache has gone, and all its batches were taken.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Relaxed: a bound.
        self.waiting.store(GONE, Relaxed);
    }
}

impl PrefixCache {
    /// Listens to what is stored and removed from now on, in a channel of up to `batches` batches.
    ///
    /// Batches come when the evictor takes changes in: as it evicts, as sessions help, by [`settle`](Self::settle) and by
    /// [`Subscription::try_next`]. The evictor notes where the tokens of each store lie, and [`Subscription::try_next`] copies them;
    /// lookups cost the same as without. Until then the tokens stay in memory, though their blocks may be evicted, as far as the
    /// channel reaches. Waits its turn if another thread is evicting. Dropping the subscription ends it, and lets these tokens go.
    ///
    /// What is cached already is not told: take a [`snapshot`](Self::snapshot) after subscribing. [`CacheEvent`](crate::CacheEvent) has an example.
    pub fn subscribe(&self, batches: usize) -> Subscription {
        let (sender, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let subscriber = Subscriber { drafts: sender, waiting: Arc::clone(&waiting), most: batches.clamp(1, GONE - 1) };
        let next = self.inner.settled(|evictor, resources| evictor.observers.add(subscriber, resources.guard));
        Subscription {
            drafts: receiver,
            taken: None,
            waiting,
            cache: Arc::downgrade(&self.inner),
            next,
            lost: 0,
            has_ended: false,
        }
    }

    /// What is cached at one moment, as stores, each after the one that it follows; those of a namespace come together. The
    /// batch's number is that of the next batch that a subscriber gets: the snapshot and the batches from that number on make up
    /// everything.
    ///
    /// Takes every change in that was made before the call. The runs are listed in slices, between which other threads get their
    /// turn; what goes meanwhile is listed as it was. Tokens and ids are copied after that, under no lock. Waits its turn if another
    /// thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{CacheEvent, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(2, 8).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// for prompt in [[1, 2, 3, 4], [1, 2, 5, 6]] {
    ///     let hit = session.match_prefix(&space, &prompt);
    ///     let missing = session.reserve(2 - hit.blocks().len())?;
    ///     drop(session.insert(hit.lease(), &prompt, missing)?);
    /// }
    /// let (mut events, snapshot) = (cache.subscribe(64), cache.snapshot());
    /// assert_eq!(snapshot.number(), events.next_number());
    /// let starts = snapshot.events().map(|event| match event {
    ///     CacheEvent::Stored { start, tokens, .. } => (start, tokens.to_vec()),
    ///     other => panic!("not a store: {other:?}"),
    /// });
    /// assert_eq!(starts.collect::<Vec<_>>(), [(0, vec![1, 2, 3, 4]), (2, vec![5, 6])]);
    /// assert!(events.try_next().is_none());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> EventBatch {
        let participant = self.inner.participant();
        // Pinned before the lock and after it: what the excerpt has stays readable.
        let guard = participant.pin();
        let listing = self.inner.list(None, &guard);
        let (excerpt, mut gathered) = (listing.excerpt, Gathered::numbered(listing.next_batch));
        for Listed { run, piece, at, namespace, grid, .. } in listing.runs {
            let (parent, first) =
                (excerpt.block_before(piece, at.start, &guard), run.get(&guard).start() + at.start as usize);
            let (blocks, first) = (excerpt.blocks(piece, at, &guard), grid.blocks(first));
            if blocks.is_empty() {
                continue;
            }
            gathered.store(namespace, grid, first, parent, blocks, |Range { start, end }, tokens| {
                excerpt.append_tokens(piece, start, end, tokens, &guard);
            });
        }
        gathered.batch()
    }
}
