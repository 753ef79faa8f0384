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
mod tests;
