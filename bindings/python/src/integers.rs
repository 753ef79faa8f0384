//! Loops over all tokens of a call, compiled for the widest vectors that the processor has, found
//! at compile time or at run time.

#![allow(unsafe_code)]

/// Defines a function whose body is compiled twice on `x86_64`: for the target's baseline, and for
/// AVX2.
macro_rules! for_wide_vectors {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name($($argument: $kind),*) -> $result {
            #[inline(always)]
            fn body($($argument: $kind),*) -> $result $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($argument: $kind),*) -> $result {
                    body($($argument),*)
                }

                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2.
                    return unsafe { with_avx2($($argument),*) };
                }
            }
            body($($argument),*)
        }
    };
}

for_wide_vectors! {
    /// Whether an integer is negative.
    fn has_negative(integers: &[i32]) -> bool {
        integers.iter().fold(0, |bits, integer| bits | integer) < 0
    }
}

for_wide_vectors! {
    /// Writes the lower halves of the integers to `lower`, which has the same length. Returns
    /// whether any upper half is not zero.
    fn narrow(integers: &[i64], lower: &mut [u32]) -> bool {
        let bits = integers.iter().zip(lower).fold(0, |bits, (integer, lower)| {
            *lower = *integer as u32;
            bits | *integer as u64
        });
        bits >> 32 != 0
    }
}
