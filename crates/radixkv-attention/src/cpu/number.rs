//! The element types of rows: queries, new keys and values, and outputs.

use half::{bf16, f16};

use crate::element::{from_bf16, from_f16, to_bf16, to_f16};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// The element type of the rows that an operation of the CPU reads or writes: `f32`, or `f16` and
/// `bf16` of the crate `half`.
///
/// Everything is computed in `f32`. 16-bit numbers are first widened, which is exact. An output is
/// rounded to nearest, ties to even, after the last step: its bits are those of the rounded `f32`
/// output.
pub trait Number: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The exact value as an `f32`.
    fn widen(self) -> f32;
    /// The number of this type that is nearest to `value`.
    fn narrow(value: f32) -> Self;
}

impl Number for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }
}

impl Number for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        from_f16(self.to_bits())
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        Self::from_bits(to_f16(value))
    }
}

impl Number for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        from_bf16(self.to_bits())
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        Self::from_bits(to_bf16(value))
    }
}
