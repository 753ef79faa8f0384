//! Blocks that are put to remote tiers when they come to the host.

use std::time::Duration;

use radixkv::Token;

use crate::remote::{PutOrder, Remote, RemoteName};

/// Copies of blocks that are on their way into the host.
#[derive(Debug)]
pub(crate) struct Through<'a> {
    remote: Option<&'a Remote>,
    /// The number of each block in its sequence, and its bytes.
    blocks: Vec<(usize, Vec<u8>)>,
}

impl<'a> Through<'a> {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self { remote: None, blocks: Vec::new() }
    }

    /// Copies blocks, which are in the order of their numbers: the first ones, as many as may be on their way.
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

    /// Asks the remote tiers to keep them: blocks of this sequence.
    pub(crate) fn put(self, name: RemoteName, tokens: &[Token], time_to_live: Option<Duration>) {
        if let Some(remote) = self.remote {
            remote.put(PutOrder { name, tokens: tokens.to_vec(), blocks: self.blocks, time_to_live });
        }
    }

    /// They did not come in.
    pub(crate) fn give_back(self) {
        if let Some(remote) = self.remote {
            self.blocks.into_iter().for_each(|(_, buffer)| remote.give_back(buffer));
        }
    }
}
