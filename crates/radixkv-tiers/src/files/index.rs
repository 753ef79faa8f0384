//! The index of a file tier: the files of its folder, their eviction order, and the room that they
//! take. `store` changes it under its lock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

use crate::{key::BlockKey, worker::Use};

/// How many missing blocks are remembered.
const MAX_GONE: usize = 1 << 16;

/// The files of a folder; one thread at a time uses the index.
///
/// All objects of a folder take the same number of bytes, so the capacity is a number of files.
/// Files of another length are damaged, and count as if they were complete.
///
/// The least recently used file is evicted first. A use of a block also counts as a use of all
/// blocks before it in its sequence, because the block is useless without them; of one batch the
/// deepest block is evicted first.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<BlockKey, Entry>,
    order: BTreeMap<Rank, BlockKey>,
    /// Incremented by each use and each write.
    clock: u64,
    /// The ranks of files that are being written, in addition to `entries`.
    writing: BTreeSet<Rank>,
    /// The last batch that wrote a file, and the time of its first write.
    last_batch: Option<(u64, SystemTime)>,
    /// Blocks that were evicted, or that were not written because they would have been the first to
    /// be evicted; each with the batch at that time plus 1, or 0 before the first batch.
    gone: HashMap<BlockKey, u64>,
}

/// A file.
#[derive(Debug)]
struct Entry {
    rank: Rank,
    written: Written,
    /// The previous block in its sequence, if known from a use.
    parent: Option<BlockKey>,
    /// In milliseconds since 1970; 0: never, or not known.
    expires: u64,
}

/// The eviction order: the file with the smallest rank is evicted first. All ranks are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// 0 for a file that was found on opening the folder; otherwise the batch of the last use plus
    /// 1.
    batch: u64,
    number: Reverse<u32>,
    clock: u64,
}

/// When a file was written; different for each write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written(u64);

impl Index {
    /// Adds a file that was found in the folder, as the most recent of those found.
    pub(super) fn found(&mut self, key: BlockKey) {
        self.clock += 1;
        let rank = Rank { batch: 0, number: Reverse(0), clock: self.clock };
        self.place(key, Entry { rank, written: Written(self.clock), parent: None, expires: 0 });
    }

    /// Records a use of a file and of the files before it. Returns when the file was written;
    /// `None` if it is not in the index.
    pub(super) fn touch(&mut self, key: BlockKey, used: Use) -> Option<Written> {
        let rank = self.rank(used);
        let entry = self.entries.get_mut(&key)?;
        entry.parent = used.parent;
        let (written, rank) = (entry.written, rank.max(entry.rank));
        self.rerank(key, rank);
        self.touch_before(used);
        Some(written)
    }

    /// Adds a file that was written, or written again.
    pub(super) fn insert(&mut self, key: BlockKey, used: Use, expires: u64) {
        self.remove(key);
        self.gone.remove(&key);
        let rank = self.rank(used);
        self.place(key, Entry { rank, written: Written(rank.clock), parent: used.parent, expires });
    }

    /// The rank of a file that is used now.
    pub(super) fn rank(&mut self, used: Use) -> Rank {
        self.clock += 1;
        Rank { batch: used.batch.saturating_add(1), number: Reverse(used.number), clock: self.clock }
    }

    /// Records a use of the files before one in its sequence, up to those that were used in the
    /// same batch.
    pub(super) fn touch_before(&mut self, used: Use) {
        self.touch_from(used.parent, used);
        // The blocks in between may not be written yet.
        if let Some(before) = used.before {
            self.touch_from(Some(before.key), Use { number: before.number.saturating_add(1), ..used });
        }
    }

    /// Records a use of a file and of those before it; `used` is the use of the block after it.
    fn touch_from(&mut self, mut next: Option<BlockKey>, mut used: Use) {
        while let Some(key) = next {
            used.number = used.number.saturating_sub(1);
            let rank = self.rank(used);
            let Some(entry) = self.entries.get(&key).filter(|entry| entry.rank.batch < rank.batch) else { break };
            next = entry.parent;
            self.rerank(key, rank);
        }
    }

    /// The modification time for a file. It preserves the eviction order of one batch's files for
    /// the next process that opens the folder.
    pub(super) fn time_of(&mut self, used: Use) -> SystemTime {
        let time = match self.last_batch {
            Some((batch, time)) if used.batch <= batch => time,
            _ => self.last_batch.insert((used.batch, SystemTime::now())).1,
        };
        time.checked_sub(Duration::from_micros(used.number.into())).unwrap_or(time)
    }

    /// Whether a block before this one is known to be missing, so that this one is useless.
    ///
    /// A previous block that the same batch puts is not missing until a file is evicted or left out
    /// in this batch or a later one: another thread may not have begun to write it.
    pub(super) fn lacks_beginning(&self, used: Use) -> bool {
        let before = used.before.map(|before| before.key);
        let since = |key: BlockKey| self.gone.get(&key).copied();
        let of_batch = used.parent.filter(|&parent| Some(parent) != before).and_then(since);
        before.and_then(since).is_some() || of_batch.is_some_and(|since| since > used.batch)
    }

    /// Records that a block is missing, and whose use was the reason, if there was one.
    pub(super) fn leave_out(&mut self, key: BlockKey, used: Option<Use>) {
        if self.gone.len() >= MAX_GONE {
            self.gone.clear();
        }
        self.gone.insert(key, used.map_or(0, |used| used.batch.saturating_add(1)));
    }

    fn rerank(&mut self, key: BlockKey, rank: Rank) {
        if let Some(entry) = self.entries.get_mut(&key) {
            self.order.remove(&entry.rank);
            entry.rank = rank;
            self.order.insert(rank, key);
        }
    }

    fn place(&mut self, key: BlockKey, entry: Entry) {
        self.order.insert(entry.rank, key);
        self.entries.insert(key, entry);
    }

    /// When a file was written.
    pub(super) fn written(&self, key: BlockKey) -> Option<Written> {
        self.entries.get(&key).map(|entry| entry.written)
    }

    pub(super) fn remove(&mut self, key: BlockKey) {
        if let Some(entry) = self.entries.remove(&key) {
            self.order.remove(&entry.rank);
        }
    }

    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.entries.contains_key(&key)
    }

    /// When a file expires, in milliseconds since 1970; 0: never, or not known. `None` if it is not
    /// in the index.
    pub(super) fn expires(&self, key: BlockKey) -> Option<u64> {
        self.entries.get(&key).map(|entry| entry.expires)
    }

    pub(super) fn files(&self) -> usize {
        self.entries.len()
    }

    /// The number of files, including those that are being written.
    pub(super) fn taken(&self) -> usize {
        self.entries.len() + self.writing.len()
    }

    /// Reserves room for a file that is being written, which is not missing until that fails.
    pub(super) fn reserve(&mut self, key: BlockKey, rank: Rank) {
        self.gone.remove(&key);
        self.writing.insert(rank);
    }

    /// Ends a reservation; false if another file has taken its room meanwhile.
    pub(super) fn end_reservation(&mut self, rank: Rank) -> bool {
        self.writing.remove(&rank)
    }

    /// Takes the room of the lowest-ranked file that is being written, if it ranks below all
    /// existing files and below `new`. Returns whether it did.
    pub(super) fn displace(&mut self, new: Rank) -> bool {
        let first = self.oldest().map_or(new, |(rank, _)| rank.min(new));
        let displaced = self.writing.first().copied().filter(|writing| *writing < first);
        displaced.is_some_and(|writing| self.writing.remove(&writing))
    }

    /// The file that is evicted first.
    pub(super) fn oldest(&self) -> Option<(Rank, BlockKey)> {
        self.order.first_key_value().map(|(&rank, &key)| (rank, key))
    }
}

#[cfg(test)]
mod tests;
