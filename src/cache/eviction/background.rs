//! The background evictor: a thread that performs the evictor's steps.
//!
//! It sleeps until it is woken, mostly because free blocks are short. Then it works in bounded
//! steps and takes the evictor's lock for each of them, so a session that must evict waits for at
//! most one step. When nothing is left to evict and free blocks are still short, every release of
//! blocks wakes it ([`wait_list`](crate::cache::line::wait_list)). It also wakes at intervals to
//! remove aged prefixes, and when the first retention ends, because a waiter may wait for that. It
//! has a weak reference to the cache: dropping the last handle ends the thread.
//!
//! A panic in a step is a bug of this crate; the panic hook reports it, and the thread continues.

pub(in crate::cache) mod work;

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Bell};

/// The numbers of free blocks at which the background evictor starts and stops.
///
/// With an [external pool](crate::Builder::external) the cache does not know how many of the
/// engine's blocks are free: there, the watermarks count the evicted ids that wait for
/// [`take_evicted`](crate::ExternalPool::take_evicted).
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
    /// The evictor starts when fewer blocks than this are free.
    pub low: usize,
    /// The evictor stops when this many blocks are free.
    pub high: usize,
}

impl Watermarks {
    /// Creates watermarks: the evictor starts below `low` free blocks and stops at `high`;
    /// [`build`](crate::Builder::build) refuses a `low` above `high`, and a `high` above the
    /// capacity.
    ///
    /// # Examples
    ///
    /// ```
    /// let watermarks = radixkv::Watermarks::new(32, 64);
    /// assert_eq!((watermarks.low, watermarks.high), (32, 64));
    /// ```
    pub const fn new(low: usize, high: usize) -> Self {
        Self { low, high }
    }

    /// Low at 1/256 of `blocks`, high at 1/128: enough to spare allocating threads most evictions,
    /// at the price of few cached blocks.
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

/// Which thread evicts.
///
/// # Examples
///
/// ```
/// use radixkv::{Eviction, PrefixCache, Watermarks};
///
/// let eviction = Eviction::Background(Watermarks::new(32, 64)); // starts below 32 free blocks, stops at 64
/// let background = PrefixCache::builder(16, 1024).eviction(eviction).build()?;
/// let inline = PrefixCache::builder(16, 1024).build()?; // the default: starts no thread
/// # drop((background, inline));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Eviction {
    /// The thread that needs blocks evicts: no other thread is started, and with one shard every
    /// victim is the policy's exact choice.
    #[default]
    Inline,
    /// The cache's own thread evicts, between these watermarks; a thread that finds too few blocks
    /// also evicts.
    ///
    /// The thread chooses victims by the changes that the evictor has processed; changes that are
    /// still in its queue do not count yet. When it is short of blocks and has nothing left to
    /// evict, it is woken when leases end. It continues after a panic, which the panic hook reports.
    Background(Watermarks),
}

/// The thread, and the bell that wakes it.
#[derive(Debug)]
pub(in crate::cache) struct Background {
    bell: Arc<Bell>,
    /// `None` after the thread was joined.
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread; a forked child does not have it.
    process: u32,
}

impl Background {
    /// Starts the thread. It calls `turn` each time it wakes, until `turn` breaks; it sleeps at
    /// most until the time that `turn` returns.
    pub(in crate::cache) fn start(
        mut turn: impl FnMut() -> ControlFlow<(), Option<Instant>> + Send + 'static,
    ) -> io::Result<Self> {
        let bell = Arc::new(Bell::new());
        let thread = thread::Builder::new().name("radixkv-evictor".into()).spawn({
            let bell = Arc::clone(&bell);
            move || {
                // The first look is made at once; after it the thread knows whether blocks are
                // short.
                let mut sleep = Some(Duration::ZERO);
                while bell.wait(sleep) {
                    let ControlFlow::Continue(until) = turn() else { return };
                    sleep = until.map(|until| until.saturating_duration_since(Instant::now()));
                }
            }
        })?;
        Ok(Self { bell, thread: Some(thread), process: std::process::id() })
    }

    /// Wakes the thread: changes may have piled up, or blocks that it waits for became available.
    pub(in crate::cache) fn changes_pending(&self) {
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
            // The thread is in the parent process: there is nothing to end and nothing to wait for.
            std::mem::forget(self.thread.take());
            return;
        }
        self.bell.end(|| self.unpark());
        if let Some(thread) = self.thread.take() {
            // The thread itself may drop the last reference to the cache. It must not join itself;
            // it ends after this.
            if thread.thread().id() != thread::current().id() {
                // A panic of the thread was reported when it happened.
                let _ = thread.join();
            }
        }
    }
}
