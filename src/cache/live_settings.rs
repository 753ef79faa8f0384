//! Settings that may change while the cache runs. Each is one number, read without a lock.

use std::time::Duration;

use super::background::Watermarks;
use crate::sync::gauge::{AtomicU64, Relaxed};

/// Not set.
const NONE: u64 = u64::MAX;

/// What was built with and may be changed.
#[derive(Debug)]
pub(super) struct LiveSettings {
    /// The low one above the high one.
    watermarks: AtomicU64,
    /// In nanoseconds.
    time_to_idle: AtomicU64,
}

impl LiveSettings {
    pub(super) fn new(watermarks: Option<Watermarks>, time_to_idle: Option<Duration>) -> Self {
        Self {
            watermarks: AtomicU64::new(watermarks.map_or(NONE, packed)),
            time_to_idle: AtomicU64::new(time_to_idle.map_or(NONE, nanoseconds)),
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

    /// After how long without a use a prefix of any namespace is dropped.
    pub(super) fn time_to_idle(&self) -> Option<Duration> {
        Some(self.time_to_idle.load(Relaxed)).filter(|nanoseconds| *nanoseconds != NONE).map(Duration::from_nanos)
    }
}

/// Blocks fit into 32 bits.
fn packed(watermarks: Watermarks) -> u64 {
    (watermarks.low as u64) << 32 | watermarks.high as u64
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NONE).min(NONE - 1)
}
