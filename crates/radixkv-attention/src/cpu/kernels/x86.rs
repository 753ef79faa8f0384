//! The kernels, compiled for x86-64 with AVX2 and with AVX-512.
//!
//! Compilers before Rust 1.89 do not support AVX-512. With these its level does not exist, and
//! lanes are added one by one.
//!
//! # Invariants
//!
//! - **X1** `Avx2` and `Avx512` exist only if the processor has the instructions: only `detect`
//!   makes them.
#![allow(unsafe_code)]

#[rustversion::since(1.89)]
use std::sync::atomic::AtomicU64;

use super::body::{MergeWork, PartWork};
use super::columns;
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

/// Proof that the processor has AVX2, fused multiply-add, and conversions of `f16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx2(());

/// Proof that the processor has the parts of AVX-512 that its first servers had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        // Miri has no such instructions, and ThreadSanitizer does not see their loads.
        let has = !cfg!(any(miri, radixkv_tsan))
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

/// Operations of a level by instructions that the compiler does not choose on its own.
#[rustversion::since(1.89)]
macro_rules! ops {
    ($level:ident, $module:ident) => {
        impl Ops for $level {
            #[inline(always)]
            fn read(self, dtype: Dtype, from: &[AtomicU64], scale: f32, to: &mut [f32]) -> usize {
                match dtype {
                    // SAFETY: X1.
                    Dtype::F32 => unsafe { memory::$module::f32(from, scale, to) },
                    // SAFETY: X1.
                    Dtype::F16 => unsafe { memory::$module::f16(from, scale, to) },
                    // SAFETY: X1.
                    Dtype::Bf16 => unsafe { memory::$module::bf16(from, scale, to) },
                    // SAFETY: X1.
                    Dtype::I8 | Dtype::I8Static => unsafe { memory::$module::i8(from, scale, to) },
                    // No instruction widens these, so they are read word by word.
                    Dtype::E4m3 | Dtype::E4m3Static => 0,
                }
            }

            #[inline(always)]
            fn add_products(self, sum: Lanes, a: Lanes, b: Lanes) -> Lanes {
                // SAFETY: X1.
                unsafe { vectors::$module::add_products(sum, a, b) }
            }

            #[inline(always)]
            fn add_lanes(self, sums: &[Lanes; LANES]) -> [f32; LANES] {
                // SAFETY: X1.
                unsafe { vectors::$module::add_lanes(sums) }
            }

            #[inline(always)]
            fn max_lanes(self, numbers: &[Lanes; LANES]) -> [f32; LANES] {
                // SAFETY: X1.
                unsafe { vectors::$module::max_lanes(numbers) }
            }

            #[inline(always)]
            fn turn(self, rows: &[Lanes; LANES]) -> [Lanes; LANES] {
                // SAFETY: X1.
                unsafe { vectors::$module::turn(rows) }
            }
        }
    };
}

#[rustversion::since(1.89)]
ops!(Avx2, avx2);
#[rustversion::since(1.89)]
ops!(Avx512, avx512);

#[rustversion::before(1.89)]
impl Ops for Avx2 {}
#[rustversion::before(1.89)]
impl Ops for Avx512 {}

/// The kernels of one level: the bodies, compiled for its instructions, with `$vectors` vectors of
/// columns at once.
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
            pub(super) unsafe fn add_columns(work: PartWork<'_>) {
                work.add_columns::<$vectors>();
            }

            /// As `add_keys`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn turn(ops: $level, keys: &[f32], shape: [usize; 2], columns: &mut [f32]) {
                columns::turn(ops, keys, shape, columns);
            }

            /// As `add_keys`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn add_values(ops: $level, work: PartWork<'_>, last: bool) {
                work.add_values::<$vectors, $level>(ops, last);
            }

            /// As `add_keys`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn merge(work: MergeWork<'_>) {
                work.merge();
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

            pub(super) fn add_columns(self, work: PartWork<'_>) {
                // SAFETY: X1.
                unsafe { $module::add_columns(work) }
            }

            pub(super) fn turn(self, keys: &[f32], shape: [usize; 2], columns: &mut [f32]) {
                // SAFETY: X1.
                unsafe { $module::turn(self, keys, shape, columns) }
            }

            pub(super) fn add_values(self, work: PartWork<'_>, last: bool) {
                // SAFETY: X1.
                unsafe { $module::add_values(self, work, last) }
            }

            pub(super) fn merge(self, work: MergeWork<'_>) {
                // SAFETY: X1.
                unsafe { $module::merge(work) }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use fastrand::Rng;

    use super::super::lanes::{LANES, Lanes};
    use super::super::rows::{Ops, Plain};
    use super::{Avx2, Avx512};
    use crate::layout::Dtype;

    fn check(ops: impl Ops) {
        let dice = &mut Rng::with_seed(1);
        for round in 0..200 {
            let mut number = || match round % 2 {
                0 => dice.f32() - 0.5,
                _ => dice.choice([0.0, -0.0, f32::NEG_INFINITY, 1e-45, 1.0]).expect("one of them"),
            };
            let vectors: [Lanes; LANES] = std::array::from_fn(|_| Lanes(std::array::from_fn(|_| number())));
            let bits = |numbers: [f32; LANES]| numbers.map(f32::to_bits);
            assert_eq!(bits(ops.add_lanes(&vectors)), bits(Plain.add_lanes(&vectors)), "{vectors:?}");
            assert_eq!(bits(ops.max_lanes(&vectors)), bits(Plain.max_lanes(&vectors)), "{vectors:?}");
            let words: [AtomicU64; LANES] = std::array::from_fn(|i| AtomicU64::new(dice.u64(..) ^ i as u64));
            for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8] {
                let loaded = [ops.load(dtype, &words[1..], 0.3), Plain.load(dtype, &words[1..], 0.3)];
                let [ours, plain] =
                    loaded.map(|lanes| lanes.0.map(|it| if it.is_nan() { None } else { Some(it.to_bits()) }));
                assert_eq!(ours, plain, "{dtype}");
            }
            let turned = [ops.turn(&vectors), Plain.turn(&vectors)].map(|columns| columns.map(|lanes| bits(lanes.0)));
            assert_eq!(turned[0], turned[1], "{vectors:?}");
        }
    }

    #[test]
    fn instructions_compute_what_the_plain_code_does() {
        Avx2::detect().into_iter().for_each(check);
        Avx512::detect().into_iter().for_each(check);
    }
}
