//! Lines of 64 bytes, copied by vectors: word by word a copy takes half as long again (`examples/throughput.rs`).
//!
//! Large blocks are written past the caches: they are read next by another process, and what would be evicted for them
//! is not.
//!
//! # Invariants
//!
//! - **X1** Every load and store lies inside its slice.
//! - **X2** Other threads and processes may write the words meanwhile. To the language a vector that is moved is a
//!   relaxed access to each of its words: the compiler does not look into the instruction, and the processor moves a
//!   word that lies at a multiple of its size at once.
//! - **X3** Stores past the caches are done before any later store of the thread: a fence ends them.
#![allow(unsafe_code)]

use crate::sync::AtomicU64;

/// Bytes of a line.
const LINE: usize = 64;
/// Bytes from which on stores go past the caches. A smaller block may be read again out of them.
const PAST_CACHES: usize = 16 << 10;

/// Copies lines, from an address to another, by one kind of store.
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

/// Stores the lines that are whole; returns how many bytes.
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) -> usize {
    let lines = bytes.len().min(size_of_val(words)) / LINE;
    let (from, to) = (bytes.as_ptr(), words.as_ptr());
    if lines == 0 {
        return 0;
    }
    if lines * LINE >= PAST_CACHES && to.addr() % 16 == 0 {
        // SAFETY: X1: the lines lie in both slices, there is one, and the vectors are at multiples of their size; X2;
        // X3.
        unsafe { copy_lines!(from, to, lines, "movntps", "sfence") };
    } else {
        // SAFETY: X1: the lines lie in both slices, and there is one; X2.
        unsafe { copy_lines!(from, to, lines, "movups", "") };
    }
    lines * LINE
}

/// Loads the lines that are whole; returns how many bytes.
pub(crate) fn load(words: &[AtomicU64], bytes: &mut [u8]) -> usize {
    let lines = bytes.len().min(size_of_val(words)) / LINE;
    if lines > 0 {
        // SAFETY: X1: the lines lie in both slices, and there is one; X2.
        unsafe { copy_lines!(words.as_ptr(), bytes.as_mut_ptr(), lines, "movups", "") };
    }
    lines * LINE
}
