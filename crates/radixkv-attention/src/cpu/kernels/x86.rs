//! The kernels as they are compiled for x86-64 with AVX2, and with AVX-512.
//!
//! With compilers before Rust 1.89, which do not know AVX-512, its level does not exist, and lanes are added one by one.
//!
//! # Invariants
//!
//! - **X1** `Avx2` and `Avx512` exist only where the processor has the instructions: `detect` makes them.
#![allow(unsafe_code)]

#[rustversion::since(1.89)]
use std::sync::atomic::AtomicU64;

use super::body::PartWork;
use super::hints::Hints;
#[rustversion::since(1.89)]
use super::lanes::{LANES, Lanes};
#[rustversion::since(1.89)]
use super::memory;
use super::panel::PanelWork;
use super::rows::{Ops, StoredRows};
#[rustversion::since(1.89)]
use super::vectors;
#[rustversion::since(1.89)]
use crate::layout::Dtype;

/// The processor has AVX2, fused multiply-add, and conversions of `f16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx2(());

/// The processor has the parts of AVX-512 that its first servers had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let has = !cfg!(miri)
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
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
    fn read(self, dtype: Dtype, from: &[AtomicU64], scale: f32, to: &mut [f32]) -> usize {
        match dtype {
            // SAFETY: X1.
            Dtype::F32 => unsafe { memory::f32_avx2(from, scale, to) },
            // SAFETY: X1.
            Dtype::F16 => unsafe { memory::f16_avx2(from, scale, to) },
            // SAFETY: X1.
            Dtype::Bf16 => unsafe { memory::bf16_avx2(from, scale, to) },
            // SAFETY: X1.
            Dtype::I8 => unsafe { memory::i8_avx2(from, scale, to) },
        }
    }

    #[inline(always)]
    fn add_lanes(self, sums: &[Lanes; LANES]) -> [f32; LANES] {
        // SAFETY: X1.
        unsafe { vectors::add_lanes_avx2(sums) }
    }
}

#[rustversion::before(1.89)]
impl Ops for Avx2 {}

#[rustversion::since(1.89)]
impl Ops for Avx512 {
    #[inline(always)]
    fn read(self, dtype: Dtype, from: &[AtomicU64], scale: f32, to: &mut [f32]) -> usize {
        match dtype {
            // SAFETY: X1.
            Dtype::F32 => unsafe { memory::f32_avx512(from, scale, to) },
            // SAFETY: X1.
            Dtype::F16 => unsafe { memory::f16_avx512(from, scale, to) },
            // SAFETY: X1.
            Dtype::Bf16 => unsafe { memory::bf16_avx512(from, scale, to) },
            // SAFETY: X1.
            Dtype::I8 => unsafe { memory::i8_avx512(from, scale, to) },
        }
    }

    #[inline(always)]
    fn add_lanes(self, sums: &[Lanes; LANES]) -> [f32; LANES] {
        // SAFETY: X1.
        unsafe { vectors::add_lanes_avx512(sums) }
    }
}

#[rustversion::before(1.89)]
impl Ops for Avx512 {}

/// The kernels of one level: the bodies, compiled for its instructions, with vectors for so many columns at once.
macro_rules! level {
    ($level:ident, $module:ident, $features:literal, $vectors:literal) => {
        mod $module {
            use super::*;

            /// Called only where the processor has the instructions (X1).
            #[target_feature(enable = $features)]
            pub(super) unsafe fn add_keys(ops: $level, work: PartWork<'_>) {
                work.add_keys::<$vectors, $level>(ops);
            }

            /// As `add_keys`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn add_values(work: PartWork<'_>, last: bool) {
                work.add_values::<$vectors>(last);
            }

            /// As `add_keys`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn multiply(work: PanelWork<'_>) {
                work.multiply::<$vectors>();
            }

            /// As `add_keys`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn read(ops: $level, rows: StoredRows<'_>, to: &mut [f32], hints: &mut Hints) {
                rows.read(ops, to, hints);
            }
        }

        impl $level {
            pub(super) fn add_keys(self, work: PartWork<'_>) {
                // SAFETY: X1.
                unsafe { $module::add_keys(self, work) }
            }

            pub(super) fn add_values(self, work: PartWork<'_>, last: bool) {
                // SAFETY: X1.
                unsafe { $module::add_values(work, last) }
            }

            pub(super) fn multiply(self, work: PanelWork<'_>) {
                // SAFETY: X1.
                unsafe { $module::multiply(work) }
            }

            pub(super) fn read(self, rows: StoredRows<'_>, to: &mut [f32], hints: &mut Hints) {
                // SAFETY: X1.
                unsafe { $module::read(self, rows, to, hints) }
            }
        }
    };
}

level!(Avx2, avx2, "avx2,fma,f16c", 1);
#[rustversion::since(1.89)]
level!(Avx512, avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl", 4);
#[rustversion::before(1.89)]
level!(Avx512, avx512, "avx2,fma,f16c", 1);
