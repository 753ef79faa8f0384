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
    /// The region had the block already.
    Present,
    /// Another thread or process is storing the block.
    InFlight,
    /// A block of other tokens has the same hash, and stays.
    Collision,
}

/// The result of reserving room for a block.
#[derive(Debug)]
#[must_use]
pub enum Reserve<'r> {
    /// Room for the block, to be filled.
    Room(Reservation<'r>),
    /// The block needs no room: it is as [`Put`] says, which is never [`Stored`](Put::Stored).
    Not(Put),
}

/// Why a block could not be stored. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The arguments are not those of a whole block.
    #[error(transparent)]
    Lengths(#[from] ReadError),
    /// All entries that were tried are in use: continue without, or try again later.
    #[error("no free entry: {in_flight} of {capacity} were tried, and all are being written")]
    Full {
        /// Entries that were looked at; blocks are being put into all of them.
        in_flight: usize,
        /// Blocks of the region.
        capacity: usize,
    },
    /// The process is a fork of the one that opened the region: open it in the child process,
    /// because what it writes needs an owner.
    #[error("the region was opened by process {opener}, this is its fork {process}: open it again after a fork")]
    Forked {
        /// The process that opened the region.
        opener: u32,
        /// The process that asks.
        process: u32,
    },
}

/// A reserved entry that one thread fills: no other thread or process reads or writes it until it
/// is published.
///
/// Dropped, it gives its room back. So does the next process that looks for room if this one is killed.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'r> {
    region: &'r Region,
    claimed: Option<Claimed<'r>>,
}

impl Region {
    /// Stores a block until it is evicted.
    ///
    /// Lock-free: never waits for another process. If the region is full, a block that was not used for long makes
    /// room.
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

    /// Stores a block that expires after `time_to_live`. A block that is there keeps its own.
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
    /// Progress as of [`put`](Self::put).
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

    /// Removes a block. True if it was there. Wait-free; nothing in a forked child.
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

    /// Claims an entry for a block and lets a cell lead to it, unless the block needs no room.
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
        // Relaxed: it decides what is evicted, no more.
        claimed.write_record(key, tokens, expires, self.clock().load(Relaxed));
        let entry = claimed.entry();
        if self.index().insert(key.hash, entry.number(), |other| self.entry(other).live_hash()) {
            return Ok(Ok(claimed));
        }
        claimed.give_back();
        Ok(Err(Put::InFlight))
    }

    /// Whether a block needs no room, and why.
    fn present(&self, key: &Key, tokens: &[Token]) -> Option<Put> {
        match self.find(key, tokens) {
            Ok(_) => Some(Put::Present),
            Err(Miss::OtherTokens) => Some(Put::Collision),
            Err(Miss::BeingWritten) if !self.recover_writers(key) => Some(Put::InFlight),
            Err(_) => None,
        }
    }

    /// Gives back what dead processes hold that began to put a block. False if none did.
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
    /// Writes a part of the block, from byte `at` on. Each byte has to be written: what is not holds what stood there
    /// before. In a forked child nothing is written.
    ///
    /// # Panics
    ///
    /// If it goes beyond the block.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let room = self.region.layout.block_bytes();
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes from byte {at} on, in a block of {room}", bytes.len());
        if let Some(claimed) = self.claimed.as_ref().filter(|_| self.region.is_own()) {
            claimed.write(at, bytes);
        }
    }

    /// The first byte of the block, at a multiple of 64, to be written by a device or through atomics until the
    /// reservation is published or dropped: readers of what stood there before may read it meanwhile.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.claimed.as_ref().map_or(std::ptr::null_mut(), |claimed| claimed.entry().address())
    }

    /// Publishes the block: all processes can read it. A device has to be done with it.
    pub fn publish(mut self) {
        let claimed = self.claimed.take().filter(|_| self.region.is_own());
        if claimed.is_some_and(|claimed| claimed.publish(self.region.boot)) {
            count(&self.region.counts.stored);
        }
    }
}

impl Drop for Reservation<'_> {
    /// Gives the room back. In a forked child it is the parent's.
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed.take().filter(|_| self.region.is_own()) {
            self.region.empty(claimed);
        }
    }
}

/// The moment at which a time to live that begins now is over.
pub(crate) fn expiry(time_to_live: Duration) -> u64 {
    let millis = u64::try_from(time_to_live.as_millis()).unwrap_or(NEVER);
    process::now().saturating_add(millis).min(NEVER - 1)
}
