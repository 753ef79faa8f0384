//! Runs of blocks: the consecutive blocks of a sequence, in one call.

use super::{PutError, ReadError, Region, write::Put};
use crate::key::{Key, Token};

/// The result of storing a run, in numbers of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PutRun {
    /// Blocks that were stored.
    pub stored: usize,
    /// Blocks that the region already had.
    pub present: usize,
    /// Blocks that another thread or process is storing.
    pub in_flight: usize,
    /// Blocks that were not stored because a block of other tokens has the same hash.
    pub collisions: usize,
}

impl Region {
    /// The number of blocks of a sequence that the region holds before the first missing one.
    /// Counts neither as a use nor as hits or misses.
    ///
    /// # Errors
    ///
    /// [`ReadError::Tokens`].
    pub fn contains_run(&self, keys: &[Key], tokens: &[Token]) -> Result<usize, ReadError> {
        self.check_lengths(keys.len(), tokens.len(), self.layout.block_bytes().saturating_mul(keys.len()))?;
        let blocks = keys.iter().zip(tokens.chunks(self.layout.block_size()));
        Ok(blocks.take_while(|(key, tokens)| self.contains(key, tokens)).count())
    }

    /// Copies the blocks of a sequence into `bytes`, up to the first missing one. Returns how many
    /// it copied.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use radixkv_region::{Layout, Memory, Region};
    /// # let layout = Layout::new(2, 4, 8);
    /// # let region = Region::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?;
    /// let tokens = [1, 2, 3, 4, 5, 6];
    /// let keys = layout.chain(b"tenant").keys(&tokens);
    /// region.put_run(&keys[..2], &tokens[..4], b"abcdefgh")?;
    /// let mut bytes = [0; 12];
    /// assert_eq!(region.get_run_into(&keys, &tokens, &mut bytes)?, 2);
    /// assert_eq!(&bytes[..8], b"abcdefgh");
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_run_into(&self, keys: &[Key], tokens: &[Token], bytes: &mut [u8]) -> Result<usize, ReadError> {
        self.check_lengths(keys.len(), tokens.len(), bytes.len())?;
        let blocks = keys.iter().zip(tokens.chunks(self.layout.block_size()));
        let blocks = blocks.zip(bytes.chunks_mut(self.layout.block_bytes()));
        let mut found = 0;
        for ((key, tokens), bytes) in blocks {
            if !self.get_block(key, tokens, bytes).is_hit() {
                break;
            }
            found += 1;
        }
        Ok(found)
    }

    /// Stores blocks of a sequence.
    ///
    /// # Errors
    ///
    /// [`PutError`]; the blocks before the one that failed are kept.
    pub fn put_run(&self, keys: &[Key], tokens: &[Token], bytes: &[u8]) -> Result<PutRun, PutError> {
        self.check_lengths(keys.len(), tokens.len(), bytes.len())?;
        let blocks = keys.iter().zip(tokens.chunks(self.layout.block_size()));
        let mut run = PutRun::default();
        for ((key, tokens), bytes) in blocks.zip(bytes.chunks(self.layout.block_bytes())) {
            match self.put_block(key, tokens, bytes, None)? {
                Put::Stored => run.stored += 1,
                Put::Present => run.present += 1,
                Put::InFlight => run.in_flight += 1,
                Put::Collision => run.collisions += 1,
            }
        }
        Ok(run)
    }
}
