//! Atomics in three kinds, by what models must explore of them.

/// The atomics of the current build.
pub(crate) mod atomic {
    #[cfg(all(radixkv_chaos, not(any(radixkv_loom, radixkv_shuttle))))]
    pub(crate) use crate::sync::chaos::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    #[cfg(radixkv_loom)]
    pub(crate) use crate::sync::model::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    #[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
    pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    #[cfg(not(any(radixkv_chaos, radixkv_loom, radixkv_shuttle)))]
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

    #[cfg(radixkv_loom)]
    pub(crate) use loom::sync::atomic::fence;
    #[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
    pub(crate) use shuttle::sync::atomic::fence;

    pub(crate) use std::sync::atomic::Ordering;
}

/// Counts of handles, and states of slots in pools. Each has its own model; other models need not
/// explore it.
pub(crate) mod apart {
    #[cfg(radixkv_loom)]
    pub(crate) use crate::sync::model::Apart as AtomicUsize;
    #[cfg(not(radixkv_loom))]
    pub(crate) use std::sync::atomic::AtomicUsize;
}

/// Gauges and totals, which decide nothing: no model has to explore them.
pub(crate) mod gauge {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Relaxed},
    };
}
