//! Packs elements into the words of the storage and unpacks them: two, four or eight in a word.

use super::number::Number;
use crate::element::{from_bits, to_bf16, to_e4m3, to_f16, to_i8};
use crate::layout::Dtype;

/// Elements in a word.
#[inline]
pub(super) fn per_word(dtype: Dtype) -> usize {
    8 / dtype.bytes()
}

/// Packs the row of a head, and passes the index and the bits of each word to `write`. Elements of
/// 8 bits are divided by `scale` first.
#[inline(always)]
pub(super) fn pack<E: Number>(dtype: Dtype, scale: f32, values: &[E], mut write: impl FnMut(usize, u64)) {
    match dtype {
        Dtype::F32 => pack_by::<2>(values, |value| u64::from(value.to_bits()), &mut write),
        Dtype::F16 => pack_by::<4>(values, |value| u64::from(to_f16(value)), &mut write),
        Dtype::Bf16 => pack_by::<4>(values, |value| u64::from(to_bf16(value)), &mut write),
        Dtype::I8 | Dtype::I8Static => {
            pack_by::<8>(values, |value| u64::from(to_i8(value / scale) as u8), &mut write);
        }
        Dtype::E4m3 | Dtype::E4m3Static => {
            pack_by::<8>(values, |value| u64::from(to_e4m3(value / scale)), &mut write);
        }
    }
}

#[inline(always)]
fn pack_by<const EACH: usize>(values: &[impl Number], bits: impl Fn(f32) -> u64, write: &mut impl FnMut(usize, u64)) {
    for (index, values) in values.chunks_exact(EACH).enumerate() {
        write(index, values.iter().rev().fold(0, |word, value| word << (64 / EACH) | bits(value.widen())));
    }
}

/// Unpacks the first elements of `word`, as many as `values` has room for.
#[inline]
pub(super) fn unpack(dtype: Dtype, word: u64, values: &mut [f32]) {
    let bits = 8 * dtype.bytes();
    for (i, value) in values.iter_mut().enumerate() {
        *value = from_bits(dtype, (word >> (i * bits)) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::round;

    #[test]
    fn words_hold_elements_in_order() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3] {
            let values: Vec<f32> = (0..per_word(dtype)).map(|i| i as f32 - 3.0).collect();
            let mut read = vec![0.0; values.len()];
            pack(dtype, 1.0, &values, |_, word| unpack(dtype, word, &mut read));
            assert_eq!(read, values);
            assert_eq!(values.iter().map(|value| round(dtype, *value)).collect::<Vec<_>>(), values);
        }
    }
}
