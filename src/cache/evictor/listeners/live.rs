//! The settings that may change while the cache runs, the sink and the subscribers, in one
//! immutable record. It is replaced as a whole under the evictor's lock. The evictor has a handle
//! of the current record; other threads read it without a lock.
//!
//! The record is behind `arc_swap::ArcSwap` (`sync::swap`; a mutex in models). Most turns of the
//! evictor read only a flag beside it (`has_any`), and each reservation only a number, the low
//! watermark.

use std::fmt;
use std::time::Duration;

use super::{SharedOutlet, Subscriber};
use crate::cache::eviction::background::Watermarks;
use crate::cache::evictor::Evictor;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, Swap};

/// The settings, the sink and the subscribers at one time.
#[derive(Clone, Default)]
pub(in crate::cache) struct Live {
    /// The watermarks of the background evictor; `None` without one.
    pub(in crate::cache) watermarks: Option<Watermarks>,
    /// How long a prefix of any namespace may be unused before it is dropped.
    pub(in crate::cache) time_to_idle: Option<Duration>,
    /// The sink that evicted blocks go to; `None` if they are free at once.
    pub(in crate::cache) outlet: Option<SharedOutlet>,
    /// The subscribers to events.
    pub(in crate::cache) subscribers: Vec<Subscriber>,
}

/// The current record, for all threads.
pub(in crate::cache) struct LiveSettings {
    record: Swap<Live>,
    /// The record's low watermark, which each allocation reads; zero without a background evictor.
    low: AtomicUsize,
}

impl Live {
    fn low(&self) -> usize {
        self.watermarks.map_or(0, |watermarks| watermarks.low)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watermarks, time_to_idle, outlet, subscribers } = self;
        f.debug_struct("Live")
            .field("watermarks", watermarks)
            .field("time_to_idle", time_to_idle)
            .field("has_sink", &outlet.is_some())
            .field("subscribers", subscribers)
            .finish()
    }
}

impl fmt::Debug for LiveSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.read(|live| live.fmt(f))
    }
}

impl LiveSettings {
    pub(in crate::cache) fn new(live: &Arc<Live>) -> Self {
        Self { record: Swap::new(Arc::clone(live)), low: AtomicUsize::new(live.low()) }
    }

    /// The watermarks of the background evictor; both are zero without one.
    pub(in crate::cache) fn watermarks(&self) -> Watermarks {
        self.record.read(|live| live.watermarks).unwrap_or(Watermarks::new(0, 0))
    }

    /// The low watermark; zero without a background evictor.
    #[inline]
    pub(in crate::cache) fn low_watermark(&self) -> usize {
        // Relaxed: a setting; no memory depends on it.
        self.low.load(Relaxed)
    }

    pub(in crate::cache) fn time_to_idle(&self) -> Option<Duration> {
        self.record.read(|live| live.time_to_idle)
    }

    /// Replaces the record, and returns the handles of the previous one. If they may be the last
    /// ones, the caller must drop them without the evictor's lock, because an outlet holds user
    /// code.
    pub(in crate::cache) fn replace(&self, live: Live, evictor: &mut Evictor<'_>) -> [Arc<Live>; 2] {
        // Relaxed: as above.
        self.low.store(live.low(), Relaxed);
        evictor.common.listeners.has_any = live.outlet.is_some() || !live.subscribers.is_empty();
        let live = Arc::new(live);
        [self.record.replace(Arc::clone(&live)), std::mem::replace(&mut evictor.common.listeners.live, live)]
    }
}

impl Evictor<'_> {
    /// Whether evicted blocks go to a sink.
    #[inline]
    pub(in crate::cache) fn has_sink(&self) -> bool {
        self.common.listeners.has_any && self.common.listeners.live.outlet.is_some()
    }

    /// Whether anybody subscribes to events.
    #[inline]
    pub(in crate::cache) fn has_subscribers(&self) -> bool {
        self.common.listeners.has_any && !self.common.listeners.live.subscribers.is_empty()
    }
}
