//! Three kinds of atomics: explored in every model, only in its own model, or in none.

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

/// Handle counts, and states of pool slots. Each is explored in its own model only.
pub(crate) mod apart {
    #[cfg(radixkv_loom)]
    pub(crate) use crate::sync::model::Apart as AtomicUsize;
    #[cfg(not(radixkv_loom))]
    pub(crate) use std::sync::atomic::AtomicUsize;
}

/// Gauges and totals. Nothing depends on them, so no model explores them.
pub(crate) mod gauge {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Relaxed},
    };
}
