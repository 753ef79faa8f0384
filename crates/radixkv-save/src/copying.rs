//! Copying the blocks of one sequence into a file, while a lease keeps them in place.

use std::io::{self, Write};

use radixkv::BlockId;

use crate::block_bytes::BlockBytes;
use crate::format::checksum;
use crate::format::entry::Place;

/// Where blocks' bytes go, one after the other.
pub(crate) struct Copying<'a, B: ?Sized, W> {
    memory: &'a mut B,
    to: W,
    seed: u64,
    buffer: Vec<u8>,
    /// Blocks that were copied.
    pub(crate) blocks: u64,
}

impl<'a, B: BlockBytes + ?Sized, W: Write> Copying<'a, B, W> {
    pub(crate) fn new(memory: &'a mut B, to: W, seed: u64) -> Self {
        let buffer = vec![0; memory.block_bytes()];
        Self { memory, to, seed, buffer, blocks: 0 }
    }

    /// Copies a block; nothing if it cannot be had.
    pub(crate) fn copy(&mut self, block: BlockId) -> io::Result<Option<Place>> {
        if !self.memory.read(block, &mut self.buffer) {
            return Ok(None);
        }
        let number = self.blocks;
        self.to.write_all(&self.buffer)?;
        self.blocks += 1;
        Ok(Some(Place { number, sum: checksum(self.seed, number, &self.buffer) }))
    }

    pub(crate) fn into_inner(self) -> W {
        self.to
    }
}
