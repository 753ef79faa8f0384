//! Multiplications in registers alone: what a processor does of them at best.
#![allow(unsafe_code)]

/// Numbers of a vector.
const LANES: usize = 16;
/// Chains side by side: more than a processor computes at once.
const CHAINS: usize = 24;
/// Fused multiply-adds of vectors.
const STEPS: usize = 100_000;

/// Multiply-adds of one [`run`].
pub const MULTIPLICATIONS: f64 = (LANES * CHAINS * STEPS) as f64;

/// Fused multiply-adds of vectors, by AVX-512 or AVX2. Does nothing and returns `false` where there
/// is neither, or the compiler does not know the first.
#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
pub use x86::run;

/// As it is with AVX-512 and AVX2: here there is neither.
#[rustversion::attr(since(1.89), cfg(not(target_arch = "x86_64")))]
pub fn run() -> bool {
    false
}

#[rustversion::since(1.89)]
#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;

    use super::{CHAINS, LANES, STEPS};

    /// Chains of vectors of so many numbers.
    macro_rules! chains {
        ($name:ident by $features:literal, $lanes:literal: $vector:ty, $set:ident, $fused:ident) => {
            #[target_feature(enable = $features)]
            unsafe fn $name() {
                let mut sums: [$vector; CHAINS] = [$set(1.0); CHAINS];
                let (factor, more) = ($set(std::hint::black_box(0.5)), $set(1.0));
                for _ in 0..STEPS * LANES / $lanes {
                    sums.iter_mut().for_each(|sum| *sum = $fused(*sum, factor, more));
                }
                std::hint::black_box(sums);
            }
        };
    }

    chains!(wide by "avx512f", 16: __m512, _mm512_set1_ps, _mm512_fmadd_ps);
    chains!(narrow by "avx2,fma", 8: __m256, _mm256_set1_ps, _mm256_fmadd_ps);

    pub fn run() -> bool {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions.
            unsafe { wide() };
            return true;
        }
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        if has {
            // SAFETY: the processor has the instructions.
            unsafe { narrow() };
        }
        has
    }
}
