//! Flat combining: the holder of the evictor's lock makes reservations for threads that wait for
//! the lock. `blocks::allocate` publishes and serves.
//!
//! Handing the lock over costs more than most evictions, because the next holder waits for each
//! cache line that the last one has written. So a thread that would wait behind others publishes
//! the number of blocks it needs, and the holder makes such reservations at the end of its own
//! turn. A thread that waits without competitors publishes nothing, because it gets the lock next.
//!
//! When the thread gets the lock, it first withdraws its request, and learns whether it was served.
//! (Hendler, Incze, Shavit and Tzafrir, *Flat combining and the synchronization-parallelism
//! tradeoff*, 2010. Unlike there, a thread's record is released with each request, because most
//! requests never wait.)
//!
//! A request is refused only in its thread's own turn: one that cannot be served in one step waits
//! for that turn. With an eviction sink nothing is served, because evicted blocks become available
//! only after the turn. A thread that stops after publishing blocks no other thread. Its blocks
//! count as reserved, and return to the pool if it panics.
//!
//! # Invariants
//!
//! - **C1** A record belongs to the thread that took it from `FREE`, until that thread frees it.
//! - **C2** A record is served only under the evictor's lock. Its blocks belong to the holder until
//!   the record is `SERVED`, and to the owner from then on, which puts them into a reservation or
//!   gives them back.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E24 | `publish` | `serve` | the holder finds the thread's earlier changes in the queue, and considers them when it chooses victims |
//! | E25 | `serve` | `withdraw` | the thread finds the blocks |
//! | E26 | dropping a `Publication` | `publish` | the next owner of a record starts after the last one has read its blocks |

use crossbeam_utils::CachePadded;

use crate::block::{BlockId, Pool};
use crate::sync::apart::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{model_size, yield_now};

/// Number of records. A session whose record is in use by another session waits for the lock.
const RECORDS: usize = model_size(32, 4);
/// The most blocks of one request: a larger one deserves a turn of its own.
const MOST: usize = model_size(32, 4);
/// The most blocks that are served in one turn: the evictor's lock is held for a fraction of a
/// millisecond.
const AT_ONCE: usize = 8 * MOST;

/// States of a record. Any other value is the number of blocks that it requests.
const FREE: usize = 0;
const TAKEN: usize = MOST + 1;
const SERVING: usize = MOST + 2;
const SERVED: usize = MOST + 3;

#[derive(Debug)]
struct Record {
    /// Explored, like the blocks, by a separate model.
    state: AtomicUsize,
    blocks: [AtomicUsize; MOST],
}

/// The published requests of threads that wait for the lock.
#[derive(Debug)]
pub(crate) struct Publications {
    /// A bit for each record that may have a request.
    published: CachePadded<AtomicUsize>,
    records: Box<[CachePadded<Record>]>,
    /// Whether a thread publishes even if no other one waits.
    always: bool,
}

/// A published request; withdrawn when it is dropped.
#[derive(Debug)]
pub(crate) struct Publication<'a> {
    of: &'a Publications,
    at: usize,
    blocks: usize,
    /// The pool that gets its blocks if nobody takes them.
    pool: &'a Pool,
}

/// A request that is being served.
struct Serving<'a> {
    record: &'a Record,
    /// The record's state when serving ends: `SERVED`, or the request again after a failure or a
    /// panic.
    then: usize,
}

impl Publications {
    pub(crate) fn new(always: bool) -> Self {
        let record = |_| {
            let blocks = std::array::from_fn(|_| AtomicUsize::new(0));
            CachePadded::new(Record { state: AtomicUsize::new(FREE), blocks })
        };
        let published = CachePadded::new(AtomicUsize::new(0));
        Self { published, records: (0..RECORDS).map(record).collect(), always }
    }

    /// Whether a thread that has to wait for the lock should publish its request.
    #[inline]
    pub(crate) fn should_combine(&self, others_wait: bool) -> bool {
        others_wait || self.always
    }

    /// Whether a request is published: a hint.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // Relaxed: a request that is missed here is served by its own thread.
        self.published.load(Relaxed) != 0
    }

    /// Publishes a request for `blocks` blocks in the record that `near` selects. `None` if the
    /// request is too large, or another thread has the record.
    pub(crate) fn publish<'a>(&'a self, near: usize, blocks: usize, pool: &'a Pool) -> Option<Publication<'a>> {
        let at = near % RECORDS;
        let state = &self.records[at].state;
        // Acquire: E26.
        if !(1..=MOST).contains(&blocks) || state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            return None;
        }
        let publication = Publication { of: self, at, blocks, pool };
        // Release: E24.
        state.store(blocks, Release);
        // Relaxed: as in `has_any`.
        self.published.fetch_add(1 << at, Relaxed);
        crate::sync::failpoint!("publications::published");
        Some(publication)
    }

    /// Serves the published requests; call it under the evictor's lock. `take` appends the
    /// requested number of blocks, all or none, and returns whether it did. Stops at the first
    /// request that `take` cannot serve, and skips requests that are too large for the rest of the
    /// turn.
    pub(crate) fn serve(&self, mut take: impl FnMut(usize, &mut Vec<BlockId>) -> bool) {
        // Relaxed: as in `has_any`.
        let published = self.published.load(Relaxed);
        let (mut blocks, mut left) = (Vec::with_capacity(MOST), AT_ONCE);
        for at in (0..RECORDS).filter(|at| published & 1 << at != 0) {
            let record = &self.records[at];
            // Relaxed: a guess, which the compare-and-swap checks.
            let asked = record.state.load(Relaxed);
            // Acquire: E24.
            let is_asked = (1..=MOST.min(left)).contains(&asked)
                && record.state.compare_exchange(asked, SERVING, Acquire, Relaxed).is_ok();
            if !is_asked {
                continue;
            }
            left -= asked;
            let mut serving = Serving { record, then: asked };
            blocks.clear();
            if !take(asked, &mut blocks) {
                return;
            }
            // Relaxed: E25.
            record.blocks.iter().zip(&blocks).for_each(|(to, block)| to.store(*block as usize, Relaxed));
            serving.then = SERVED;
        }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        // Release: E25.
        self.record.state.store(self.then, Release);
    }
}

impl Publication<'_> {
    fn record(&self) -> &Record {
        &self.of.records[self.at]
    }

    /// Whether the request was served.
    #[inline]
    pub(crate) fn is_served(&self) -> bool {
        // Relaxed: the caller takes the blocks by E25, in `withdraw`.
        self.record().state.load(Relaxed) == SERVED
    }

    /// Withdraws the request. If it was served, the first call returns its blocks.
    pub(crate) fn withdraw(&self) -> Option<impl Iterator<Item = BlockId>> {
        let Record { state, blocks } = self.record();
        loop {
            // Acquire: E25.
            let seen = state.load(Acquire);
            match seen {
                TAKEN => return None,
                SERVED => {
                    // Relaxed: no other thread writes it.
                    state.store(TAKEN, Relaxed);
                    // Relaxed: E25.
                    return Some(blocks[..self.blocks].iter().map(|block| block.load(Relaxed) as BlockId));
                }
                // Cannot happen if the caller has the lock.
                SERVING => yield_now(),
                // Relaxed: nothing was handed over.
                asked => {
                    if state.compare_exchange(asked, TAKEN, Relaxed, Relaxed).is_ok() {
                        return None;
                    }
                }
            }
        }
    }
}

impl Drop for Publication<'_> {
    fn drop(&mut self) {
        if let Some(left) = self.withdraw().map(Vec::from_iter) {
            self.pool.give_back(&left);
        }
        // Relaxed: as in `has_any`.
        self.of.published.fetch_sub(1 << self.at, Relaxed);
        // Release: E26.
        self.record().state.store(FREE, Release);
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
