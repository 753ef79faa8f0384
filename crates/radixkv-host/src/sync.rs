//! The lock of a tier, replaced by loom's in models.

#[cfg(radixkv_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(radixkv_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
