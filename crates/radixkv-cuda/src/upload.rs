//! Sends the arrays of a plan to the device in one copy.

use super::abi::{ComparePair, CopyPair, DecodeItem, MergeItem, Tile, TokenRange};
use super::buffer::Buffer;
use super::device::Device;
use super::error::GpuError;

/// An element of an upload: a struct of 32-bit fields, as the kernels read it.
pub(super) trait Pack {
    fn pack(&self, words: &mut Vec<u32>);
}

/// Arrays one after another, each beginning at a multiple of 16 bytes.
#[derive(Debug, Default)]
pub(super) struct Upload {
    words: Vec<u32>,
}

/// An array in an [`Upload`]: the word where it begins, and its number of elements.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ArraySpan {
    at: usize,
    pub(super) len: usize,
}

/// The arrays of an [`Upload`] on the device, or room there for the arrays of any upload.
#[derive(Debug)]
pub(super) struct Arrays {
    words: Buffer<u32>,
}

impl Upload {
    pub(super) fn push<T: Pack>(&mut self, array: &[T]) -> ArraySpan {
        let at = self.words.len().next_multiple_of(4);
        self.words.resize(at, 0);
        array.iter().for_each(|element| element.pack(&mut self.words));
        ArraySpan { at, len: array.len() }
    }

    pub(super) fn send(self, device: &Device) -> Result<Arrays, GpuError> {
        let mut arrays = Arrays { words: device.unset(self.words.len())? };
        self.replace(&mut arrays)?;
        Ok(arrays)
    }

    /// Queues a copy to the beginning of `arrays`, which keep their address.
    ///
    /// # Panics
    ///
    /// If `arrays` is shorter than the upload.
    pub(super) fn replace(&self, arrays: &mut Arrays) -> Result<(), GpuError> {
        arrays.words.write(&self.words)
    }

    /// Words that an array of `len` elements takes, including those before it that align it.
    pub(super) fn room<T: Pack>(len: usize) -> usize {
        (len * size_of::<T>()).div_ceil(16) * 4
    }
}

impl Arrays {
    /// Room for `words` words, undefined until it is written.
    pub(super) fn of_room(device: &Device, words: usize) -> Result<Self, GpuError> {
        Ok(Self { words: device.unset(words)? })
    }

    /// The address of an array on the device.
    pub(super) fn address(&self, span: ArraySpan) -> u64 {
        self.words.address() + (span.at * size_of::<u32>()) as u64
    }
}

impl Pack for u32 {
    fn pack(&self, words: &mut Vec<u32>) {
        words.push(*self);
    }
}

impl Pack for f32 {
    fn pack(&self, words: &mut Vec<u32>) {
        words.push(self.to_bits());
    }
}

impl Pack for u64 {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([*self as u32, (*self >> 32) as u32]);
    }
}

impl Pack for DecodeItem {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([
            self.sequence,
            self.table,
            self.kv_head,
            self.first,
            self.end,
            self.part,
            self.position,
            self.pad,
        ]);
    }
}

impl Pack for Tile {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([self.table, self.kv_head, self.first, self.end, self.part]);
        words.extend([self.row_first, self.rows, self.query_first, self.visible]);
    }
}

impl Pack for MergeItem {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([self.row, self.rows, self.first, self.count]);
    }
}

impl Pack for CopyPair {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([self.from, self.to, self.units]);
    }
}

impl Pack for TokenRange {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([self.first, self.len]);
    }
}

impl Pack for ComparePair {
    fn pack(&self, words: &mut Vec<u32>) {
        words.extend([self.a, self.b]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_begin_at_multiples_of_16_bytes_and_have_their_size() {
        let mut upload = Upload::default();
        let sizes = [
            (upload.push(&[1_u32; 3]).at, 0),
            (upload.push(&[u64::MAX - 1; 3]).at, 4),
            (upload.push(&[DecodeItem::default(); 2]).at, 12),
            (upload.push(&[Tile::default(); 2]).at, 28),
            (upload.push(&[CopyPair::default(); 2]).at, 48),
            (upload.push(&[MergeItem::default(); 2]).at, 56),
            (upload.push(&[TokenRange::default(); 2]).at, 64),
            (upload.push(&[ComparePair::default(); 2]).at, 68),
        ];
        assert!(sizes.iter().all(|(at, expected)| at == expected), "{sizes:?}");
        assert_eq!(upload.words[4..6], [u32::MAX - 1, u32::MAX]);
        let bytes = [size_of::<DecodeItem>(), size_of::<Tile>(), size_of::<CopyPair>(), size_of::<MergeItem>()];
        assert_eq!(bytes, [32, 36, 12, 16]);
    }
}
