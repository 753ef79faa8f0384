//! Copies whole lines of 64 bytes with vector instructions. Copying word by word takes 1.5 times as
//! long (`examples/throughput.rs`).
//!
//! Large blocks are stored past the caches: another process reads them next, so caching them here
//! would only evict other data.
//!
//! # Invariants
//!
//! - **X1** Every load and store is inside its slice.
//! - **X2** Other threads and processes may write the words meanwhile. To the language, moving a
//!   vector is a relaxed access to each of its words: the compiler does not look into the
//!   instruction, and the processor moves each aligned word in one access.
//! - **X3** Stores past the caches are complete before any later store of the thread: a fence
//!   follows them.
#![allow(unsafe_code)]

use crate::sync::AtomicU64;

/// Bytes of a line.
const LINE: usize = 64;
/// Copies of at least this many bytes are stored past the caches. A smaller block may be read from
/// the caches soon.
const PAST_CACHES: usize = 16 << 10;

/// Copies lines from one address to another, with the given store instruction.
macro_rules! copy_lines {
    ($from:expr, $to:expr, $lines:expr, $store:literal, $last:literal) => {
        std::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            concat!($store, " [{to}], {a}"),
            concat!($store, " [{to} + 16], {b}"),
            concat!($store, " [{to} + 32], {c}"),
            concat!($store, " [{to} + 48], {d}"),
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            $last,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            from = inout(reg) $from => _,
            to = inout(reg) $to => _,
            lines = inout(reg) $lines => _,
            options(nostack),
        )
    };
}

/// Stores the whole lines of `bytes`; returns how many bytes it stored.
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) -> usize {
    let lines = bytes.len().min(size_of_val(words)) / LINE;
    let (from, to) = (bytes.as_ptr(), words.as_ptr());
    if lines == 0 {
        return 0;
    }
    if lines * LINE >= PAST_CACHES && to.addr() % 16 == 0 {
        // SAFETY: X1: the lines are inside both slices, there is at least one, and the vectors are
        // aligned; X2; X3.
        unsafe { copy_lines!(from, to, lines, "movntps", "sfence") };
    } else {
        // SAFETY: X1: the lines are inside both slices, and there is at least one; X2.
        unsafe { copy_lines!(from, to, lines, "movups", "") };
    }
    lines * LINE
}

/// Loads the whole lines of `bytes`; returns how many bytes it loaded.
pub(crate) fn load(words: &[AtomicU64], bytes: &mut [u8]) -> usize {
    let lines = bytes.len().min(size_of_val(words)) / LINE;
    if lines > 0 {
        // SAFETY: X1: the lines are inside both slices, and there is at least one; X2.
        unsafe { copy_lines!(words.as_ptr(), bytes.as_mut_ptr(), lines, "movups", "") };
    }
    lines * LINE
}
