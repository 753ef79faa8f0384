//! The lock of a tier, which models explore.

#[cfg(radixkv_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(radixkv_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
