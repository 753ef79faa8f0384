//! Settings that may change while the cache runs. Each is one number, read without a lock.

use std::time::Duration;

use super::background::Watermarks;
use crate::sync::gauge::{AtomicU64, Relaxed};

/// Not set.
const NONE: u64 = u64::MAX;

/// What was built with and may be changed.
#[derive(Debug)]
pub(super) struct Settings {
    /// The low one above the high one.
    watermarks: AtomicU64,
    /// In nanoseconds, as the next.
    time_to_idle: AtomicU64,
    /// Of the namespaces with a time of their own none has a shorter one.
    time_of_namespaces: AtomicU64,
}

impl Settings {
    pub(super) fn new(watermarks: Option<Watermarks>, time_to_idle: Option<Duration>) -> Self {
        Self {
            watermarks: AtomicU64::new(watermarks.map_or(NONE, packed)),
            time_to_idle: AtomicU64::new(time_to_idle.map_or(NONE, nanoseconds)),
            time_of_namespaces: AtomicU64::new(NONE),
        }
    }

    /// The watermarks of the background evictor; both are zero without one.
    #[inline]
    pub(super) fn watermarks(&self) -> Watermarks {
        // Relaxed, as everywhere here: a setting; no memory depends on it.
        let packed = self.watermarks.load(Relaxed);
        if packed == NONE {
            Watermarks::new(0, 0)
        } else {
            Watermarks::new((packed >> 32) as usize, packed as u32 as usize)
        }
    }

    pub(super) fn set_watermarks(&self, watermarks: Watermarks) {
        self.watermarks.store(packed(watermarks), Relaxed);
    }

    pub(super) fn set_time_to_idle(&self, duration: Option<Duration>) {
        self.time_to_idle.store(duration.map_or(NONE, nanoseconds), Relaxed);
    }

    /// Notes the time of a namespace, or that none has a time of its own.
    pub(super) fn note_time_of_namespace(&self, duration: Option<Duration>) {
        match duration {
            Some(duration) => _ = self.time_of_namespaces.fetch_min(nanoseconds(duration), Relaxed),
            None => self.time_of_namespaces.store(NONE, Relaxed),
        }
    }

    /// After how long without a use a prefix of any namespace is dropped.
    pub(super) fn time_to_idle(&self) -> Option<Duration> {
        duration(self.time_to_idle.load(Relaxed))
    }

    /// No prefix is dropped earlier than so long after its last use.
    pub(super) fn shortest_time_to_idle(&self) -> Option<Duration> {
        duration(self.time_to_idle.load(Relaxed).min(self.time_of_namespaces.load(Relaxed)))
    }
}

fn duration(nanoseconds: u64) -> Option<Duration> {
    Some(nanoseconds).filter(|nanoseconds| *nanoseconds != NONE).map(Duration::from_nanos)
}

/// Blocks fit into 32 bits.
fn packed(watermarks: Watermarks) -> u64 {
    (watermarks.low as u64) << 32 | watermarks.high as u64
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NONE).min(NONE - 1)
}
