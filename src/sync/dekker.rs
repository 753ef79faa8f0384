//! Dekker's handshake: one side counts itself, then looks at a flag; the other clears the flag, then looks at the
//! count. At least one of them sees the other.
//!
//! It needs sequential consistency. Models use fences, which loom knows; elsewhere the accesses themselves are
//! sequentially consistent, and on x86 the locked read-modify-write of each side is all that it costs.

use super::atomic::AtomicU64;

/// Adds one to `count`, then looks at `flags`.
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

/// Clears `flag` in `flags`; what [`look`] then sees is what it must see.
pub(crate) fn clear(flags: &AtomicU64, flag: u64) {
    #[cfg(radixkv_loom)]
    {
        flags.fetch_and(!flag, super::atomic::Ordering::Relaxed);
        loom::sync::atomic::fence(super::atomic::Ordering::SeqCst);
    }
    #[cfg(not(radixkv_loom))]
    flags.fetch_and(!flag, super::atomic::Ordering::SeqCst);
}

/// Looks at a count after [`clear`]; what those did who are not counted any more comes before. A read-modify-write: who
/// changes the count later sees what came before this.
pub(crate) fn look(count: &AtomicU64) -> u64 {
    #[cfg(radixkv_loom)]
    return count.fetch_add(0, super::atomic::Ordering::AcqRel);
    #[cfg(not(radixkv_loom))]
    count.fetch_add(0, super::atomic::Ordering::SeqCst)
}
