//! Configuring a host tier.

use std::sync::Arc;

use crate::{
    memory::Memory,
    tier::{HostBlock, HostTier, Inner},
};

/// Configures a [`HostTier`]; [`build`](HostBuilder::build) checks everything.
#[derive(Debug)]
#[must_use]
pub struct HostBuilder {
    block_size: usize,
    capacity: usize,
    staging: usize,
    block_bytes: usize,
    memory: Option<Memory>,
}

/// Why a host tier could not be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostBuildError {
    /// A block needs at least one token.
    #[error("the host tier's block size is 0 tokens")]
    ZeroBlockSize,
    /// Leave the tier out instead.
    #[error("the host tier's capacity is 0 blocks")]
    ZeroCapacity,
    /// Block ids are `u32`: use larger blocks.
    #[error("{blocks} host blocks exceed the {} that block ids can name", HostBlock::MAX)]
    TooManyBlocks {
        /// Blocks of the capacity and of staging.
        blocks: usize,
    },
    /// Give more memory, or take fewer blocks.
    #[error("{blocks} host blocks of {block_bytes} bytes need {needed} bytes, the memory has {given}")]
    TooLittleMemory {
        /// Blocks of the capacity and of staging.
        blocks: usize,
        /// Bytes of each.
        block_bytes: usize,
        /// Bytes that they need; `usize::MAX` if that is more than a number can say.
        needed: usize,
        /// Bytes that were given.
        given: usize,
    },
}

impl HostTier {
    /// Configures a tier of `capacity_blocks` blocks of `block_size` tokens each.
    ///
    /// The block size may be 1, and need not be that of the caches over the tier: one must be a multiple of the other.
    pub fn builder(block_size: usize, capacity_blocks: usize) -> HostBuilder {
        HostBuilder { block_size, capacity: capacity_blocks, staging: 0, block_bytes: 0, memory: None }
    }
}

impl HostBuilder {
    /// Gives each block `block_bytes` bytes of new memory. Default: none, and the tier only counts.
    pub fn block_bytes(self, block_bytes: usize) -> Self {
        Self { block_bytes, memory: None, ..self }
    }

    /// Puts the blocks, of `block_bytes` bytes each, into `memory`: block `i` at `i * block_bytes`.
    pub fn memory(self, block_bytes: usize, memory: Memory) -> Self {
        Self { block_bytes, memory: Some(memory), ..self }
    }

    /// Blocks beyond the capacity, for what is being copied: pinned blocks do not count for the capacity, so that blocks that
    /// leave a tier make room for those that come while both are on their way. They need memory too. Default: 0, and what
    /// is pinned takes room from the rest.
    pub fn staging(self, staging_blocks: usize) -> Self {
        Self { staging: staging_blocks, ..self }
    }

    /// Makes the tier; all its blocks are free.
    ///
    /// # Errors
    ///
    /// [`HostBuildError`].
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_host::{HostBuildError, HostTier, Memory};
    ///
    /// let small = HostTier::builder(16, 8).memory(4096, Memory::new(vec![0; 4096])).build();
    /// let refused = HostBuildError::TooLittleMemory { blocks: 8, block_bytes: 4096, needed: 32768, given: 4096 };
    /// assert_eq!(small.unwrap_err(), refused);
    /// ```
    pub fn build(self) -> Result<HostTier, HostBuildError> {
        let Self { block_size, capacity, staging, block_bytes, memory } = self;
        if block_size == 0 {
            return Err(HostBuildError::ZeroBlockSize);
        }
        if capacity == 0 {
            return Err(HostBuildError::ZeroCapacity);
        }
        let blocks = capacity.saturating_add(staging);
        if blocks >= HostBlock::MAX as usize {
            return Err(HostBuildError::TooManyBlocks { blocks });
        }
        let needed = blocks.saturating_mul(block_bytes);
        let memory = match memory {
            Some(memory) => memory,
            None if block_bytes == 0 => Memory::none(),
            None => Memory::new(vec![0; needed]),
        };
        if memory.len() < needed {
            return Err(HostBuildError::TooLittleMemory { blocks, block_bytes, needed, given: memory.len() });
        }
        Ok(HostTier::of(Arc::new(Inner::new(block_size, block_bytes, blocks, capacity, memory))))
    }
}
