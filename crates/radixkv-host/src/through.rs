//! Write-through: blocks that are written to remote tiers when they are stored in the host.
//! `offload` copies them before it publishes, because the host block may be evicted afterwards.

use std::time::Instant;

use radixkv::Token;

use crate::remote::{PutOrder, Remote, RemoteName};

/// Copies of blocks that are about to be stored in the host.
#[derive(Debug)]
pub(crate) struct Through<'a> {
    remote: Option<&'a Remote>,
    /// The number of each block in its sequence, and its bytes.
    blocks: Vec<(usize, Vec<u8>)>,
}

impl<'a> Through<'a> {
    /// No copies.
    pub(crate) fn none() -> Self {
        Self { remote: None, blocks: Vec::new() }
    }

    /// Copies blocks, which are in the order of their numbers: as many of the first ones as there
    /// are buffers.
    pub(crate) fn copy(remote: &'a Remote, blocks: Vec<(usize, &mut [u8])>) -> Self {
        let buffers = remote.put_buffers(&blocks.iter().map(|&(number, _)| number).collect::<Vec<_>>());
        let copied = buffers.into_iter().zip(blocks).map(|(mut buffer, (number, bytes))| {
            buffer.copy_from_slice(bytes);
            (number, buffer)
        });
        Self { remote: Some(remote), blocks: copied.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Asks the remote tiers to store the blocks, which belong to this sequence.
    pub(crate) fn put(self, name: RemoteName, tokens: &[Token], expires: Option<Instant>) {
        if let Some(remote) = self.remote {
            remote.put(PutOrder { name, tokens: tokens.to_vec(), blocks: self.blocks, expires });
        }
    }

    /// Returns the buffers: the blocks were not stored in the host.
    pub(crate) fn give_back(self) {
        if let Some(remote) = self.remote {
            self.blocks.into_iter().for_each(|(_, buffer)| remote.give_back(buffer));
        }
    }
}
