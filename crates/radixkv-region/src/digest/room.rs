//! Access in place: room that a device fills, and blocks that a device reads. Unlike in `blocks`,
//! nothing is copied through a buffer of the caller.

use std::{sync::Arc, time::Duration};

use super::{
    blocks::{BatchError, DigestBlocks, DigestPut},
    key::DigestKey,
    sum,
};
use crate::{
    counts::Miss,
    entry::{Claimed, NEVER},
    region::expiry,
    state::State,
};

/// Room for a block that a device or a thread fills. No other process reads or writes it until it
/// is published.
///
/// Dropping it gives the room back. If its process is killed, the room is given back when another
/// process recovers.
#[derive(Debug)]
#[must_use]
pub struct DigestRoom {
    blocks: Arc<DigestBlocks>,
    key: DigestKey,
    entry: usize,
    /// `None` once it is published.
    state: Option<State>,
}

/// The address of a stored block, for a device that copies it.
///
/// The copy is valid only if [`is_intact`](Self::is_intact) returns true afterwards: until then
/// another process may put another block there. The block's checksum is not compared.
#[derive(Debug)]
pub struct DigestSource {
    blocks: Arc<DigestBlocks>,
    entry: usize,
    state: State,
}

impl DigestBlocks {
    /// Reserves room for a block, to be filled in place.
    ///
    /// # Errors
    ///
    /// [`BatchError`].
    pub fn reserve(
        self: &Arc<Self>,
        key: &DigestKey,
        time_to_live: Option<Duration>,
    ) -> Result<Result<DigestRoom, DigestPut>, BatchError> {
        self.check_keys(&[*key])?;
        self.check_in_place()?;
        self.check_process()?;
        let claimed = match self.claim(key, time_to_live.map_or(NEVER, expiry), 0) {
            Ok(claimed) => claimed,
            Err(there) => return Ok(Err(there)),
        };
        let (entry, state) = (claimed.entry().number(), Some(claimed.state()));
        Ok(Ok(DigestRoom { blocks: Arc::clone(self), key: *key, entry, state }))
    }

    /// Finds a block, so that a device can copy it. Counts as a hit or a miss, and as a use.
    ///
    /// # Errors
    ///
    /// [`BatchError::KeyBytes`] and [`BatchError::Encrypted`].
    pub fn locate(self: &Arc<Self>, key: &DigestKey) -> Result<Result<DigestSource, Miss>, BatchError> {
        self.check_keys(&[*key])?;
        self.check_in_place()?;
        let found = self.find(key);
        self.inner().count(found.as_ref().err().copied());
        let hits = u64::from(found.is_ok());
        self.inner().account(self.inner().slot()).add(hits, 1 - hits, 0);
        Ok(found.map(|(entry, state)| {
            self.inner().used(entry);
            DigestSource { blocks: Arc::clone(self), entry: entry.number(), state }
        }))
    }
}

impl DigestRoom {
    /// Writes a part of the block, from byte `at` on. Does nothing in a forked child.
    ///
    /// # Panics
    ///
    /// If the part extends beyond the block.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let room = self.blocks.block_bytes();
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes from byte {at} on, in a block of {room}", bytes.len());
        if let Some(claimed) = self.claimed() {
            claimed.write(at, bytes);
        }
    }

    /// The first byte of the block, aligned to 64 bytes. Only a device or atomics may write it,
    /// until the room is published or dropped.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.blocks.inner().entry(self.entry).address()
    }

    /// The number of the block's entry: other processes that map the region find the block there.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Publishes the block: all processes can read it. A device must have finished writing. Reads
    /// the block once if the namespace has checksums.
    pub fn publish(mut self) {
        if let Some(claimed) = self.claimed() {
            if self.blocks.has_checksums() {
                let words = self.blocks.words(&claimed.entry());
                let seed = self.blocks.seed(&self.key);
                claimed.write_checksum(sum::of(words, self.blocks.block_bytes(), seed));
            }
            if claimed.publish(self.blocks.inner().boot()) {
                self.blocks.note_stored(1);
            }
        }
        self.state = None;
    }

    fn claimed(&self) -> Option<Claimed<'_>> {
        let is_own = self.blocks.check_process().is_ok();
        let state = self.state.filter(|_| is_own)?;
        Some(Claimed::again(self.blocks.inner().entry(self.entry), state))
    }
}

impl Drop for DigestRoom {
    /// Gives the room back. In a forked child it does nothing: the room belongs to the parent.
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed() {
            self.blocks.inner().empty(claimed);
        }
    }
}

impl DigestSource {
    /// The first byte of the block, aligned to 64 bytes. Only a device or atomics may read it.
    pub fn as_ptr(&self) -> *const u8 {
        self.blocks.inner().entry(self.entry).address()
    }

    /// The number of the block's entry.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Whether all bytes read so far belong to the block.
    pub fn is_intact(&self) -> bool {
        self.blocks.inner().entry(self.entry).is_still(self.state)
    }
}
