//! The atomics of the shared memory: no other module takes them from `std::sync` or `loom`.

#[cfg(all(test, not(radixkv_loom)))]
pub(crate) use killed::AtomicU64;
#[cfg(radixkv_loom)]
pub(crate) use loom::sync::atomic::fence;
#[cfg(radixkv_loom)]
pub(crate) use model::AtomicU64;
#[cfg(not(any(test, radixkv_loom)))]
pub(crate) use std::sync::atomic::AtomicU64;
#[cfg(not(radixkv_loom))]
pub(crate) use std::sync::atomic::fence;

#[cfg(all(test, not(radixkv_loom)))]
pub(crate) mod killed;
#[cfg(radixkv_loom)]
pub(crate) mod model;

/// A mutex that is only tried, never waited for.
pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Counters and bounds outside the protocol: models do not explore them.
pub(crate) mod gauge {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
}

/// Picks the production size, or the smallest size that still has every edge case in a model.
pub(crate) const fn model_size(production: usize, model: usize) -> usize {
    if cfg!(radixkv_loom) { model } else { production }
}
