//! Dekker's handshake between two threads. One raises a count, then reads a flag; the other clears
//! the flag, then reads the count. At least one of them sees the other's change.
//!
//! It needs sequential consistency. Under loom, fences give it. In other builds the accesses
//! themselves are sequentially consistent; on x86 that costs only the locked read-modify-write on
//! each side.

use super::atomic::AtomicU64;

/// Adds one to `count`, then reads `flags`.
///
/// SeqCst, here and below: Dekker, the edge of hot.rs. Under loom each access is Relaxed and the
/// fence between them gives the order.
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

/// Clears `flag` in `flags`. A later [`look`] sees the count of every thread that still saw the
/// flag.
pub(crate) fn clear(flags: &AtomicU64, flag: u64) {
    #[cfg(radixkv_loom)]
    {
        flags.fetch_and(!flag, super::atomic::Ordering::Relaxed);
        loom::sync::atomic::fence(super::atomic::Ordering::SeqCst);
    }
    #[cfg(not(radixkv_loom))]
    flags.fetch_and(!flag, super::atomic::Ordering::SeqCst);
}

/// Reads a count after [`clear`]. What threads did before they subtracted their counts happens
/// before this. It is a read-modify-write, so what happens before this also happens before any
/// later change of the count.
pub(crate) fn look(count: &AtomicU64) -> u64 {
    // Acquire: E13. Release: E17.
    #[cfg(radixkv_loom)]
    return count.fetch_add(0, super::atomic::Ordering::AcqRel);
    #[cfg(not(radixkv_loom))]
    count.fetch_add(0, super::atomic::Ordering::SeqCst)
}
