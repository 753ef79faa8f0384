//! Keys and values in memory, written and read by several threads.

use super::CpuError;
use super::element::{pack, per_word, unpack};
use crate::attention::{Half, Layout, ShapeError};
use crate::block::BlockId;
use crate::sync::memory::{Relaxed, Word};

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
    /// If they lie beyond the layout.
    pub fn read(&self, layer: usize, half: Half, block: BlockId, first_token: usize, head: usize, rows: &mut [f32]) {
        let Layout { dtype, head_dim, block_size, .. } = self.layout;
        assert!(first_token + rows.len() / head_dim <= block_size, "the tokens lie in more than one block");
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
