//! The evictor's queues: the points that have changed since the evictor last looked at them.
//!
//! Each shard of the evictor has a queue, for the points on that shard's runs ([`Queues`]). Any
//! thread pushes; only the lock holder of the shard drains. The rest is about one queue.
//!
//! It is an intrusive stack: the link is in the point, a push is one compare-and-swap, and a drain
//! is one swap. A point has at most one entry (`QUEUED` in its word), so nothing is allocated, and
//! the queue is never longer than the number of live and dying points. The evictor takes entries
//! out in the order in which they were pushed ([`Backlog`]), so that runs enter its accounts in the
//! order of their inserts, no matter how often it drains. For each point it uses the word at the
//! time when the entry is taken out.
//!
//! A drain takes the entries present when it begins, not entries that other threads add later.
//! Changes that the evictor itself makes (the parent of a dead run, the end of a retention) come
//! before them. An entry owns a reference: if its point dies while queued, the point is retired when
//! the entry is taken out.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E8 | `push` | `drain` | the evictor finds the links written |
//! | E15 | `drain_for_waiter` | `push` | a thread that queues a change after it sees that another one waits (cache::line::wait_list) |

use crossbeam_utils::CachePadded;

use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::point::Point;
use super::shard::{ShardCount, ShardId};
use crate::sync::prefetch_to_write;

/// The queue of one shard: points that have changed and were not drained yet.
#[derive(Debug)]
pub(crate) struct Queue {
    head: CachePadded<AtomicPtr<Point>>,
}

/// The queues of all shards, each of which has the points on that shard's runs.
#[derive(Debug)]
pub(crate) struct Queues(Box<[Queue]>);

/// Drained entries, as a linked list; newest first as a drain returns them.
#[derive(Debug)]
#[must_use]
pub(crate) struct Chain(*mut Point);

#[allow(unsafe_code)]
// SAFETY: a chain is an address; its entries keep their points alive (word.rs: `QUEUED` owns a
// reference).
unsafe impl Send for Chain {}

/// The drained entries that were not taken out yet, in the order in which they were pushed. The
/// evictor owns it.
///
/// The queue is a stack, so a drained chain must be reversed. That is done one entry at a time, as
/// far as the caller allows, so that each step of the evictor is bounded.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The evictor's own entries, latest first, then the drained ones, oldest first.
    ready: Chain,
    /// Number of own entries: points that the evictor itself has changed (parents of dead runs, and
    /// points whose leases it gave back), and deferred entries.
    own: usize,
    /// The entries after the ready ones: `turned` is already reversed, `rest` is not.
    turned: Chain,
    rest: Chain,
    /// Number of drains received.
    received: u64,
    /// The first drained ready entry that [`ahead`](Self::ahead) has not returned yet, and the
    /// number of drained ones before it.
    unnamed: Chain,
    named: usize,
}

/// Maximum number of entries that [`Backlog::ahead`] returns before their turn.
const NAMED: usize = 8;

impl Queue {
    pub(crate) fn new() -> Self {
        Self { head: CachePadded::new(AtomicPtr::new(std::ptr::null_mut())) }
    }

    /// Adds a point. The caller has just set its `QUEUED`.
    pub(crate) fn push(&self, point: Ref<'_, Point>) {
        crate::sync::failpoint!("queue::push");
        // Relaxed: the compare-and-swap checks it.
        let mut head = self.head.load(Relaxed);
        loop {
            point.link.set(head);
            // Release: E8. Acquire: E15.
            match self.head.compare_exchange_weak(head, point.as_ptr(), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    /// Prefetches the line that [`drain`](Self::drain) and [`push`](Self::push) write.
    pub(crate) fn prefetch(&self) {
        prefetch_to_write(&raw const *self.head);
    }

    /// Takes all entries. Only the evictor calls it.
    pub(crate) fn drain(&self) -> Chain {
        if self.is_empty() {
            return Chain::empty();
        }
        // Acquire: E8.
        Chain(self.head.swap(std::ptr::null_mut(), Acquire))
    }

    /// Takes all entries, with a read-modify-write even if the queue is empty. Only the evictor
    /// calls it.
    pub(crate) fn drain_for_waiter(&self) -> Chain {
        // Acquire: E8. Release: E15.
        Chain(self.head.swap(std::ptr::null_mut(), AcqRel))
    }

    /// Whether the queue was empty a moment ago.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint; a caller that needs to be sure drains under the evictor's lock.
        self.head.load(Relaxed).is_null()
    }
}

impl Queues {
    pub(crate) fn new(shards: ShardCount) -> Self {
        Self(shards.all().map(|_| Queue::new()).collect())
    }

    /// The queue of a shard.
    #[inline]
    pub(crate) fn of(&self, shard: ShardId) -> &Queue {
        &self.0[shard.index()]
    }

    /// Whether all queues were empty a moment ago.
    pub(crate) fn are_empty(&self) -> bool {
        self.0.iter().all(Queue::is_empty)
    }

    /// The shard of a point, whose run the caller keeps alive.
    #[inline]
    pub(crate) fn shard(&self, point: Ref<'_, Point>) -> ShardId {
        if self.0.len() == 1 { ShardId::FIRST } else { point.run().shard() }
    }

    /// Adds a point, whose run the caller keeps alive. The caller has just set its `QUEUED`.
    #[inline]
    pub(crate) fn push(&self, point: Ref<'_, Point>) {
        self.of(self.shard(point)).push(point);
    }
}

impl Chain {
    fn empty() -> Self {
        Self(std::ptr::null_mut())
    }

    fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// Removes the first entry and reads its link: once `QUEUED` is cleared, the link belongs to
    /// another thread.
    fn pop<'g>(&mut self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        let point = Ref::from_ptr(self.0, guard)?;
        // The link was written before the push (E8), or by the backlog, and is not written again
        // before `QUEUED` is cleared (word.rs, E4).
        self.0 = point.link.get();
        Some(point)
    }

    fn push(&mut self, point: Ref<'_, Point>) {
        point.link.set(self.0);
        self.0 = point.as_ptr();
    }
}

impl Backlog {
    pub(crate) fn empty() -> Self {
        let [ready, turned, rest, unnamed] = std::array::from_fn(|_| Chain::empty());
        Self { ready, own: 0, turned, rest, received: 0, unnamed, named: 0 }
    }

    /// Whether no entry is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.is_turned()
    }

    fn is_turned(&self) -> bool {
        self.turned.is_empty() && self.rest.is_empty()
    }

    /// Adds a point. The evictor has just set its `QUEUED`, or has deferred its entry.
    pub(crate) fn push(&mut self, point: Ref<'_, Point>) {
        self.ready.push(point);
        self.own += 1;
    }

    /// Takes over the entries that [`Queue::drain`] returned. All entries received before must have
    /// been reversed: the backlog is empty, or [`next`](Self::next) was called without a bound.
    pub(crate) fn receive(&mut self, drained: Chain) {
        debug_assert!(self.is_turned(), "two chains would be mixed");
        self.rest = drained;
        self.received += 1;
    }

    /// Number of drains received. An entry that is in the queue at the time of this call is in the
    /// backlog once the number has grown.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Takes the next entry out; `None` if there is none, or if more than `turns` entries must be
    /// reversed to reach it.
    pub(crate) fn next<'g>(&mut self, turns: &mut usize, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        if self.ready.is_empty() {
            while !self.rest.is_empty() {
                *turns = turns.checked_sub(1)?;
                let point = self.rest.pop(guard)?;
                self.turned.push(point);
            }
            self.ready = std::mem::replace(&mut self.turned, Chain::empty());
            (self.unnamed, self.named) = (Chain(self.ready.0), 0);
        }
        let next = self.ready.pop(guard)?;
        if self.own > 0 {
            self.own -= 1;
            return Some(next);
        }
        if self.named == 0 {
            self.unnamed = Chain(self.ready.0);
        }
        self.named = self.named.saturating_sub(1);
        Some(next)
    }

    /// Returns an entry whose turn comes soon, so that the caller can prefetch it; each entry only
    /// once. The entry stays in the backlog, and its point may be dead.
    pub(crate) fn ahead<'g>(&mut self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        if self.named == NAMED {
            return None;
        }
        let entry = self.unnamed.pop(guard)?;
        self.named += 1;
        Some(entry)
    }

    /// Whether a change that the evictor itself made is left.
    pub(crate) fn has_own(&self) -> bool {
        self.own > 0
    }
}
