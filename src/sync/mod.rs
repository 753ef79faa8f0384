//! Threads, locks and atomics of `std`, loom or shuttle, depending on the build. No other module
//! names `std::sync`, `loom` or `shuttle`.
//!
//! | cfg | what this module provides |
//! |---|---|
//! | none | `std` atomics and locks |
//! | `radixkv_loom` | loom: every interleaving, and every value a weak memory may return; an `Arc` whose count loom can explore |
//! | `radixkv_shuttle` | shuttle: long random schedules, sequentially consistent |
//! | `radixkv_chaos` | `std` atomics that yield or spin before some accesses |
//! | `radixkv_failpoints` | `std`, and named points where a test stops a thread or makes it panic |
//! | `radixkv_tsan` | an `Arc` without the standalone fence that ThreadSanitizer does not see |
//!
//! Two more settings do not affect this module. `radixkv_tiny` shrinks the counts that can overflow
//! or wrap (leases, child runs, run versions), so that tests/limits.rs reaches their limits. With
//! `radixkv_heap` nodes come from the global allocator (`reclaim::memory`), which sanitizers watch.
//!
//! Only `dekker` and the model reclaimer use `SeqCst`; under loom only in fences, because loom
//! treats sequentially consistent accesses as `AcqRel`.

#[cfg(any(radixkv_loom, radixkv_tsan))]
mod arc;
mod atomics;
mod bell;
mod cell;
pub(crate) mod dekker;
mod holds;
mod lock;
mod mapped;
mod prefetch;
mod signal;
mod swap;

#[cfg(all(radixkv_chaos, not(any(radixkv_loom, radixkv_shuttle))))]
mod chaos;
#[cfg(radixkv_loom)]
mod model;

pub(crate) use atomics::{apart, atomic, gauge};
pub(crate) use bell::Bell;
pub(crate) use cell::{HandedOver, Owner, OwnerCell};
#[cfg(feature = "holds")]
pub use holds::measure_holds;
pub(crate) use lock::{Mutex, MutexGuard, unlock_fairly};
pub(crate) use mapped::{Mapped, UnmapsLater};
pub(crate) use prefetch::{prefetch, prefetch_bytes, prefetch_bytes_to_write, prefetch_to_write};
pub(crate) use signal::{Signal, contained};
pub(crate) use swap::Swap;

#[cfg(any(radixkv_loom, radixkv_tsan))]
pub(crate) use arc::{Arc, Weak};
pub(crate) use std::sync::OnceLock;
#[cfg(not(any(radixkv_loom, radixkv_tsan)))]
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread;

/// Unbounded channels. Models do not explore them: there, everything is sent before the threads
/// begin.
pub(crate) mod channel {
    pub(crate) use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
}

/// Whether this is the only handle. Uses of dropped handles happen before.
pub(crate) fn is_only<T>(handle: &mut Arc<T>) -> bool {
    Arc::get_mut(handle).is_some()
}

/// A point between two steps of a protocol at which tests/faults.rs stops a thread or makes it
/// panic. Expands to nothing without `radixkv_failpoints`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(all(radixkv_failpoints, not(any(radixkv_loom, radixkv_shuttle))))]
        fail::fail_point!($name);
    };
}
pub(crate) use failpoint;

#[cfg(radixkv_loom)]
pub(crate) use loom::cell::UnsafeCell as TrackedCell;
#[cfg(radixkv_loom)]
pub use model::{Loads, at_rest, explore_loads, exploring_apart};

/// Tells the processor that a loop is waiting; does nothing in models.
#[inline]
pub(crate) fn spin_loop() {
    if !cfg!(any(radixkv_loom, radixkv_shuttle)) {
        std::hint::spin_loop();
    }
}

/// Lets other threads run; one of them is about to end the caller's wait.
pub(crate) fn yield_now() {
    #[cfg(radixkv_loom)]
    loom::thread::yield_now();
    #[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
    shuttle::thread::yield_now();
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    std::thread::yield_now();
}

/// Picks the production size, or the smallest size that still has every edge case under a model
/// checker or Miri.
pub(crate) const fn model_size(production: usize, model: usize) -> usize {
    if cfg!(any(radixkv_loom, radixkv_shuttle, miri)) { model } else { production }
}
