//! A device whose block memory is main memory.

use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use radixkv::BlockId;

use crate::mover::{MoveError, Mover, ToDevice, ToHost};

/// The block memory of an engine that computes on the CPU: a [`Mover`] that copies by `memcpy`.
///
/// Each block has its own lock, which is held while the block is copied or accessed.
///
/// # Examples
///
/// ```
/// use radixkv_host::DeviceMemory;
///
/// let memory = DeviceMemory::new(16, 4096, 8); // 8 blocks of 16 tokens, of 4 KiB each
/// memory.write(3, |bytes| bytes.fill(7));
/// assert!(memory.read(3, |bytes| bytes.iter().all(|&byte| byte == 7)));
/// ```
#[derive(Debug)]
pub struct DeviceMemory {
    block_size: usize,
    blocks: Vec<Mutex<Box<[u8]>>>,
}

impl DeviceMemory {
    /// Allocates `blocks` blocks of `block_size` tokens and `block_bytes` bytes each.
    pub fn new(block_size: usize, block_bytes: usize, blocks: usize) -> Self {
        let block = || Mutex::new(vec![0; block_bytes].into_boxed_slice());
        Self { block_size, blocks: (0..blocks).map(|_| block()).collect() }
    }

    /// Calls `look` with the bytes of a block.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn read<R>(&self, block: BlockId, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.lock(block))
    }

    /// Calls `fill` with the bytes of a block that the caller has reserved.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn write<R>(&self, block: BlockId, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        fill(&mut self.lock(block))
    }

    fn lock(&self, block: BlockId) -> MutexGuard<'_, Box<[u8]>> {
        // The lock only protects bytes: a panic leaves no invalid state.
        self.blocks[block as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The range of bytes of some tokens; an error if its length is not `wanted`.
    fn part(&self, bytes: &[u8], tokens: &Range<usize>, wanted: usize) -> Result<Range<usize>, MoveError> {
        let per = |token: usize| bytes.len() * token / self.block_size;
        let part = per(tokens.start)..per(tokens.end);
        if part.len() == wanted {
            return Ok(part);
        }
        Err(MoveError::new(format!(
            "tokens {tokens:?} of a device block have {} bytes, the host's {wanted}",
            part.len()
        )))
    }
}

impl Mover for DeviceMemory {
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        copies.iter_mut().try_for_each(|copy| {
            let from = self.lock(copy.block);
            let part = self.part(&from, &copy.tokens, copy.bytes.len())?;
            copy.bytes.copy_from_slice(&from[part]);
            Ok(())
        })
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        copies.iter().try_for_each(|copy| {
            let mut to = self.lock(copy.block);
            let part = self.part(&to, &copy.tokens, copy.bytes.len())?;
            to[part].copy_from_slice(copy.bytes);
            Ok(())
        })
    }
}
