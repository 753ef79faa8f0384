//! Dekker's handshake: one side counts itself, then looks at a flag; the other clears the flag, then looks at the
//! count. At least one of them sees the other.
//!
//! It needs sequential consistency. Models use fences, which loom knows; elsewhere the accesses themselves are
//! sequentially consistent, and on x86 the locked read-modify-write of each side is all that it costs.

use super::atomic::AtomicU64;

/// Adds one to `count`, then looks at `flags`.
///
/// SeqCst, here and below: Dekker, the edge of hot.rs. Under loom each access is Relaxed and the fence between them gives
/// the order.
#[inline]
pub(crate) fn count_then_look(count: &AtomicU64, flags: &AtomicU64) -> u64 {
    #[cfg(radixkv_loom)]
    {
        use super::atomic::Ordering::{Acquire, Relaxed};
        count.fetch_add(1, Relaxed);
        loom::sync::atomic::fence(super::atomic::Ordering::SeqCst);
        // Acquire: E5, E12; no model fails without it, because in models the fence orders as much.
        flags.load(Acquire)
    }
    #[cfg(not(radixkv_loom))]
    {
        use super::atomic::Ordering::SeqCst;
        count.fetch_add(1, SeqCst);
        flags.load(SeqCst)
    }
}

/// Clears `flag` in `flags`. A [`look`] after it sees every count whose thread still saw the flag.
pub(crate) fn clear(flags: &AtomicU64, flag: u64) {
    #[cfg(radixkv_loom)]
    {
        flags.fetch_and(!flag, super::atomic::Ordering::Relaxed);
        loom::sync::atomic::fence(super::atomic::Ordering::SeqCst);
    }
    #[cfg(not(radixkv_loom))]
    flags.fetch_and(!flag, super::atomic::Ordering::SeqCst);
}

/// Looks at a count after [`clear`]. What was done before a count was taken back comes before this. A read-modify-write:
/// a later change of the count sees what came before this.
pub(crate) fn look(count: &AtomicU64) -> u64 {
    // Acquire: E13. Release: E17.
    #[cfg(radixkv_loom)]
    return count.fetch_add(0, super::atomic::Ordering::AcqRel);
    #[cfg(not(radixkv_loom))]
    count.fetch_add(0, super::atomic::Ordering::SeqCst)
}
