//! The kernels as they are compiled for x86-64 with AVX2, and with AVX-512.
//!
//! With compilers before Rust 1.89, which do not know AVX-512, its level does not exist, and keys are turned into columns
//! one by one.
//!
//! # Invariants
//!
//! - **X1** `Avx2` and `Avx512` exist only where the processor has the instructions: `detect` makes them.
#![allow(unsafe_code)]

use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::body::{Ops, RangeWork, StoredRows};
use super::panel::PanelWork;
#[rustversion::since(1.89)]
use super::transpose;

/// The processor has AVX2, fused multiply-add, and conversions of `f16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx2(());

/// The processor has the parts of AVX-512 that its first servers had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let has =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }
}

impl Avx512 {
    #[rustversion::since(1.89)]
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        (has && Avx2::detect().is_some()).then_some(Self(()))
    }

    #[rustversion::before(1.89)]
    pub(super) fn detect() -> Option<Self> {
        None
    }
}

#[rustversion::since(1.89)]
impl Ops for Avx2 {
    #[inline(always)]
    fn transpose(self, from: &[f32], to: &mut [f32]) {
        // SAFETY: X1.
        let done = unsafe { transpose::transpose_avx2(from, to) };
        rest_of_rows(from, to, done);
    }

    #[inline(always)]
    fn widen_f16(self, from: &[u16], to: &mut [f32]) {
        // SAFETY: X1.
        let done = unsafe { transpose::widen_f16_avx2(from, to) };
        super::body::Plain.widen_f16(&from[done..], &mut to[done..]);
    }
}

#[rustversion::before(1.89)]
impl Ops for Avx2 {}

#[rustversion::since(1.89)]
impl Ops for Avx512 {
    #[inline(always)]
    fn transpose(self, from: &[f32], to: &mut [f32]) {
        // SAFETY: X1.
        let done = unsafe { transpose::transpose_avx512(from, to) };
        rest_of_rows(from, to, done);
    }

    #[inline(always)]
    fn widen_f16(self, from: &[u16], to: &mut [f32]) {
        // SAFETY: X1.
        let done = unsafe { transpose::widen_f16_avx512(from, to) };
        super::body::Plain.widen_f16(&from[done..], &mut to[done..]);
    }
}

#[rustversion::before(1.89)]
impl Ops for Avx512 {}

/// Writes the elements from `first` on of all rows to columns.
#[rustversion::since(1.89)]
#[inline(always)]
fn rest_of_rows(from: &[f32], to: &mut [f32], first: usize) {
    let elements = from.len() / super::lanes::LANES;
    for (token, row) in from.chunks_exact(elements).enumerate() {
        for i in first..elements {
            to[i * super::super::RANGE_TOKENS + token] = row[i];
        }
    }
}

/// The kernels of one level: the bodies, compiled for its instructions, with vectors for so many columns at once.
macro_rules! level {
    ($level:ident, $module:ident, $features:literal, $vectors:literal) => {
        mod $module {
            use super::*;

            /// Called only where the processor has the instructions (X1).
            #[target_feature(enable = $features)]
            pub(super) unsafe fn attend(work: RangeWork<'_>) {
                work.attend::<$vectors>();
            }

            /// As `attend`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn multiply(work: PanelWork<'_>) {
                work.multiply::<$vectors>();
            }

            /// As `attend`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn widen_keys(ops: $level, stored: StoredRows<'_>, rows: &mut [f32], to: &mut [f32]) {
                stored.widen_keys(ops, rows, to);
            }

            /// As `attend`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn widen_values(ops: $level, stored: StoredRows<'_>, to: &mut [f32], stride: usize) {
                stored.widen_values(ops, to, stride);
            }
        }

        impl $level {
            pub(super) fn attend(self, work: RangeWork<'_>) {
                // SAFETY: X1.
                unsafe { $module::attend(work) }
            }

            pub(super) fn multiply(self, work: PanelWork<'_>) {
                // SAFETY: X1.
                unsafe { $module::multiply(work) }
            }

            pub(super) fn widen_keys(self, stored: StoredRows<'_>, rows: &mut [f32], to: &mut [f32]) {
                // SAFETY: X1.
                unsafe { $module::widen_keys(self, stored, rows, to) }
            }

            pub(super) fn widen_values(self, stored: StoredRows<'_>, to: &mut [f32], stride: usize) {
                // SAFETY: X1.
                unsafe { $module::widen_values(self, stored, to, stride) }
            }
        }
    };
}

level!(Avx2, avx2, "avx2,fma,f16c", 1);
#[rustversion::since(1.89)]
level!(Avx512, avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl", 4);
#[rustversion::before(1.89)]
level!(Avx512, avx512, "avx2,fma,f16c", 1);

/// Asks for the cache lines of `bytes` from `first` on.
#[inline(always)]
pub(super) fn prefetch(first: *const u8, bytes: usize) {
    const LINE: usize = 64;
    for line in 0..bytes.div_ceil(LINE) {
        // SAFETY: the instruction takes any address, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(first.cast::<i8>().wrapping_add(LINE * line)) };
    }
}
