//! Prefetching memory ahead of its use.
//!
//! This is in `sync` because both the policy's tables and the evictor's look-ahead use it, and
//! because it depends on the processor and the build.
#![allow(unsafe_code)]

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// Prefetches the cache lines of the value at `at`, which may be any address. A hint: reads and
/// changes nothing, and does nothing if the processor has no such instruction.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    prefetch_bytes(at.cast(), size_of::<T>());
}

/// As [`prefetch`], for this many bytes.
#[inline]
pub(crate) fn prefetch_bytes(at: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    each_line(bytes, |offset| {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction takes any address, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(offset)) };
    });
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, bytes);
}

/// As [`prefetch`], for memory that this thread is about to write: other processors already lose
/// the lines now, not only at the first write.
#[inline]
pub(crate) fn prefetch_to_write<T>(at: *const T) {
    prefetch_bytes_to_write(at.cast(), size_of::<T>());
}

/// As [`prefetch_to_write`], for this many bytes.
#[inline]
pub(crate) fn prefetch_bytes_to_write(at: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    each_line(bytes, |offset| {
        let address = at.wrapping_add(offset);
        // SAFETY: the instruction takes any address; a processor that lacks it does nothing.
        unsafe { std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) };
    });
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, bytes);
}

/// Calls `ask` with the offset of a byte in each cache line that `bytes` bytes may touch, at any
/// alignment.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn each_line(bytes: usize, ask: impl Fn(usize)) {
    let mut offset = 0;
    // Four at a time, because the loop costs more than the prefetches.
    while offset + 4 * LINE <= bytes {
        [0, LINE, 2 * LINE, 3 * LINE].into_iter().for_each(|line| ask(offset + line));
        offset += 4 * LINE;
    }
    while offset < bytes {
        ask(offset);
        offset += LINE;
    }
    if bytes > 1 {
        ask(bytes - 1);
    }
}
