//! Copying the bytes of blocks into the file of a save, one block after the other.

use std::io::{self, Write};

use radixkv::BlockId;

use crate::block_bytes::BlockBytes;
use crate::format::entry::Place;
use crate::format::seal::{Part, Sealing};

/// Writes the bytes of blocks, encrypted if the layout says so.
pub(crate) struct Blocks<W> {
    to: W,
    sealing: Sealing,
    sealed: Vec<u8>,
    /// Number of blocks that were written.
    pub(crate) count: u64,
}

impl<W: Write> Blocks<W> {
    pub(crate) fn new(to: W, sealing: Sealing) -> Self {
        Self { to, sealing, sealed: Vec::new(), count: 0 }
    }

    /// Writes a block; returns its place in the file, where a block without bytes has none.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<Place> {
        let number = self.count;
        let bytes = if bytes.is_empty() || self.sealing.extra_bytes() == 0 {
            bytes
        } else {
            self.sealed.clear();
            self.sealed.extend_from_slice(bytes);
            self.sealing.seal(Part::Block, number, &mut self.sealed)?;
            &self.sealed
        };
        self.to.write_all(bytes)?;
        self.count += 1;
        Ok(Place { number, sum: self.sealing.sum(number, bytes) })
    }

    pub(crate) fn into_inner(self) -> W {
        self.to
    }
}

/// Copies the blocks of a cache while leases keep them in place.
pub(crate) struct Copying<'a, B: ?Sized, W> {
    memory: &'a mut B,
    pub(crate) blocks: Blocks<W>,
    buffer: Vec<u8>,
}

impl<'a, B: BlockBytes + ?Sized, W: Write> Copying<'a, B, W> {
    pub(crate) fn new(memory: &'a mut B, to: W, sealing: Sealing) -> Self {
        let buffer = vec![0; memory.block_bytes()];
        Self { memory, blocks: Blocks::new(to, sealing), buffer }
    }

    /// Copies a block; `None` if the engine's memory cannot read it.
    pub(crate) fn copy(&mut self, block: BlockId) -> io::Result<Option<Place>> {
        if !self.memory.read(block, &mut self.buffer) {
            return Ok(None);
        }
        self.blocks.put(&self.buffer).map(Some)
    }
}
