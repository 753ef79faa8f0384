//! The interface of saves and restores to the engine's memory.

use radixkv::BlockId;

/// The engine's KV memory: read while a cache is saved, written while it is restored.
///
/// [`Save::to`](crate::Save::to) reads a block while a lease keeps it in place.
/// [`Saved::restore`](crate::Saved::restore) writes a block while it is reserved, so that no other
/// thread uses it.
///
/// # Examples
///
/// ```
/// use radixkv_save::BlockBytes;
///
/// /// Blocks of 4 KiB in one piece of memory.
/// struct Host(Vec<u8>);
///
/// impl Host {
///     fn block(&mut self, block: u32) -> &mut [u8] {
///         &mut self.0[block as usize * 4096..][..4096]
///     }
/// }
///
/// impl BlockBytes for Host {
///     fn block_bytes(&self) -> usize {
///         4096
///     }
///
///     fn read(&mut self, block: u32, bytes: &mut [u8]) -> bool {
///         bytes.copy_from_slice(self.block(block));
///         true
///     }
///
///     fn write(&mut self, block: u32, bytes: &[u8]) -> bool {
///         self.block(block).copy_from_slice(bytes);
///         true
///     }
/// }
/// ```
pub trait BlockBytes {
    /// The number of bytes of a block: the layout's, or 0 if only the tree is saved and restored.
    fn block_bytes(&self) -> usize;

    /// Copies a block into `bytes`, which has its length. Returns false if the block cannot be
    /// read: it is left out, with all blocks after it.
    fn read(&mut self, block: BlockId, bytes: &mut [u8]) -> bool;

    /// Copies `bytes` into a block. Returns false if the block cannot be written: it is left out,
    /// with all blocks after it.
    fn write(&mut self, block: BlockId, bytes: &[u8]) -> bool;
}

/// No bytes: saves and restores only the tree, for simulations and for engines that copy the bytes
/// in another way.
///
/// Restored blocks are cached at once, and a match finds them: the bytes must be in place before
/// other threads match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeOnly;

impl BlockBytes for TreeOnly {
    fn block_bytes(&self) -> usize {
        0
    }

    fn read(&mut self, _block: BlockId, _bytes: &mut [u8]) -> bool {
        true
    }

    fn write(&mut self, _block: BlockId, _bytes: &[u8]) -> bool {
        true
    }
}
