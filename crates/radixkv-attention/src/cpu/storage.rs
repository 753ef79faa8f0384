//! The storage of the CPU backends: keys and values in main memory, which several threads use.

use super::aligned::Aligned;
use super::error::CpuError;
use super::number::Number;
use super::word::{pack, per_word, unpack};
use crate::element::scale_of;
use crate::layout::{Half, Layout};
use crate::shape::ShapeError;
use radixkv::BlockId;
use std::sync::atomic::{AtomicU32, AtomicU64 as Word, Ordering::Relaxed};

/// Paged keys and values in main memory.
///
/// Elements are stored in 64-bit words. Each word is read and written atomically, without an order
/// between words: a block's contents become visible to other threads by the block's insertion into
/// the cache and a lease on it. A thread that reads a block without a lease may read a mixture of
/// old and new elements.
///
/// [`Layout::index`] gives the position of a row in the planes. Scales of 8-bit elements are stored
/// separately, in the same order of layers, keys and values, and slots, with one scale for each
/// head. Static scales have no slots. A latent vector has one scale for its key and its value.
///
/// ```
/// use radixkv_attention::{Backend, Dtype, Half, Layout, Order, cpu::Cpu};
///
/// let (dtype, order) = (Dtype::F16, Order::Nhd);
/// let kv = Cpu.allocate(Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 4, value_dim: 4, dtype, order })?;
/// // The keys of head 1 for the tokens 4 and 5 of block 3.
/// let mut keys = [1.0; 2 * 4];
/// kv.read(0, Half::Keys, 3, 4, 1, &mut keys);
/// assert_eq!(keys, [0.0; 2 * 4]); // nothing was appended yet
/// # Ok::<_, radixkv_attention::cpu::CpuError>(())
/// ```
#[derive(Debug)]
pub struct CpuKv {
    layout: Layout,
    words: Aligned<Word>,
    /// Bits of `f32`: `[layers, {keys, values}, slots, kv_heads]`, without slots if the scales are
    /// static, without values for latent vectors, and empty if elements have no scales.
    scales: Box<[AtomicU32]>,
}

/// A plane of the storage: one layer's keys, or its values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plane {
    pub(super) layer: usize,
    pub(super) half: Half,
}

impl CpuKv {
    pub(super) fn new(layout: Layout) -> Result<Self, CpuError> {
        layout.check()?;
        let memory = CpuError::Memory { bytes: layout.bytes() };
        let words = Aligned::new(layout.elements() / per_word(layout.dtype)).map_err(|_| memory)?;
        let mut scales = Vec::new();
        scales.try_reserve_exact(layout.scales()).map_err(|_| memory)?;
        let first = if layout.dtype.has_static_scales() { 1.0_f32 } else { 0.0 };
        scales.resize_with(layout.scales(), || AtomicU32::new(first.to_bits()));
        Ok(Self { layout, words, scales: scales.into_boxed_slice() })
    }

    /// The layout that the storage was allocated with.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sets the static scales of one layer's keys or values: one for each head, or one for all
    /// heads. Elements that were appended before are read with the new scales.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NotStatic`] if the element type computes its scales, or has none;
    /// [`ShapeError::KvScale`] if one is not positive and finite; [`ShapeError::Layer`] for a layer
    /// beyond the layout, and [`ShapeError::Length`] for a wrong number of scales. Nothing has
    /// changed then.
    ///
    /// ```
    /// use radixkv_attention::{Backend, Dtype, Half, Layout, Order, ShapeError, cpu::Cpu};
    ///
    /// let (dtype, order) = (Dtype::E4m3Static, Order::Nhd);
    /// let kv = Cpu.allocate(Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 8, value_dim: 8, dtype, order })?;
    /// kv.set_scales(0, Half::Keys, &[0.5, 0.25])?;
    /// kv.set_scales(0, Half::Values, &[0.1])?; // of all heads: one for the tensor
    /// assert_eq!(kv.set_scales(0, Half::Values, &[0.0]), Err(ShapeError::KvScale { scale: 0.0 }));
    /// # Ok::<_, radixkv_attention::cpu::CpuError>(())
    /// ```
    pub fn set_scales(&self, layer: usize, half: Half, scales: &[f32]) -> Result<(), ShapeError> {
        let scales = self.layout.static_scales(layer, scales)?;
        let first = self.scale_index(Plane { layer, half }, 0, 0);
        // Relaxed: as in `read`.
        self.scales[first..].iter().zip(scales).for_each(|(to, scale)| to.store(scale.to_bits(), Relaxed));
        Ok(())
    }

    /// Copies the keys or values of one head to `rows`, `[tokens, head_dim]` or `[tokens,
    /// value_dim]`: the block's tokens from `first_token` on, as many as `rows` has room for. Takes
    /// no lock, and allocates nothing.
    ///
    /// # Panics
    ///
    /// If an argument is beyond the layout, or the length of `rows` is not a multiple of a row's;
    /// nothing is copied then.
    ///
    /// ```
    /// # use radixkv_attention::{Backend, Batch, Dtype, Half, Layout, Order, Scoring, Tables, cpu::Cpu};
    /// # let (dtype, order) = (Dtype::F32, Order::Nhd);
    /// # let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 1, head_dim: 4, value_dim: 4, dtype, order };
    /// # let tables = Tables { blocks: &[3], offsets: &[0, 1] };
    /// # let (contexts, rows, slots) = (&[1][..], &[0, 1][..], &[3 * 16][..]);
    /// # let batch = Batch { query_heads: 1, scale: 0.5, scoring: Scoring::default(), tables, contexts, rows, save_kv: true, slots };
    /// let kv = Cpu.allocate(layout)?;
    /// let prepared = Cpu.prepare(&layout, &batch)?; // one token, the first of block 3
    /// Cpu.append(&kv, 0, &prepared, &[1.0; 4], &[7.0; 4])?;
    /// let mut values = [0.0; 4];
    /// kv.read(0, Half::Values, 3, 0, 0, &mut values);
    /// assert_eq!(values, [7.0; 4]);
    /// # Ok::<_, radixkv_attention::cpu::CpuError>(())
    /// ```
    pub fn read(&self, layer: usize, half: Half, block: BlockId, first_token: usize, head: usize, rows: &mut [f32]) {
        let Layout { layers, blocks, block_size, kv_heads, head_dim, dtype, .. } = self.layout.of(half);
        assert!(layer < layers && head < kv_heads, "layer {layer} of {layers}, head {head} of {kv_heads}");
        assert!((block as usize) < blocks, "block {block} of {blocks}");
        let (tokens, beyond) = (rows.len() / head_dim, rows.len() % head_dim);
        assert_eq!(beyond, 0, "elements beyond {tokens} rows of {head_dim}");
        let inside = first_token <= block_size && tokens <= block_size - first_token;
        assert!(inside, "{tokens} tokens from {first_token} on in a block of {block_size}");
        let plane = Plane { layer, half };
        for (token, row) in (first_token..).zip(rows.chunks_exact_mut(head_dim)) {
            let words = self.row(plane, block, token, head);
            for (word, values) in words.iter().zip(row.chunks_exact_mut(per_word(dtype))) {
                // Relaxed: the cache orders this load, by the edge from the insertion of the block
                // to the lease on it.
                unpack(dtype, word.load(Relaxed), values);
            }
            if dtype.has_scales() {
                let scale = self.scale(plane, block, token, head);
                row.iter_mut().for_each(|element| *element *= scale);
            }
        }
    }

    /// The words of one head of one token.
    #[inline]
    pub(super) fn row(&self, plane: Plane, block: BlockId, token: usize, head: usize) -> &[Word] {
        let each = per_word(self.layout.dtype);
        let first = self.layout.index(plane.layer, plane.half, block, token, head) / each;
        &self.words[first..][..self.layout.of(plane.half).head_dim / each]
    }

    /// The words from the row of one head of a token to the end of the storage, and the number of
    /// words from one token to the next.
    #[inline]
    pub(super) fn rows(&self, plane: Plane, block: BlockId, token: usize, head: usize) -> (&[Word], usize) {
        let (layout, each) = (self.layout.of(plane.half), per_word(self.layout.dtype));
        let first = self.layout.index(plane.layer, plane.half, block, token, head) / each;
        (&self.words[first..], layout.token_stride() / each)
    }

    /// The scale of one head of one token; only 8-bit elements have scales.
    pub(super) fn scale(&self, plane: Plane, block: BlockId, token: usize, head: usize) -> f32 {
        // Relaxed: as in `read`.
        f32::from_bits(self.scales[self.scale_index(plane, block, token) + head].load(Relaxed))
    }

    fn scale_index(&self, Plane { layer, half }: Plane, block: BlockId, token: usize) -> usize {
        let Layout { blocks, block_size, kv_heads, dtype, .. } = self.layout;
        let plane = match self.layout.halves() {
            [_] => layer,
            halves => halves.len() * layer + usize::from(half == Half::Values),
        };
        if dtype.has_static_scales() {
            return plane * kv_heads;
        }
        ((plane * blocks + block as usize) * block_size + token) * kv_heads
    }

    /// Writes the keys or values of a token for all heads, with their scales unless these are
    /// static.
    pub(super) fn write<E: Number>(&self, layer: usize, half: Half, slot: u64, row: &[E]) {
        let Layout { dtype, head_dim, block_size, .. } = self.layout.of(half);
        let (block, token) = ((slot / block_size as u64) as BlockId, (slot % block_size as u64) as usize);
        let plane = Plane { layer, half };
        for (head, values) in row.chunks_exact(head_dim).enumerate() {
            let computed = dtype.has_scales() && !dtype.has_static_scales();
            let scale = match computed {
                true => scale_of(dtype, values.iter().map(|value| value.widen())),
                false if dtype.has_scales() => self.scale(plane, block, token, head),
                false => 1.0,
            };
            let words = self.row(plane, block, token, head);
            // Relaxed, both: as in `read`.
            pack(dtype, scale, values, |index, word| words[index].store(word, Relaxed));
            if computed {
                self.scales[self.scale_index(plane, block, token) + head].store(scale.to_bits(), Relaxed);
            }
        }
    }

    pub(super) fn copy(&self, pairs: &[(BlockId, BlockId)]) -> Result<(), ShapeError> {
        self.check_copy(pairs)?;
        for layer in 0..self.layout.layers {
            for &half in self.layout.halves() {
                let words = self.layout.of(half).block_elements() / per_word(self.layout.dtype);
                let at = |block| self.layout.index(layer, half, block, 0, 0) / per_word(self.layout.dtype);
                let scale_at = |block| self.scale_index(Plane { layer, half }, block, 0);
                for &(from, to) in pairs {
                    let words_of = |block| &self.words[at(block)..][..words];
                    // Relaxed, both: as in `read`.
                    words_of(from)
                        .iter()
                        .zip(words_of(to))
                        .for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
                    if self.layout.scales() > 0 && !self.layout.dtype.has_static_scales() {
                        let of =
                            |block| &self.scales[scale_at(block)..][..self.layout.block_size * self.layout.kv_heads];
                        of(from).iter().zip(of(to)).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_copy(&self, pairs: &[(BlockId, BlockId)]) -> Result<(), ShapeError> {
        let blocks = self.layout.blocks;
        let named = pairs.iter().flat_map(|(from, to)| [*from, *to]);
        if let Some(block) = named.into_iter().find(|block| *block as usize >= blocks) {
            return Err(ShapeError::CopyRange { block, blocks });
        }
        let mut written: Vec<BlockId> = pairs.iter().map(|(_, to)| *to).collect();
        written.sort_unstable();
        let twice = written.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let read = || pairs.iter().map(|(from, _)| *from).find(|from| written.binary_search(from).is_ok());
        twice.or_else(read).map_or(Ok(()), |block| Err(ShapeError::CopyOverlap { block }))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::layout::{Dtype, Order};

    #[test]
    fn rows_beyond_the_layout_are_not_read() {
        for order in [Order::Nhd, Order::Hnd] {
            let layout = Layout {
                layers: 2,
                blocks: 3,
                block_size: 4,
                kv_heads: 2,
                head_dim: 8,
                value_dim: 8,
                dtype: Dtype::F32,
                order,
            };
            let kv = CpuKv::new(layout).expect("memory");
            let read = |layer, block, first_token, head, elements| {
                let mut rows = vec![7.0; elements];
                let read = || kv.read(layer, Half::Keys, block, first_token, head, &mut rows);
                let read = catch_unwind(AssertUnwindSafe(read)).is_ok();
                assert!(rows.iter().all(|element| *element == if read { 0.0 } else { 7.0 }), "{order:?}: {rows:?}");
                read
            };
            assert!(read(1, 2, 1, 1, 3 * 8));
            assert!(!read(2, 0, 0, 0, 8), "{order:?}: a layer");
            assert!(!read(0, 3, 0, 0, 8), "{order:?}: a block");
            assert!(!read(0, 0, 2, 0, 3 * 8), "{order:?}: a token");
            assert!(!read(0, 0, 0, 2, 8), "{order:?}: a head");
            assert!(!read(0, 0, 0, 0, 12), "{order:?}: a row and a half");
        }
    }
}
