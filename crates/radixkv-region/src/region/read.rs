//! Lookups: finding blocks and copying them out of the region.

use super::{Region, age, count};
use crate::{
    counts::Miss,
    entry::Entry,
    key::{Key, Token},
    state::{Kind, State},
    sync::Relaxed,
};

/// The result of looking up a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Get {
    /// The buffer holds the block.
    Hit,
    /// The block was not found; the content of the buffer is unspecified.
    Miss(Miss),
}

impl Get {
    /// Whether the block was found.
    pub fn is_hit(self) -> bool {
        self == Self::Hit
    }
}

/// Why a lookup was refused: the arguments do not fit the region's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The number of tokens is not one block per key.
    #[error("{got} tokens given, {expected} expected")]
    Tokens {
        /// Tokens of one block per key.
        expected: usize,
        /// Tokens that were passed.
        got: usize,
    },
    /// The buffer does not have the size of one block per key.
    #[error("{got} bytes given, {expected} expected")]
    Bytes {
        /// Bytes of one block per key.
        expected: usize,
        /// Bytes that were passed.
        got: usize,
    },
}

/// The address of a block, for a device that copies it.
///
/// The copy is valid only if [`is_intact`](Self::is_intact) returns true afterwards: until then
/// another process may put another block there.
#[derive(Debug, Clone, Copy)]
pub struct Source<'r> {
    entry: Entry<'r>,
    state: State,
    bytes: usize,
}

impl Region {
    /// Copies a block into `bytes`, if the region holds it.
    ///
    /// The tokens of the stored block are compared with `tokens`: another block with the same hash
    /// is a miss. Wait-free. Writes to the region only if the block's last use was long ago.
    ///
    /// # Errors
    ///
    /// [`ReadError`], for tokens or bytes that are not one block.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use radixkv_region::{Get, Layout, Memory, Miss, Region};
    /// # let layout = Layout::new(2, 4, 8);
    /// # let region = Region::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?;
    /// let key = layout.chain(b"tenant").next(&[1, 2]);
    /// region.put(&key, &[1, 2], b"abcd")?;
    /// let mut bytes = [0; 4];
    /// assert!(region.get_into(&key, &[1, 2], &mut bytes)?.is_hit());
    /// assert_eq!(&bytes, b"abcd");
    /// // The tokens decide, not the hash.
    /// assert_eq!(region.get_into(&key, &[1, 3], &mut bytes)?, Get::Miss(Miss::OtherTokens));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into(&self, key: &Key, tokens: &[Token], bytes: &mut [u8]) -> Result<Get, ReadError> {
        self.check_lengths(1, tokens.len(), bytes.len())?;
        Ok(self.get_block(key, tokens, bytes))
    }

    /// Whether the region holds a block. Wait-free; counts neither as a use nor as a hit or miss.
    ///
    /// False for tokens that are not one block.
    pub fn contains(&self, key: &Key, tokens: &[Token]) -> bool {
        tokens.len() == self.layout.block_size() && self.find(key, tokens).is_ok()
    }

    /// Whether the region seems to hold a block that has not expired: its tokens are not compared.
    /// Wait-free; counts neither as a use nor as a hit or miss.
    pub fn may_contain(&self, key: &Key) -> bool {
        let mut entries = self.index().candidates(key.hash).map(|number| self.entry(number));
        entries.any(|entry| entry.look().kind() == Kind::Ready && entry.hash() == key.hash && !entry.has_expired())
    }

    /// Finds the address of a block, so that a device can read it without an intermediate copy.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use radixkv_region::{Layout, Memory, Region};
    /// # let layout = Layout::new(2, 4, 8);
    /// # let region = Region::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?;
    /// # let key = layout.chain(b"tenant").next(&[1, 2]);
    /// # region.put(&key, &[1, 2], b"abcd")?;
    /// # fn copy_to_device(from: *const u8, bytes: usize) { assert_eq!((from as usize % 64, bytes), (0, 4)) }
    /// let source = region.locate(&key, &[1, 2]).expect("it was put");
    /// copy_to_device(source.as_ptr(), source.len());
    /// // When the device has copied:
    /// assert!(source.is_intact());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Wait-free. Counts as a hit or a miss, and as a use.
    ///
    /// # Errors
    ///
    /// [`Miss`]; [`Miss::Absent`] for tokens that are not one block.
    pub fn locate(&self, key: &Key, tokens: &[Token]) -> Result<Source<'_>, Miss> {
        let is_block = tokens.len() == self.layout.block_size();
        let found = if is_block { self.find(key, tokens) } else { Err(Miss::Absent) };
        self.count(found.as_ref().err().copied());
        found.map(|(entry, state)| {
            self.used(entry);
            Source { entry, state, bytes: self.layout.block_bytes() }
        })
    }

    pub(super) fn get_block(&self, key: &Key, tokens: &[Token], bytes: &mut [u8]) -> Get {
        let miss = match self.find(key, tokens) {
            Err(miss) => Some(miss),
            Ok((entry, state)) => {
                entry.copy_into(bytes);
                self.used(entry);
                (!entry.is_still(state)).then_some(Miss::Overwritten)
            }
        };
        self.count(miss);
        miss.map_or(Get::Hit, Get::Miss)
    }

    /// Finds the entry that holds a block. The caller confirms its reads with the returned state.
    pub(super) fn find(&self, key: &Key, tokens: &[Token]) -> Result<(Entry<'_>, State), Miss> {
        self.find_by(key.hash, |entry, state| entry.lacks(state, key, tokens, self.boot))
    }

    /// As [`find`](Self::find), with any comparison: `lacks` returns why an entry with the hash
    /// does not hold the block, or `None` if it does.
    pub(crate) fn find_by(
        &self,
        hash: [u64; 2],
        lacks: impl Fn(&Entry<'_>, State) -> Option<Miss>,
    ) -> Result<(Entry<'_>, State), Miss> {
        let mut miss = Miss::Absent;
        for number in self.index().candidates(hash) {
            let entry = self.entry(number);
            let state = entry.look();
            let kind = state.kind();
            if !matches!(kind, Kind::Ready | Kind::Writing) || entry.hash() != hash {
                continue;
            }
            if kind == Kind::Writing {
                miss = Miss::BeingWritten;
                continue;
            }
            let Some(reason) = lacks(&entry, state) else { return Ok((entry, state)) };
            if !entry.is_still(state) {
                miss = Miss::Overwritten;
                continue;
            }
            miss = reason;
            if matches!(reason, Miss::Expired | Miss::Damaged) && self.discard(entry, state) && reason == Miss::Expired
            {
                count(&self.counts.expired);
            }
        }
        Err(miss)
    }

    pub(super) fn check_lengths(&self, blocks: usize, tokens: usize, bytes: usize) -> Result<(), ReadError> {
        let [expected_tokens, expected_bytes] =
            [self.layout.block_size(), self.layout.block_bytes()].map(|len| len.saturating_mul(blocks));
        if tokens != expected_tokens {
            return Err(ReadError::Tokens { expected: expected_tokens, got: tokens });
        }
        if bytes != expected_bytes {
            return Err(ReadError::Bytes { expected: expected_bytes, got: bytes });
        }
        Ok(())
    }

    pub(crate) fn count(&self, miss: Option<Miss>) {
        match miss {
            None => count(&self.counts.hits),
            Some(miss) => self.counts.miss(miss),
        }
    }

    /// Records a use, if the last one was long ago, so that frequent uses do not write each time.
    /// The last use of the first blocks of a batch is ahead of the clock, and stays there.
    pub(crate) fn used(&self, entry: Entry<'_>) {
        // Relaxed: it only influences what is evicted.
        let now = self.clock().load(Relaxed);
        if age(entry.used(), now) > self.geometry.entries as i64 / 16 {
            entry.touch(now);
        }
    }
}

impl Source<'_> {
    /// The first byte of the block, aligned to 64 bytes. Valid until the region is closed. Only a
    /// device or atomics may read it: other processes may write there meanwhile.
    pub fn as_ptr(&self) -> *const u8 {
        self.entry.address()
    }

    /// Bytes of the block.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Always false: a block has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether all bytes read so far belong to the block.
    pub fn is_intact(&self) -> bool {
        self.entry.is_still(self.state)
    }
}
