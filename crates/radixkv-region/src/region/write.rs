//! Putting blocks and removing them.

use std::time::Duration;

use super::{ReadError, Region, count};
use crate::{
    counts::Miss,
    entry::{Claimed, NEVER},
    key::{Key, Token},
    process,
    state::{Kind, State},
    sync::Relaxed,
};

/// The result of storing a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The block can be read by all processes.
    Stored,
    /// The region already had the block.
    Present,
    /// Another thread or process is storing the block.
    InFlight,
    /// A block of other tokens has the same hash, and is kept.
    Collision,
}

/// The result of reserving room for a block.
#[derive(Debug)]
#[must_use]
pub enum Reserve<'r> {
    /// Room for the block, to be filled.
    Room(Reservation<'r>),
    /// The block needs no room: the [`Put`] says why, and is never [`Stored`](Put::Stored).
    Not(Put),
}

/// Why a block could not be stored. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The lengths of the arguments are not one block per key.
    #[error(transparent)]
    Lengths(#[from] ReadError),
    /// All entries that were checked are being written: continue without the block, or try again
    /// later.
    #[error("no free entry: {in_flight} of {capacity} were tried, and all are being written")]
    Full {
        /// Entries that were checked; all of them are being written.
        in_flight: usize,
        /// Blocks of the region.
        capacity: usize,
    },
    /// The process is a fork of the one that opened the region. Open the region in the child as
    /// well: the entries that it writes need an owner.
    #[error("the region was opened by process {opener}, this is its fork {process}: open it again after a fork")]
    Forked {
        /// The process that opened the region.
        opener: u32,
        /// The calling process.
        process: u32,
    },
}

/// A reserved entry that one thread fills: no other thread or process reads or writes it until it
/// is published.
///
/// Dropping it gives the room back. If the process is killed, another process recovers the entry
/// when it needs room.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'r> {
    region: &'r Region,
    claimed: Option<Claimed<'r>>,
}

impl Region {
    /// Stores a block until it is evicted.
    ///
    /// Lock-free: never waits for another process. If the region is full, a block that was not used
    /// for a long time is evicted.
    ///
    /// # Errors
    ///
    /// [`PutError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use radixkv_region::{Layout, Memory, Put, Region};
    /// # let layout = Layout::new(2, 4, 8);
    /// # let region = Region::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?;
    /// let key = layout.chain(b"tenant").next(&[1, 2]);
    /// assert_eq!(region.put(&key, &[1, 2], b"abcd")?, Put::Stored);
    /// assert_eq!(region.put(&key, &[1, 2], b"abcd")?, Put::Present);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, key: &Key, tokens: &[Token], bytes: &[u8]) -> Result<Put, PutError> {
        self.check_lengths(1, tokens.len(), bytes.len())?;
        self.put_block(key, tokens, bytes, None)
    }

    /// Stores a block that expires after `time_to_live`. A block that is already stored keeps its
    /// own expiry.
    ///
    /// # Errors
    ///
    /// [`PutError`].
    pub fn put_expiring(
        &self,
        key: &Key,
        tokens: &[Token],
        bytes: &[u8],
        time_to_live: Duration,
    ) -> Result<Put, PutError> {
        self.check_lengths(1, tokens.len(), bytes.len())?;
        self.put_block(key, tokens, bytes, Some(time_to_live))
    }

    /// Reserves room for a block, to be filled in place.
    ///
    /// Progress as for [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// [`PutError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use radixkv_region::{Layout, Memory, Region, Reserve};
    /// # let layout = Layout::new(2, 4, 8);
    /// # let region = Region::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?;
    /// let key = layout.chain(b"tenant").next(&[1, 2]);
    /// if let Reserve::Room(mut room) = region.reserve(&key, &[1, 2], None)? {
    ///     room.write(0, b"ab");
    ///     room.write(2, b"cd");
    ///     room.publish();
    /// }
    /// assert!(region.contains(&key, &[1, 2]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(
        &self,
        key: &Key,
        tokens: &[Token],
        time_to_live: Option<Duration>,
    ) -> Result<Reserve<'_>, PutError> {
        self.check_lengths(1, tokens.len(), self.layout.block_bytes())?;
        Ok(match self.claim(key, tokens, time_to_live)? {
            Ok(claimed) => Reserve::Room(Reservation { region: self, claimed: Some(claimed) }),
            Err(there) => Reserve::Not(there),
        })
    }

    /// Removes a block. True if the region held it. Wait-free; does nothing in a forked child.
    pub fn remove(&self, key: &Key) -> bool {
        let entries = self.index().candidates(key.hash).map(|number| self.entry(number));
        let removed = entries.filter(|entry| {
            let state = entry.look();
            state.kind() == Kind::Ready && entry.hash() == key.hash && self.discard(*entry, state)
        });
        removed.count() > 0
    }

    pub(super) fn put_block(
        &self,
        key: &Key,
        tokens: &[Token],
        bytes: &[u8],
        time_to_live: Option<Duration>,
    ) -> Result<Put, PutError> {
        let claimed = match self.claim(key, tokens, time_to_live)? {
            Ok(claimed) => claimed,
            Err(there) => return Ok(there),
        };
        claimed.write(0, bytes);
        if claimed.publish(self.boot) {
            count(&self.counts.stored);
        }
        Ok(Put::Stored)
    }

    /// Claims an entry for a block and writes a cell that leads to it, unless the block needs no
    /// room.
    fn claim(
        &self,
        key: &Key,
        tokens: &[Token],
        time_to_live: Option<Duration>,
    ) -> Result<Result<Claimed<'_>, Put>, PutError> {
        if !self.is_own() {
            return Err(PutError::Forked { opener: self.own.pid(), process: std::process::id() });
        }
        if let Some(there) = self.present(key, tokens) {
            return Ok(Err(there));
        }
        let expires = time_to_live.map_or(NEVER, expiry);
        let claimed = self.make_room().ok_or_else(|| self.full())?;
        // Relaxed: it only influences what is evicted.
        claimed.write_record(key, tokens, expires, self.clock().load(Relaxed));
        let entry = claimed.entry();
        if self.index().insert(key.hash, entry.number(), |other| self.entry(other).live_hash()) {
            return Ok(Ok(claimed));
        }
        self.release(claimed);
        Ok(Err(Put::InFlight))
    }

    /// Why a block needs no room; `None` if it needs room.
    fn present(&self, key: &Key, tokens: &[Token]) -> Option<Put> {
        match self.find(key, tokens) {
            Ok(_) => Some(Put::Present),
            Err(Miss::OtherTokens) => Some(Put::Collision),
            Err(Miss::BeingWritten) if !self.recover_writers(key) => Some(Put::InFlight),
            Err(_) => None,
        }
    }

    /// Recovers the dead processes among those that are writing a block with this hash. False if no
    /// entry was recovered.
    fn recover_writers(&self, key: &Key) -> bool {
        let states = self.index().candidates(key.hash).map(|number| self.entry(number).look());
        let writers = states.filter(|state| state.kind() == Kind::Writing).map(State::slot);
        writers.map(|slot| self.recover_slot(slot)).sum::<usize>() > 0
    }

    fn full(&self) -> PutError {
        let capacity = self.geometry.entries;
        PutError::Full { in_flight: self.looks().min(capacity), capacity }
    }
}

impl Reservation<'_> {
    /// Writes a part of the block, from byte `at` on. Every byte has to be written: other bytes
    /// keep the values of the previous block. Does nothing in a forked child.
    ///
    /// # Panics
    ///
    /// If the part extends beyond the block.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let room = self.region.layout.block_bytes();
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes from byte {at} on, in a block of {room}", bytes.len());
        if let Some(claimed) = self.claimed.as_ref().filter(|_| self.region.is_own()) {
            claimed.write(at, bytes);
        }
    }

    /// The first byte of the block, aligned to 64 bytes. Only a device or atomics may write it,
    /// until the reservation is published or dropped: readers of the previous block may read it
    /// meanwhile.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.claimed.as_ref().map_or(std::ptr::null_mut(), |claimed| claimed.entry().address())
    }

    /// Publishes the block: all processes can read it. A device must have finished writing.
    pub fn publish(mut self) {
        let claimed = self.claimed.take().filter(|_| self.region.is_own());
        if claimed.is_some_and(|claimed| claimed.publish(self.region.boot)) {
            count(&self.region.counts.stored);
        }
    }
}

impl Drop for Reservation<'_> {
    /// Gives the room back. In a forked child it does nothing: the room belongs to the parent.
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed.take().filter(|_| self.region.is_own()) {
            self.region.empty(claimed);
        }
    }
}

/// The end of a time to live that begins now.
pub(crate) fn expiry(time_to_live: Duration) -> u64 {
    let millis = u64::try_from(time_to_live.as_millis()).unwrap_or(NEVER);
    process::now().saturating_add(millis).min(NEVER - 1)
}
