//! The words of the storage: two or four elements side by side.

use crate::element::{from_bits, to_bits};
use crate::layout::Dtype;

/// Elements in a word.
#[inline]
pub(super) fn per_word(dtype: Dtype) -> usize {
    8 / dtype.bytes()
}

/// The word that holds `values`, the first in its lowest bits.
#[inline]
pub(super) fn pack(dtype: Dtype, values: &[f32]) -> u64 {
    let bits = 8 * dtype.bytes();
    values.iter().rev().fold(0, |word, value| word << bits | u64::from(to_bits(dtype, *value)))
}

/// The first elements of `word`, as many as there is room for.
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
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let values: Vec<f32> = (0..per_word(dtype)).map(|i| i as f32 - 1.5).collect();
            let mut read = vec![0.0; values.len()];
            unpack(dtype, pack(dtype, &values), &mut read);
            assert_eq!(read, values);
            assert_eq!(values.iter().map(|value| round(dtype, *value)).collect::<Vec<_>>(), values);
        }
    }
}
