//! The background evictor: a thread around the evictor's steps.
//!
//! It sleeps until it is called because free blocks are short or changes have piled up, then works in bounded steps, each
//! under the evictor's lock for itself, so that a session that must evict at once waits for one step at most. Where
//! nothing is left to evict and free blocks are still short, whatever lets blocks go calls it ([`line`](super::line)).
//! Where prefixes are dropped for their age it also wakes by itself, and where some are retained, when the first of them
//! is to be let go: a thread may wait for it. It holds the cache weakly: the last handle ends it.
//!
//! A panic in a step is a bug of ours; the thread reports it as every panic is reported, and goes on.

use std::io;
use std::time::{Duration, Instant};

#[cfg(radixkv_loom)]
use super::PrefixCache;
use super::{Inner, STEP};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Bell, Weak, contained};

/// Blocks that one step frees at most.
const SLICE: usize = 256;

/// When the background evictor begins and stops, in free blocks.
///
/// With an [external pool](super::Builder::external) the cache does not know how many of the engine's blocks are free:
/// there they count the evicted ids that wait to be taken.
///
/// # Examples
///
/// ```
/// use radixkv::{Eviction, PrefixCache, Watermarks};
///
/// let watermarks = Watermarks::new(64, 128);
/// let cache = PrefixCache::builder(16, 1024).eviction(Eviction::Background(watermarks)).build()?;
/// # drop(cache);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watermarks {
    /// It begins when fewer blocks than this are free.
    pub low: usize,
    /// It stops when this many are.
    pub high: usize,
}

impl Watermarks {
    /// It begins below `low` free blocks and stops at `high`; [`build`](super::Builder::build) refuses a `low` above
    /// `high`, and a `high` above the capacity.
    pub const fn new(low: usize, high: usize) -> Self {
        Self { low, high }
    }

    /// Low at 1/256 of `blocks`, high at 1/128: enough to keep evictions away from the threads that allocate, at the
    /// price of few cached blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(radixkv::Watermarks::for_capacity(1024), radixkv::Watermarks::new(4, 8));
    /// ```
    pub fn for_capacity(blocks: usize) -> Self {
        Self { low: blocks.div_ceil(256), high: blocks.div_ceil(128) }
    }
}

/// Who evicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Eviction {
    /// Whoever needs blocks: no thread is started, and every victim is the policy's exact choice.
    #[default]
    Inline,
    /// A thread of the cache's own, between these watermarks; whoever finds too little evicts beside it.
    ///
    /// A choice goes by the changes that the evictor has taken in, which may lag by what its queue holds. Where it was
    /// short of blocks with nothing left to evict, it is called when leases end. It goes on after a panic, which the
    /// panic hook reports.
    Background(Watermarks),
}

/// The thread, and how to call it.
#[derive(Debug)]
pub(super) struct Background {
    watermarks: Watermarks,
    bell: Arc<Bell>,
    /// Nothing once the thread was joined.
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: a child that is forked off has not.
    process: u32,
}

impl Background {
    /// Starts the thread; `pause` is how long it sleeps at most.
    pub(super) fn start(inner: Weak<Inner>, watermarks: Watermarks, pause: Option<Duration>) -> io::Result<Self> {
        let bell = Arc::new(Bell::new());
        let thread = thread::Builder::new().name("radixkv-evictor".into()).spawn({
            let bell = Arc::clone(&bell);
            move || {
                // A first look at once: from then on it knows whether it is short of blocks.
                let mut sleep = Some(Duration::ZERO);
                while bell.wait(sleep) {
                    let Some(inner) = inner.upgrade() else { return };
                    // What a panicking step leaves behind is bounded, and no lock (tests/faults.rs).
                    let mut retained = None;
                    contained(|| retained = inner.work_off(watermarks));
                    let until = retained.map(|until| until.saturating_duration_since(Instant::now()));
                    sleep = [pause, until].into_iter().flatten().min();
                }
            }
        })?;
        Ok(Self { watermarks, bell, thread: Some(thread), process: std::process::id() })
    }

    /// Called with the number of free blocks after an allocation.
    #[inline]
    pub(super) fn blocks_left(&self, free: usize) {
        if free < self.watermarks.low {
            self.changes_pending();
        }
    }

    /// Called when changes may have piled up, or blocks become available that it waits for.
    pub(super) fn changes_pending(&self) {
        self.bell.ring(|| self.unpark());
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The thread stayed behind in the process that forked: there is nothing to end and nothing to wait for.
            std::mem::forget(self.thread.take());
            return;
        }
        self.bell.end(|| self.unpark());
        if let Some(thread) = self.thread.take() {
            // The thread itself may hold the cache last; it ends after this.
            if thread.thread().id() != thread::current().id() {
                // A panic in there was reported when it happened.
                let _ = thread.join();
            }
        }
    }
}

/// For models, whose threads the checker starts: the thread's turns and its bell, without the thread.
#[cfg(radixkv_loom)]
impl PrefixCache {
    /// From now on whatever calls a background evictor rings a bell; returns its look at free blocks, to be taken again
    /// whenever it was rung.
    pub(crate) fn evict_beside(&self, watermarks: Watermarks) -> (Arc<Bell>, impl Fn() + use<>) {
        let bell = Arc::new(Bell::new());
        let background = Background { watermarks, bell: Arc::clone(&bell), thread: None, process: std::process::id() };
        assert!(self.inner.background.set(background).is_ok(), "one evictor");
        let inner = Arc::clone(&self.inner);
        (bell, move || _ = inner.work_off(watermarks))
    }
}

impl Inner {
    /// Takes in what is queued and evicts up to the high watermark if free blocks were below the low one; when the first
    /// of what is retained then is over.
    fn work_off(&self, watermarks: Watermarks) -> Option<Instant> {
        let short = || self.sink().free() < watermarks.low;
        let (mut evicting, mut waits) = (false, false);
        loop {
            evicting |= short();
            let idle_since = self.idle_since();
            let (more, retained) = self.in_turn(|evictor, resources| {
                if std::mem::take(&mut waits) {
                    evictor.settle_for_waiter(resources);
                }
                let more = self.step(idle_since, evictor, resources);
                let mut entries = STEP;
                let missing = if evicting { watermarks.high.saturating_sub(self.sink().free()) } else { 0 };
                let evicted = if missing == 0 { 0 } else { evictor.evict(missing.min(SLICE), &mut entries, resources) };
                (more || (evicted > 0 && evicted < missing), evictor.retained.next())
            });
            if more {
                continue;
            }
            if !short() {
                self.wait_list.evictor_wakes();
            } else if !self.wait_list.evictor_is_waiting() {
                // What is let go of from now on calls the thread; what was before, the next look finds.
                self.wait_list.evictor_waits();
                waits = true;
                continue;
            }
            return retained.and_then(|deadline| self.time.moment(deadline));
        }
    }
}
