//! Conversions between `f32` and the bits of a stored element of a [`Dtype`].
//!
//! A backend stores keys and values as elements of 8, 16 or 32 bits. Code that fills such a storage
//! itself, or passes rows to a device, needs exactly the backend's rounding: to nearest, ties to
//! even. A NaN stays a NaN and a magnitude that is too large becomes infinite, but the types of 8
//! bits have no infinities, and `I8` no NaN: see [`to_bits`]. The backends call these functions.

use crate::layout::Dtype;

/// Converts `value` to the bits of an element of `dtype`: in the lowest 8 or 16 bits, or in all 32.
///
/// Rounds to the nearest element, ties to even. Never fails: a magnitude that is too large becomes
/// infinite, or 127 as an [`I8`](Dtype::I8), 448 as an [`E4m3`](Dtype::E4m3); a NaN becomes 0 as an
/// `I8`. Does not apply scales: [`quantize`] divides a row by its scale first.
///
/// ```
/// use radixkv_attention::{Dtype, element};
///
/// // A row of `bf16`, as a device's storage takes it.
/// let row: Vec<u16> = [1.0, -2.5, 1e-3].iter().map(|value| element::to_bits(Dtype::Bf16, *value) as u16).collect();
/// assert_eq!(row, [0x3f80, 0xc020, 0x3a83]);
/// assert_eq!(element::to_bits(Dtype::F16, 1.0), 0x3c00);
/// assert_eq!(element::to_bits(Dtype::F32, 1.0), 1.0_f32.to_bits());
/// ```
#[inline]
pub fn to_bits(dtype: Dtype, value: f32) -> u32 {
    match dtype {
        Dtype::F32 => value.to_bits(),
        Dtype::F16 => u32::from(to_f16(value)),
        Dtype::Bf16 => u32::from(to_bf16(value)),
        Dtype::I8 | Dtype::I8Static => u32::from(to_i8(value) as u8),
        Dtype::E4m3 | Dtype::E4m3Static => u32::from(to_e4m3(value)),
    }
}

/// Converts an element of `dtype` to its exact value; bits above the element's are ignored.
///
/// ```
/// use radixkv_attention::{Dtype, element};
///
/// assert_eq!(element::from_bits(Dtype::Bf16, 0xc020), -2.5);
/// assert_eq!(element::from_bits(Dtype::F16, 0x3c00), 1.0);
/// ```
#[inline]
pub fn from_bits(dtype: Dtype, bits: u32) -> f32 {
    match dtype {
        Dtype::F32 => f32::from_bits(bits),
        Dtype::F16 => from_f16(bits as u16),
        Dtype::Bf16 => from_bf16(bits as u16),
        Dtype::I8 | Dtype::I8Static => f32::from(bits as i8),
        Dtype::E4m3 | Dtype::E4m3Static => from_e4m3(bits as u8),
    }
}

/// The value that is read back after `value` was stored as an element of `dtype`.
///
/// ```
/// use radixkv_attention::{Dtype, element};
///
/// assert_eq!(element::round(Dtype::Bf16, 1.0 + 1.0 / 512.0), 1.0);
/// assert_eq!(element::round(Dtype::F16, 1e6), f32::INFINITY);
/// assert_eq!(element::round(Dtype::F32, 0.1), 0.1);
/// ```
#[inline]
pub fn round(dtype: Dtype, value: f32) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::F16 => from_f16(to_f16(value)),
        Dtype::Bf16 => from_bf16(to_bf16(value)),
        Dtype::I8 | Dtype::I8Static => f32::from(to_i8(value)),
        Dtype::E4m3 | Dtype::E4m3Static => from_e4m3(to_e4m3(value)),
    }
}

/// Writes one head's row of keys or values as [`Dtype::I8`], and returns its scale.
///
/// The scale is the largest magnitude of the row divided by 127; if 127 times that is infinite, the
/// scale is the next smaller number. Each element is divided by the scale and rounded to the
/// nearest integer, ties to even; its value is the integer times the scale. A row with a NaN or an
/// infinity is read back as NaN.
///
/// ```
/// use radixkv_attention::element;
///
/// let mut integers = [0; 4];
/// let scale = element::quantize(&[0.25, -1.27, 0.0, 1.0], &mut integers);
/// assert_eq!((scale, integers), (1.27 / 127.0, [25, -127, 0, 100]));
/// ```
///
/// # Panics
///
/// If the two slices differ in length.
pub fn quantize(row: &[f32], integers: &mut [i8]) -> f32 {
    assert_eq!(row.len(), integers.len(), "elements and integers");
    let scale = scale_of(Dtype::I8, row.iter().copied());
    integers.iter_mut().zip(row).for_each(|(integer, value)| *integer = to_i8(*value / scale));
    scale
}

/// Writes one head's row of keys or values as [`Dtype::E4m3`], and returns its scale.
///
/// The scale is computed as by [`quantize`], with 448 in place of 127; a scale of 0 becomes 1. Each
/// element is divided by the scale and rounded to the nearest `E4M3FN`, ties to even; its value is
/// that number times the scale. So the error of an element is at most a sixteenth of the element,
/// or `2^-10` times the scale, whichever is more.
///
/// ```
/// use radixkv_attention::element;
///
/// let mut bits = [0; 4];
/// let scale = element::quantize_e4m3(&[448.0, -1.0, 0.0, 3.1], &mut bits);
/// assert_eq!((scale, bits), (1.0, [0x7e, 0xb8, 0, 0x44])); // 3.1 is stored as 3
/// ```
///
/// # Panics
///
/// If the two slices differ in length.
pub fn quantize_e4m3(row: &[f32], bits: &mut [u8]) -> f32 {
    assert_eq!(row.len(), bits.len(), "elements and bits");
    let scale = scale_of(Dtype::E4m3, row.iter().copied());
    bits.iter_mut().zip(row).for_each(|(bits, value)| *bits = to_e4m3(*value / scale));
    scale
}

/// The scale of a row, as [`quantize`] and [`quantize_e4m3`] define it.
pub(crate) fn scale_of(dtype: Dtype, row: impl Iterator<Item = f32>) -> f32 {
    let larger =
        |largest: f32, value: f32| if largest.is_nan() || value.abs() <= largest { largest } else { value.abs() };
    let largest = row.fold(0.0, larger);
    let most = if dtype == Dtype::I8 { 127.0 } else { E4M3_MOST };
    let scale = largest / most;
    if largest.is_finite() && (scale * most).is_infinite() {
        return f32::from_bits(scale.to_bits() - 1);
    }
    // A zero divided by a scale of 0 is NaN, which becomes 0 as an integer, but stays NaN as an
    // `E4M3FN`.
    if dtype == Dtype::E4m3 && scale == 0.0 { 1.0 } else { scale }
}

/// The largest finite `E4M3FN`.
const E4M3_MOST: f32 = 448.0;

/// Converts to an `E4M3FN`: a larger magnitude becomes the largest one; a NaN stays a NaN.
#[inline(always)]
pub(crate) fn to_e4m3(value: f32) -> u8 {
    /// The smallest normal number, `2^-6`; subnormal numbers are multiples of `2^-9`.
    const NORMAL: f32 = 1.0 / 64.0;
    let sign = (value.to_bits() >> 24) as u8 & 0x80;
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    let rounded = if value.is_nan() {
        0x7f
    } else if magnitude >= E4M3_MOST {
        0x7e
    } else if magnitude < NORMAL {
        (magnitude * 512.0).round_ties_even() as u32
    } else {
        ((bits + 0x7_ffff + (bits >> 20 & 1)) >> 20) - ((127 - 7) << 3)
    };
    sign | rounded as u8
}

/// Moves exponent and fraction to their positions in an `f32`; a multiplication by `2^120` then
/// corrects the exponent.
#[inline(always)]
pub(crate) fn from_e4m3(bits: u8) -> f32 {
    const REBIAS: f32 = f32::from_bits((127 + 120) << 23);
    let magnitude = bits & 0x7f;
    let special = if magnitude == 0x7f { 0x7fc0_0000 } else { 0 };
    let value = f32::from_bits(u32::from(magnitude) << 20) * REBIAS;
    f32::from_bits(value.to_bits() | special | u32::from(bits & 0x80) << 24)
}

/// Converts to an integer from -127 to 127; a NaN becomes 0.
#[inline(always)]
pub(crate) fn to_i8(value: f32) -> i8 {
    value.round_ties_even().clamp(-127.0, 127.0) as i8
}

#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Sets the quiet bit: a NaN with a payload only in the lower half would become an infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Moves exponent and fraction to their positions in an `f32`; a multiplication by `2^112` (the
/// difference of the two biases) then corrects the exponent. This is exact for subnormals as well.
#[inline(always)]
pub(crate) fn from_f16(bits: u16) -> f32 {
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let shifted = u32::from(bits & 0x7fff) << 13;
    let special = if shifted >= 0x1f << 23 { 0xff << 23 } else { 0 };
    let magnitude = (f32::from_bits(shifted) * REBIAS).to_bits() | special;
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

#[inline(always)]
pub(crate) fn to_f16(value: f32) -> u16 {
    /// Halfway between the largest `f16` and the next power of two.
    const OVERFLOW: u32 = 0x477f_f000;
    /// The smallest normal `f16`, `2^-14`.
    const NORMAL: u32 = (127 - 14) << 23;
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let bits = value.to_bits() & 0x7fff_ffff;
    let magnitude = if value.is_nan() {
        0x7e00
    } else if bits >= OVERFLOW {
        0x7c00
    } else if bits < NORMAL {
        // Numbers around 0.5 have the same last place as the subnormals of `f16`, so this addition
        // rounds to a subnormal.
        (f32::from_bits(bits) + 0.5).to_bits() - 0.5_f32.to_bits()
    } else {
        (bits - (112 << 23) + 0xfff + (bits >> 13 & 1)) >> 13
    };
    sign | magnitude as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value by definition, in `f64`.
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
    // Holds: AT12.
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
        // From the first normal on: the middle of two subnormals is not an `f32`.
        (0x80..0x7f7f).for_each(|bits| check(bits, from_bf16, to_bf16));
        assert_eq!((to_f16(65_519.996), to_f16(65_520.0), to_f16(f32::INFINITY)), (0x7bff, 0x7c00, 0x7c00));
        assert_eq!((to_bf16(f32::MAX), to_bf16(f32::INFINITY)), (0x7f80, 0x7f80));
        assert!(from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
    }

    #[test]
    fn bits_of_every_type_are_read_back() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3] {
            for value in [0.0, -1.5, 0.1, 3e38, f32::INFINITY] {
                assert_eq!(from_bits(dtype, to_bits(dtype, value)), round(dtype, value), "{dtype}");
            }
        }
    }

    /// The value by definition, in `f64`.
    fn e4m3_value(bits: u8) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
        let magnitude = match exponent {
            0 => fraction * 2_f64.powi(-9),
            15 if fraction == 7.0 => f64::NAN,
            _ => (8.0 + fraction) * 2_f64.powi(exponent - 10),
        };
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn every_e4m3_is_read_as_defined_and_written_back() {
        for bits in 0..=u8::MAX {
            let (read, defined) = (from_e4m3(bits), e4m3_value(bits));
            assert_eq!(read.is_nan(), defined.is_nan(), "{bits:#x}");
            assert!(read.is_nan() || f64::from(read) == defined, "{bits:#x}: {read}, {defined}");
            assert_eq!(to_e4m3(read), bits);
        }
        // Between each two neighbours, 448 being the last one: below the middle, at it, above it.
        for bits in 0..0x7e {
            let middle = ((e4m3_value(bits) + e4m3_value(bits + 1)) / 2.0) as f32;
            let near = [middle.next_down(), middle, middle.next_up()].map(to_e4m3);
            assert_eq!(near, [bits, bits + (bits & 1), bits + 1], "{bits:#x}");
            assert_eq!(to_e4m3(-middle), 0x80 | near[1]);
        }
        assert_eq!([448.1, 1e9, f32::INFINITY, f32::NEG_INFINITY].map(to_e4m3), [0x7e, 0x7e, 0x7e, 0xfe]);
    }

    #[test]
    fn e4m3_is_within_a_sixteenth_and_what_is_no_number_shows() {
        let dice = &mut fastrand::Rng::with_seed(2);
        for _ in 0..1000 {
            let row: Vec<f32> = (0..8).map(|_| (dice.f32() - 0.5) * 10_f32.powi(dice.i32(-6..6))).collect();
            let mut bits = [0; 8];
            let scale = quantize_e4m3(&row, &mut bits);
            for (value, bits) in row.iter().zip(bits) {
                let off = (value - from_e4m3(bits) * scale).abs();
                assert!(off <= (value.abs() / 16.0).max(scale / 1024.0) * 1.000_001, "{row:?}");
            }
        }
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut bits = [0; 3];
            let scale = quantize_e4m3(&[1.0, special, 0.0], &mut bits);
            assert!(bits.iter().all(|bits| (from_e4m3(*bits) * scale).is_nan()), "{special}");
        }
        for end in [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, 0.0] {
            let mut bits = [0; 2];
            let scale = quantize_e4m3(&[end, 0.0], &mut bits);
            assert!(bits.iter().all(|bits| (from_e4m3(*bits) * scale).is_finite()), "{end}");
        }
    }

    // Holds: AT6.
    #[test]
    fn integers_are_within_half_a_scale_and_what_is_no_number_shows() {
        let dice = &mut fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let row: Vec<f32> = (0..8).map(|_| (dice.f32() - 0.5) * 10_f32.powi(dice.i32(-6..6))).collect();
            let mut integers = [0; 8];
            let scale = quantize(&row, &mut integers);
            let off = |(value, integer): (&f32, &i8)| (value - f32::from(*integer) * scale).abs();
            assert!(row.iter().zip(&integers).map(off).all(|off| off <= scale * 0.500_001), "{row:?}");
        }
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..3 {
                let (mut row, mut integers) = ([1.0, 0.0, -2.0], [0; 3]);
                row[at] = special;
                let scale = quantize(&row, &mut integers);
                assert!(integers.iter().all(|integer| (f32::from(*integer) * scale).is_nan()), "{row:?}");
            }
        }
        assert_eq!(quantize(&[0.0; 4], &mut [1; 4]), 0.0);
        // The ends of the range are read back as numbers.
        for end in [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45] {
            let mut integers = [0; 2];
            let scale = quantize(&[end, 0.0], &mut integers);
            assert!(integers.iter().all(|integer| (f32::from(*integer) * scale).is_finite()), "{end}");
        }
    }
}
