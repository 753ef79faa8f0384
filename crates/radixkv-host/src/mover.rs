//! Movers: how blocks are copied between a device and the host.

use std::{ops::Range, sync::Arc};

use radixkv::BlockId;

use crate::tier::HostBlock;

/// Copies blocks between a device and the host, by `memcpy` or a GPU's transfers.
///
/// A call returns when its copies are complete. Several threads may call it at once, but never for
/// the same destination. A call that fails may have written to any of its destinations; none of
/// them is used.
///
/// If the two block sizes differ, a block's bytes are divided evenly among its tokens, in their
/// order.
pub trait Mover: Send + Sync {
    /// Copies from the device to the host.
    ///
    /// # Errors
    ///
    /// [`MoveError`]: the blocks are evicted, and are not in the host tier.
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError>;

    /// Copies from the host to the device.
    ///
    /// # Errors
    ///
    /// [`MoveError`]: the blocks stay in the host tier, and their tokens are computed.
    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError>;
}

impl<M: Mover + ?Sized> Mover for Arc<M> {
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        (**self).offload(copies)
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        (**self).onboard(copies)
    }
}

/// A copy from the device to the host.
#[derive(Debug)]
#[non_exhaustive]
pub struct ToHost<'a> {
    /// The device's block.
    pub block: BlockId,
    /// The range of the block's tokens to copy.
    pub tokens: Range<usize>,
    /// The host's block.
    pub host_block: HostBlock,
    /// The range of the block's tokens to write.
    pub host_tokens: Range<usize>,
    /// The destination of the bytes; empty if the tier only counts.
    pub bytes: &'a mut [u8],
}

/// A copy from the host to the device.
#[derive(Debug)]
#[non_exhaustive]
pub struct ToDevice<'a> {
    /// The host's block.
    pub host_block: HostBlock,
    /// The range of the block's tokens to copy.
    pub host_tokens: Range<usize>,
    /// The bytes to copy; empty if the tier only counts.
    pub bytes: &'a [u8],
    /// The device's block.
    pub block: BlockId,
    /// The range of the block's tokens to write.
    pub tokens: Range<usize>,
}

/// An error of a [`Mover`]: blocks were not copied.
#[derive(Debug, thiserror::Error)]
#[error("blocks were not copied: {0}")]
pub struct MoveError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl MoveError {
    /// Creates the error with the device's message.
    pub fn new(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(reason.into())
    }
}

/// A mover that copies nothing, for tiers that only count.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCopies;

impl Mover for NoCopies {
    fn offload(&self, _copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        Ok(())
    }

    fn onboard(&self, _copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        Ok(())
    }
}
