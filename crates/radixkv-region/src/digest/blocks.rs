//! The verbs of a namespace: batches of blocks, processed on the caller's thread. They use entries,
//! index and room of `region`; `charge` compares puts with quotas.

use std::{sync::Arc, time::Duration};

use super::{
    DigestRegion,
    charge::{Both, Charge, Kept},
    key::DigestKey,
    namespace::Namespace,
    recent::Recent,
    sealed::Sealer,
    sum,
};
use crate::{
    counts::Miss,
    entry::{Claimed, Entry, NEVER, PARENT},
    key::Key,
    memory::WORD,
    region::{Get, Region, age, expiry},
    seal::{MOST_SEALS, Seal},
    state::{Kind, State},
    sync::{AtomicU64, Relaxed, gauge},
};

/// A namespace whose quota is below one in this many of the region's entries searches its recent
/// entries first for a block to evict; others sweep the region first.
const SPARSE: u64 = 256;

/// Keys per batch of prefetches.
const AHEAD: usize = 32;

/// Whether the region holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The region does not hold the block.
    Absent,
    /// The region holds the block.
    Stored,
    /// A process is storing the block.
    BeingWritten,
}

/// The result of storing a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestPut {
    /// The block can be read by all processes.
    Stored,
    /// The region already had a block of that key, which is kept, whatever its bytes are.
    Present,
    /// Another thread or process is storing the block.
    InFlight,
    /// All entries that were checked are being written.
    NoRoom,
    /// The key of an encrypted namespace has reached its maximum number of seals: use a new key and
    /// a new namespace.
    KeyExhausted,
    /// The namespace or the process has reached its quota, and none of its blocks was found to
    /// evict.
    OverQuota,
}

/// Why a batch was refused. None of it was processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The number of buffers is not the number of keys.
    #[error("{buffers} buffers given for {keys} keys")]
    Buffers {
        /// Keys of the batch.
        keys: usize,
        /// Buffers of the batch.
        buffers: usize,
    },
    /// The length of a key is not that of the namespace's keys.
    #[error("key {index} of the batch has {got} bytes, keys of the namespace have {expected}")]
    KeyBytes {
        /// The key's index in the batch.
        index: usize,
        /// Its bytes.
        got: usize,
        /// Bytes of a key of the namespace.
        expected: usize,
    },
    /// The length of a buffer is not that of a block.
    #[error("buffer {index} of the batch has {got} bytes, blocks of the namespace have {expected}")]
    BufferBytes {
        /// The buffer's index in the batch.
        index: usize,
        /// Its bytes.
        got: usize,
        /// Bytes of a block of the namespace.
        expected: usize,
    },
    /// Blocks of an encrypted namespace cannot be read or written in place.
    #[error("blocks of an encrypted namespace cannot be read or written in place: use get_into and put_from")]
    Encrypted,
    /// The process is a fork of the one that opened the region: open it in the child process.
    #[error("the region was opened by process {opener}, this is its fork {process}: open it again after a fork")]
    Forked {
        /// The process that opened the region.
        opener: u32,
        /// The calling process.
        process: u32,
    },
}

/// An open namespace of a [`DigestRegion`]: its blocks can be looked up, read and stored, in
/// batches.
///
/// | verb | progress | writes to the region |
/// |---|---|---|
/// | [`exists`](Self::exists), [`prefix`](Self::prefix) | wait-free: two buckets for each key | nothing, except that expired or damaged blocks are removed |
/// | [`get_into`](Self::get_into), [`locate`](Self::locate) | the same, and a copy | when the block was used |
/// | [`put_from`](Self::put_from), [`reserve`](Self::reserve) | lock-free: checks at most 2,048 entries for each block, or 5,120 if quotas are reached, and a copy | one entry for each block |
/// | [`remove`](Self::remove) | lock-free | one entry for each block |
/// | [`clear`](Self::clear) | lock-free: checks all entries | those of the namespace |
#[derive(Debug)]
pub struct DigestBlocks {
    pub(super) shared: Arc<DigestRegion>,
    number: u64,
    block_bytes: usize,
    key_bytes: usize,
    has_checksums: bool,
    sealer: Option<Sealer>,
    recent: Recent,
}

impl DigestBlocks {
    pub(super) fn new(shared: Arc<DigestRegion>, number: u64, namespace: &Namespace) -> Self {
        Self {
            shared,
            number,
            block_bytes: namespace.block_bytes(),
            key_bytes: namespace.key_bytes(),
            has_checksums: namespace.has_checksums,
            sealer: None,
            recent: Recent::default(),
        }
    }

    /// The region.
    pub fn region(&self) -> &Arc<DigestRegion> {
        &self.shared
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Limits how many blocks the namespace may have, over all processes; 0 means no limit, which
    /// is the default. A put beyond the limit evicts a block of the namespace.
    pub fn set_quota(&self, blocks: u64) {
        if let Some(quota) = self.inner().table().quota(self.number) {
            // Relaxed: a number that is only compared.
            quota.store(blocks, Relaxed);
        }
    }

    /// Whether the region holds the blocks of `keys`. Counts neither as a use nor as hits or
    /// misses.
    ///
    /// # Errors
    ///
    /// [`BatchError::KeyBytes`].
    pub fn exists(&self, keys: &[DigestKey]) -> Result<Vec<Presence>, BatchError> {
        self.check_keys(keys)?;
        let mut presences = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AHEAD) {
            self.fetch_ahead(keys);
            presences.extend(keys.iter().map(|key| self.presence(key)));
        }
        Ok(presences)
    }

    /// How many of the keys' blocks the region holds before the first missing one. Counts neither
    /// as a use nor as hits or misses.
    ///
    /// # Errors
    ///
    /// [`BatchError::KeyBytes`].
    pub fn prefix(&self, keys: &[DigestKey]) -> Result<usize, BatchError> {
        self.check_keys(keys)?;
        let mut found = 0;
        for keys in keys.chunks(AHEAD) {
            self.fetch_ahead(keys);
            let stored = keys.iter().take_while(|key| self.presence(key) == Presence::Stored).count();
            found += stored;
            if stored < keys.len() {
                break;
            }
        }
        Ok(found)
    }

    /// Copies blocks into buffers, each of which has the size of a block. After a miss the content
    /// of a buffer is unspecified.
    ///
    /// # Errors
    ///
    /// [`BatchError`].
    pub fn get_into(&self, keys: &[DigestKey], buffers: &mut [&mut [u8]]) -> Result<Vec<Get>, BatchError> {
        self.check_keys(keys)?;
        self.check_buffers(keys, buffers.iter().map(|buffer| buffer.len()))?;
        let gets: Vec<_> = keys.iter().zip(buffers).map(|(key, buffer)| self.get(key, buffer)).collect();
        let hits = gets.iter().filter(|get| get.is_hit()).count() as u64;
        self.inner().account(self.inner().slot()).add(hits, gets.len() as u64 - hits, 0);
        Ok(gets)
    }

    /// Stores the blocks in buffers, each of which has the size of a block, until they are evicted
    /// or their time to live ends.
    ///
    /// A block that is already stored keeps its bytes and its time to live. Later blocks of a batch
    /// are evicted before earlier ones.
    ///
    /// # Errors
    ///
    /// [`BatchError`].
    pub fn put_from(
        &self,
        keys: &[DigestKey],
        buffers: &[&[u8]],
        time_to_live: Option<Duration>,
    ) -> Result<Vec<DigestPut>, BatchError> {
        self.check_keys(keys)?;
        self.check_buffers(keys, buffers.iter().map(|buffer| buffer.len()))?;
        self.check_process()?;
        let expires = time_to_live.map_or(NEVER, expiry);
        let after = (0..keys.len() as u64).rev();
        let puts = keys.iter().zip(buffers).zip(after);
        let puts: Vec<_> = puts.map(|((key, bytes), after)| self.put(key, bytes, expires, after)).collect();
        let stored = puts.iter().filter(|put| **put == DigestPut::Stored).count() as u64;
        self.note_stored(stored);
        Ok(puts)
    }

    /// Removes blocks. Returns how many it removed; does nothing in a forked child.
    ///
    /// # Errors
    ///
    /// [`BatchError::KeyBytes`].
    pub fn remove(&self, keys: &[DigestKey]) -> Result<usize, BatchError> {
        self.check_keys(keys)?;
        Ok(keys.iter().filter(|key| self.remove_block(key)).count())
    }

    /// Removes a block with all its copies: two puts at once may store it twice.
    fn remove_block(&self, key: &DigestKey) -> bool {
        let (region, hash) = (self.inner(), key.hash(self.number));
        let entries = region.index().candidates(hash).map(|number| region.entry(number));
        let removed = entries.filter(|entry| {
            let state = entry.look();
            let is_meant = state.kind() == Kind::Ready
                && entry.hash() == hash
                && entry.lacks_digest(state, key, self.number, region.boot()).is_none();
            is_meant && region.discard(*entry, state)
        });
        removed.count() > 0
    }

    /// Removes all blocks of the namespace. Returns how many; does nothing in a forked child.
    pub fn clear(&self) -> usize {
        self.inner().discard_all(|entry| entry.namespace() == self.number)
    }

    pub(super) fn inner(&self) -> &Region {
        &self.shared.region
    }

    pub(super) fn find(&self, key: &DigestKey) -> Result<(Entry<'_>, State), Miss> {
        let (region, number) = (self.inner(), self.number);
        region.find_by(key.hash(number), |entry, state| entry.lacks_digest(state, key, number, region.boot()))
    }

    pub(super) fn check_keys(&self, keys: &[DigestKey]) -> Result<(), BatchError> {
        match keys.iter().position(|key| key.len() != self.key_bytes) {
            None => Ok(()),
            Some(index) => Err(BatchError::KeyBytes { index, got: keys[index].len(), expected: self.key_bytes }),
        }
    }

    pub(super) fn check_process(&self) -> Result<(), BatchError> {
        let (opener, process) = (self.inner().opener(), std::process::id());
        if opener == process { Ok(()) } else { Err(BatchError::Forked { opener, process }) }
    }

    /// Whether blocks may be read and written in place.
    pub(super) fn check_in_place(&self) -> Result<(), BatchError> {
        if self.sealer.is_some() { Err(BatchError::Encrypted) } else { Ok(()) }
    }

    #[cfg(feature = "encryption")]
    pub(super) fn sealed_by(self, sealer: Sealer) -> Self {
        Self { sealer: Some(sealer), ..self }
    }

    pub(super) fn note_stored(&self, stored: u64) {
        self.inner().account(self.inner().slot()).add(0, 0, stored);
        self.inner().count_stored(stored);
    }

    pub(super) fn has_checksums(&self) -> bool {
        self.has_checksums
    }

    /// The words that hold a block's bytes.
    pub(super) fn words<'a>(&self, entry: &Entry<'a>) -> &'a [AtomicU64] {
        &entry.payload()[..self.block_bytes.div_ceil(WORD)]
    }

    pub(super) fn seed(&self, key: &DigestKey) -> u64 {
        key.seed(self.number)
    }

    fn check_buffers(
        &self,
        keys: &[DigestKey],
        buffers: impl ExactSizeIterator<Item = usize>,
    ) -> Result<(), BatchError> {
        if buffers.len() != keys.len() {
            return Err(BatchError::Buffers { keys: keys.len(), buffers: buffers.len() });
        }
        let expected = self.block_bytes;
        match buffers.enumerate().find(|(_, got)| *got != expected) {
            None => Ok(()),
            Some((index, got)) => Err(BatchError::BufferBytes { index, got, expected }),
        }
    }

    /// Prefetches what lookups of several keys will compare. The loads are independent, so the
    /// processor waits for memory only once.
    fn fetch_ahead(&self, keys: &[DigestKey]) {
        let region = self.inner();
        let mut entries = [None; AHEAD];
        for (entry, key) in entries.iter_mut().zip(keys) {
            *entry = region.index().candidates(key.hash(self.number)).next();
        }
        for entry in entries.into_iter().flatten().map(|number| region.entry(number)) {
            std::hint::black_box((entry.used(), entry.namespace(), entry.checksum()));
        }
    }

    fn presence(&self, key: &DigestKey) -> Presence {
        match self.find(key) {
            Ok(_) => Presence::Stored,
            Err(Miss::BeingWritten) => Presence::BeingWritten,
            Err(_) => Presence::Absent,
        }
    }

    fn get(&self, key: &DigestKey, bytes: &mut [u8]) -> Get {
        let miss = match self.find(key) {
            Err(miss) => Some(miss),
            Ok((entry, state)) => {
                self.inner().used(entry);
                self.copy_out(key, entry, state, bytes).err()
            }
        };
        self.inner().count(miss);
        miss.map_or(Get::Hit, Get::Miss)
    }

    fn copy_out(&self, key: &DigestKey, entry: Entry<'_>, state: State, bytes: &mut [u8]) -> Result<(), Miss> {
        let (words, seal) = (self.words(&entry), entry.seal_of_bytes());
        let is_right = if self.has_checksums {
            let expected = entry.checksum();
            sum::read(words, bytes, self.seed(key)) == expected
        } else {
            crate::copy::read(words, bytes);
            true
        };
        if !entry.is_still(state) {
            return Err(Miss::Overwritten);
        }
        if !is_right {
            // The block is removed so that it is stored again.
            self.inner().discard(entry, state);
            return Err(Miss::WrongChecksum);
        }
        self.sealer.as_ref().map_or(Ok(()), |sealer| sealer.open(key, bytes, &seal))
    }

    fn put(&self, key: &DigestKey, bytes: &[u8], expires: u64, after: u64) -> DigestPut {
        let claimed = match self.claim(key, expires, after) {
            Ok(claimed) => claimed,
            Err(there) => return there,
        };
        if !self.write(&claimed, key, bytes) {
            self.inner().empty(claimed);
            return DigestPut::KeyExhausted;
        }
        claimed.publish(self.inner().boot());
        DigestPut::Stored
    }

    /// Writes the bytes of a block, encrypted if the namespace is. False if the key cannot seal any
    /// more.
    fn write(&self, claimed: &Claimed<'_>, key: &DigestKey, bytes: &[u8]) -> bool {
        let copy = |bytes: &[u8]| {
            if self.has_checksums {
                claimed.write_checksum(sum::write(claimed.entry().payload(), bytes, self.seed(key)));
            } else {
                claimed.write(0, bytes);
            }
        };
        let Some(sealer) = &self.sealer else {
            copy(bytes);
            return true;
        };
        // Relaxed: a number that is only compared.
        let seals = self.inner().table().seals(self.number).map_or(0, |seals| seals.fetch_add(1, Relaxed));
        let sealed = |bytes: &[u8], seal: &Seal| {
            claimed.write_seal(seal);
            copy(bytes);
        };
        seals < MOST_SEALS && sealer.seal(key, bytes, sealed).is_some()
    }

    /// Claims an entry for a block that is not stored, and writes a cell that leads to it. `after`
    /// is the number of blocks after it in its batch.
    pub(super) fn claim(&self, key: &DigestKey, expires: u64, after: u64) -> Result<Claimed<'_>, DigestPut> {
        match self.find(key) {
            Ok(_) => return Err(DigestPut::Present),
            Err(Miss::BeingWritten) => return Err(DigestPut::InFlight),
            Err(_) => {}
        }
        // Before a block is evicted for it.
        if self.is_exhausted() {
            return Err(DigestPut::KeyExhausted);
        }
        let region = self.inner();
        // Relaxed: a number that is only compared.
        let quota = region.table().quota(self.number).map_or(0, |quota| quota.load(Relaxed));
        let quotas = [quota, self.shared.quota.load(gauge::Relaxed)];
        let charge = region.charge_of(self.number);
        let reached = region.charge(charge, quotas);
        let Some(claimed) = self.make_room(charge, reached, quotas) else {
            region.adjust(charge, reached.map(|is_reached| !is_reached), -1);
            return Err(if reached == [false; 2] { DigestPut::NoRoom } else { DigestPut::OverQuota });
        };
        let hash = key.hash(self.number);
        let record = Key { hash, parent: region.owner(), namespace: self.number };
        // Relaxed: it only influences what is evicted.
        claimed.write_fields(&record, expires, region.clock().load(Relaxed).wrapping_add(2 * after));
        claimed.write_label(key, charge);
        let entry = claimed.entry();
        region.moved_since_charged(&entry);
        if region.index().insert(hash, entry.number(), |other| region.entry(other).live_hash()) {
            self.recent.push(entry.number());
            return Ok(claimed);
        }
        region.uncharge(&claimed, Kept::default());
        region.release(claimed);
        Err(DigestPut::InFlight)
    }

    /// Whether the key of an encrypted namespace may seal no more.
    fn is_exhausted(&self) -> bool {
        let Some(sealer) = &self.sealer else { return false };
        // Relaxed: a number that is only compared.
        let seals = self.inner().table().seals(self.number).map_or(0, |seals| seals.load(Relaxed));
        seals.max(sealer.seals()) >= MOST_SEALS
    }

    /// Claims an entry; if a quota is reached, one whose block belongs to the namespace or process
    /// that has reached it, and whose charge the put takes over.
    fn make_room(&self, charge: Charge, reached: Both, quotas: [u64; 2]) -> Option<Claimed<'_>> {
        let region = self.inner();
        if reached == [false; 2] {
            return region.sweep();
        }
        let room = self.displace_of(charge, reached, quotas[0]).or_else(|| {
            // No block belongs to both: one of each is evicted.
            let of_process =
                if reached == [true; 2] { self.displace_of(charge, [false, true], quotas[0]) } else { None };
            region.release(of_process?);
            let room = self.displace_of(charge, [true, false], quotas[0]);
            if room.is_none() {
                region.adjust(charge, [false, true], -1);
            }
            room
        })?;
        // A quota was lowered, or a count was too small after a kill: one block more goes.
        let [of_namespace, of_process] = region.uncharge_excess(charge, quotas);
        for excess in [[of_namespace, false], [false, of_process]].into_iter().filter(|excess| *excess != [false; 2]) {
            match self.displace_of(charge, excess, quotas[0]) {
                Some(more) => region.release(more),
                None => region.adjust(charge, excess, 1),
            }
        }
        Some(room)
    }

    /// Claims an entry whose block belongs to the namespace, to the process, or to both, and takes
    /// over those charges.
    fn displace_of(&self, by: Charge, counts: Both, quota: u64) -> Option<Claimed<'_>> {
        let (region, owner) = (self.inner(), self.inner().owner());
        let ([of_namespace, of_process], kept) = (counts, Kept { by, counts });
        let is_meant = |entry: &Entry<'_>| {
            (!of_namespace || entry.namespace() == self.number) && (!of_process || entry.read(PARENT) == owner)
        };
        let hand = region.table().hand(self.number)?;
        let is_sparse = quota.saturating_mul(SPARSE) < region.layout().capacity() as u64;
        let recent = || self.displace_recent(&is_meant, kept);
        let swept = || region.sweep_blocks(hand, &is_meant, kept);
        if is_sparse { recent().or_else(swept) } else { swept().or_else(recent) }
    }

    /// Claims one of the entries that this process stored most recently, and takes over its charges
    /// in `kept`.
    fn displace_recent(&self, is_meant: &dyn Fn(&Entry<'_>) -> bool, kept: Kept) -> Option<Claimed<'_>> {
        let region = self.inner();
        // Relaxed: it only influences what is evicted.
        let now = region.clock().load(Relaxed);
        let age_of = |number: usize| {
            let entry = region.entry(number);
            (entry.look().kind() == Kind::Ready && is_meant(&entry)).then(|| age(entry.used(), now))
        };
        let entry = region.entry(self.recent.take_oldest(age_of)?);
        let seen = entry.look();
        (seen.kind() == Kind::Ready && is_meant(&entry)).then(|| region.displace(entry, seen, kept))?
    }
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;
    use crate::{DigestLayout, Memory};

    /// A block is stored twice if a cell becomes empty while two threads put it.
    #[test]
    fn both_copies_of_a_block_that_is_stored_twice_are_removed() {
        let layout = DigestLayout::new(8, 8);
        let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
        let region = Arc::new(DigestRegion::format(memory, &layout).expect("formatted"));
        let blocks = region.namespace(&Namespace::new("", 16, 8)).expect("opened");
        let [key, other] = [1, 2].map(|byte| DigestKey::new(&[byte; 16]).expect("a digest"));
        let hash = key.hash(blocks.number);
        let first = blocks.claim(&key, NEVER, 0).expect("room");
        blocks.inner().index().remove(hash, first.entry().number());
        let second = blocks.claim(&key, NEVER, 0).expect("room");
        assert!(blocks.inner().index().insert(hash, first.entry().number(), |_| None));
        for claimed in [first, second] {
            assert!(claimed.publish(blocks.inner().boot()));
        }
        assert_eq!(blocks.put_from(&[other], &[&[7; 8]], None), Ok(vec![DigestPut::Stored]));
        assert_eq!((region.stats().blocks, blocks.remove(&[key, key])), (3, Ok(1)));
        assert_eq!(blocks.exists(&[key, other]), Ok(vec![Presence::Absent, Presence::Stored]));
        assert_eq!(region.stats().blocks, 1);
    }
}
