//! Elements of 16 bits: rounding `f32` to them, and back.

use crate::Dtype;

/// Four elements in a word, or two.
#[inline]
pub fn per_word(dtype: Dtype) -> usize {
    8 / dtype.bytes()
}

/// What is read after `value` was stored.
#[inline]
pub fn rounded(dtype: Dtype, value: f32) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::F16 => from_f16(to_f16(value)),
        Dtype::Bf16 => from_bf16(to_bf16(value)),
    }
}

/// The word that holds `values`, the first in its lowest bits.
#[inline]
pub fn pack(dtype: Dtype, values: &[f32]) -> u64 {
    let wide = |word: u64, value: &f32| word << 32 | u64::from(value.to_bits());
    let narrow = |to: fn(f32) -> u16| move |word: u64, value: &f32| word << 16 | u64::from(to(*value));
    match dtype {
        Dtype::F32 => values.iter().rev().fold(0, wide),
        Dtype::F16 => values.iter().rev().fold(0, narrow(to_f16)),
        Dtype::Bf16 => values.iter().rev().fold(0, narrow(to_bf16)),
    }
}

/// The first elements of `word`, as many as there is room for.
#[inline]
pub fn unpack(dtype: Dtype, word: u64, values: &mut [f32]) {
    let bits = 8 * dtype.bytes();
    for (i, value) in values.iter_mut().enumerate() {
        let element = word >> (i * bits);
        *value = match dtype {
            Dtype::F32 => f32::from_bits(element as u32),
            Dtype::F16 => from_f16(element as u16),
            Dtype::Bf16 => from_bf16(element as u16),
        };
    }
}

#[inline]
fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline]
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Quiet, so that what is left of the payload cannot be that of an infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Moves exponent and fraction to their places in an `f32` and lets a multiplication by `2^112`, the difference of the
/// two biases, put the exponent right: that is exact for subnormals too.
#[inline]
fn from_f16(bits: u16) -> f32 {
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let shifted = u32::from(bits & 0x7fff) << 13;
    let special = if shifted >= 0x1f << 23 { 0xff << 23 } else { 0 };
    let magnitude = (f32::from_bits(shifted) * REBIAS).to_bits() | special;
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

#[inline]
fn to_f16(value: f32) -> u16 {
    /// Halfway between the largest `f16` and the next power of two.
    const OVERFLOW: u32 = 0x477f_f000;
    /// The least normal `f16`, `2^-14`.
    const NORMAL: u32 = (127 - 14) << 23;
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let bits = value.to_bits() & 0x7fff_ffff;
    let magnitude = if value.is_nan() {
        0x7e00
    } else if bits >= OVERFLOW {
        0x7c00
    } else if bits < NORMAL {
        // The last place of numbers around 0.5 is that of the subnormals, so this addition rounds as they do.
        (f32::from_bits(bits) + 0.5).to_bits() - 0.5_f32.to_bits()
    } else {
        (bits - (112 << 23) + 0xfff + (bits >> 13 & 1)) >> 13
    };
    sign | magnitude as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By definition, in `f64`.
    fn f16_value(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2_f64.powi(-24),
            0x1f if fraction == 0.0 => f64::INFINITY,
            0x1f => f64::NAN,
            _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
        };
        if bits & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn every_f16_is_read_as_defined_and_written_back() {
        for bits in 0..=u16::MAX {
            let (read, defined) = (from_f16(bits), f16_value(bits));
            if defined.is_nan() {
                assert!(read.is_nan() && from_f16(to_f16(read)).is_nan(), "{bits:#x}");
            } else {
                assert_eq!(f64::from(read), defined, "{bits:#x}");
                assert_eq!(to_f16(read), bits);
            }
        }
    }

    /// Between each two neighbours: below the middle, at it, above it.
    #[test]
    fn rounding_goes_to_the_nearest_and_ties_to_even() {
        let check = |bits: u16, read: fn(u16) -> f32, write: fn(f32) -> u16| {
            let middle = ((f64::from(read(bits)) + f64::from(read(bits + 1))) / 2.0) as f32;
            assert_eq!(write(middle.next_down()), bits);
            assert_eq!(write(middle.next_up()), bits + 1);
            assert_eq!(write(middle), bits + (bits & 1), "{bits:#x}");
            assert_eq!(write(-middle), 0x8000 | (bits + (bits & 1)));
        };
        (0..0x7bff).for_each(|bits| check(bits, from_f16, to_f16));
        // From the first normal on: the middle of two subnormals is no `f32`.
        (0x80..0x7f7f).for_each(|bits| check(bits, from_bf16, to_bf16));
        assert_eq!((to_f16(65_519.996), to_f16(65_520.0), to_f16(f32::INFINITY)), (0x7bff, 0x7c00, 0x7c00));
        assert_eq!((to_bf16(f32::MAX), to_bf16(f32::INFINITY)), (0x7f80, 0x7f80));
        assert!(from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
    }

    #[test]
    fn words_hold_elements_in_order() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let values: Vec<f32> = (0..per_word(dtype)).map(|i| i as f32 - 1.5).collect();
            let mut read = vec![0.0; values.len()];
            unpack(dtype, pack(dtype, &values), &mut read);
            assert_eq!(read, values);
            assert_eq!(values.iter().map(|value| rounded(dtype, *value)).collect::<Vec<_>>(), values);
        }
    }
}
