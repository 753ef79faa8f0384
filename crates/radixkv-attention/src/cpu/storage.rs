//! Keys and values in memory, written and read by several threads.

use super::CpuError;
use crate::element::{pack, per_word, unpack};
use crate::{Half, Layout, ShapeError};
use radixkv::BlockId;
use std::sync::atomic::{AtomicU64 as Word, Ordering::Relaxed};

/// Paged keys and values in main memory.
///
/// Elements lie in words that are read and written one at a time without any order between them: what makes a block's
/// contents visible to other threads is its insertion into the cache, and then a lease on it. A thread that breaks the
/// cache's promises reads a mixture of old and new elements.
#[derive(Debug)]
pub struct CpuKv {
    layout: Layout,
    words: Box<[Word]>,
}

impl CpuKv {
    pub(super) fn new(layout: Layout) -> Result<Self, CpuError> {
        layout.check()?;
        let count = layout.elements() / per_word(layout.dtype);
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| CpuError::Memory { bytes: layout.bytes() })?;
        words.resize_with(count, Word::default);
        Ok(Self { layout, words: words.into_boxed_slice() })
    }

    /// Its layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Copies the keys or values of one head, for tokens that lie in one block, to `rows`: `[tokens, head_dim]`.
    ///
    /// # Panics
    ///
    /// If they lie beyond the layout, or `rows` is not as long as whole rows; nothing was copied then.
    pub fn read(&self, layer: usize, half: Half, block: BlockId, first_token: usize, head: usize, rows: &mut [f32]) {
        let Layout { layers, blocks, block_size, kv_heads, head_dim, dtype, .. } = self.layout;
        assert!(layer < layers && head < kv_heads, "layer {layer} of {layers}, head {head} of {kv_heads}");
        assert!((block as usize) < blocks, "block {block} of {blocks}");
        let (tokens, beyond) = (rows.len() / head_dim, rows.len() % head_dim);
        assert_eq!(beyond, 0, "elements beyond {tokens} rows of {head_dim}");
        let inside = first_token <= block_size && tokens <= block_size - first_token;
        assert!(inside, "{tokens} tokens from {first_token} on in a block of {block_size}");
        let each = per_word(dtype);
        let first = self.layout.index(layer, half, block, first_token, head) / each;
        let stride = self.layout.token_stride() / each;
        for (token, row) in rows.chunks_exact_mut(head_dim).enumerate() {
            let words = &self.words[first + token * stride..][..head_dim / each];
            for (word, values) in words.iter().zip(row.chunks_exact_mut(each)) {
                // Relaxed: whoever made the block visible did it with an edge of the cache's.
                unpack(dtype, word.load(Relaxed), values);
            }
        }
    }

    /// Writes a token's row of all heads.
    pub(super) fn write(&self, layer: usize, half: Half, slot: u64, row: &[f32]) {
        let Layout { dtype, head_dim, block_size, .. } = self.layout;
        let (block, token) = ((slot / block_size as u64) as BlockId, slot as usize % block_size);
        let each = per_word(dtype);
        for (head, values) in row.chunks_exact(head_dim).enumerate() {
            let first = self.layout.index(layer, half, block, token, head) / each;
            for (word, values) in self.words[first..].iter().zip(values.chunks_exact(each)) {
                // Relaxed: as in `read`.
                word.store(pack(dtype, values), Relaxed);
            }
        }
    }

    pub(super) fn copy(&self, pairs: &[(BlockId, BlockId)]) -> Result<(), ShapeError> {
        self.check_copy(pairs)?;
        let words = self.layout.block() / per_word(self.layout.dtype);
        for layer in 0..self.layout.layers {
            for half in [Half::Keys, Half::Values] {
                let at = |block| self.layout.index(layer, half, block, 0, 0) / per_word(self.layout.dtype);
                for &(from, to) in pairs {
                    let (from, to) = (&self.words[at(from)..][..words], &self.words[at(to)..][..words]);
                    // Relaxed: as in `read`.
                    from.iter().zip(to).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
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
    use crate::{Dtype, Order};

    #[test]
    fn rows_beyond_the_layout_are_not_read() {
        for order in [Order::Nhd, Order::Hnd] {
            let layout =
                Layout { layers: 2, blocks: 3, block_size: 4, kv_heads: 2, head_dim: 8, dtype: Dtype::F32, order };
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
