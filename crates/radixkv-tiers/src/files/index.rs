//! The index of a file tier: the files of its folder, the puts in progress, their eviction order,
//! and the room that they take. `store` changes it under its lock.
//!
//! # Puts
//!
//! ```text
//! waiting --take, begin--> taken --reserve--> writing --publish--> (a file)
//!                            |                   |
//!                            +--no room, failed--+--displaced, failed--> missing
//! ```
//!
//! | state | in `entries` | has room | what ends it |
//! |---|---|---|---|
//! | taken | yes | no | its thread |
//! | writing | yes | yes | its thread, or a thread that needs the room |
//! | a file | yes | yes | eviction, removal, or the next put of the block |
//! | missing | no, but in `gone` | no | the next put of the block |
//!
//! - A put begins in the same critical section in which a thread takes it from the queue, and the
//!   queue is in order. So the index has every put of an earlier batch before a later batch begins:
//!   a later put or get raises the ranks of the blocks before it also while these are in progress,
//!   and does not take them for missing.
//! - All puts of a block and its file share one rank, which only increases until the block leaves
//!   the index. So a put that ends late undoes no later use.
//! - A put or a file gives its room only to a block of a higher rank, or, on a full tier, to the put
//!   that replaces the file. A put in state *writing* whose room was taken finds that when it has
//!   written its object, and does not publish it. Only a full disk takes files of any rank.
//! - A block is missing from the moment its last put or file leaves the index for lack of room or
//!   because of a failure, until its next put begins.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};

use crate::{key::BlockKey, worker::Use};

/// How many missing blocks are remembered.
const MAX_GONE: usize = 1 << 16;

/// The files of a folder and the puts in progress; one thread at a time uses the index.
///
/// All objects of a folder take the same number of bytes, so the capacity is a number of files.
/// Files of another length are damaged, and count as if they were complete.
///
/// The least recently used file is evicted first. A use of a block also counts as a use of all
/// blocks before it in its sequence, because the block is useless without them; of one batch the
/// deepest block is evicted first.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The blocks that have a file or a put in progress.
    entries: HashMap<BlockKey, Entry>,
    order: BTreeMap<Rank, BlockKey>,
    /// Incremented by each use and each write.
    clock: u64,
    /// The number of entries that have a file.
    files: usize,
    /// The puts in progress: at most one for each thread of the tier.
    puts: Vec<Put>,
    /// The last batch that wrote a file, and the time of its first write.
    last_batch: Option<(u64, SystemTime)>,
    /// Blocks that were evicted, or that were not written because they would have been the first to
    /// be evicted; each with the batch at that time plus 1, or 0 before the first batch.
    gone: HashMap<BlockKey, u64>,
}

/// A block that has a file, puts in progress, or both.
#[derive(Debug)]
struct Entry {
    rank: Rank,
    /// The previous block in its sequence, if known from a use.
    parent: Option<BlockKey>,
    file: Option<StoredFile>,
}

#[derive(Debug, Clone, Copy)]
struct StoredFile {
    written: Written,
    /// In milliseconds since 1970; 0: never, or not known.
    expires: u64,
}

/// A put in progress.
#[derive(Debug)]
struct Put {
    key: BlockKey,
    id: Written,
    has_room: bool,
}

/// The eviction order: the block with the smallest rank is evicted first. All ranks are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// 0 for a file that was found on opening the folder; otherwise the batch of the last use plus
    /// 1.
    batch: u64,
    number: Reverse<u32>,
    clock: u64,
}

/// Identifies a put and the file that it wrote; different for each put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written(u64);

impl Index {
    /// Adds a file that was found in the folder, as the most recent of those found.
    pub(super) fn found(&mut self, key: BlockKey) {
        self.clock += 1;
        let rank = Rank { batch: 0, number: Reverse(0), clock: self.clock };
        self.use_entry(key, rank, None).file = Some(StoredFile { written: Written(rank.clock), expires: 0 });
        self.files += 1;
    }

    /// Records a use of a block and of the blocks before it. Returns the put that wrote its file;
    /// `None` if it has no file.
    pub(super) fn touch(&mut self, key: BlockKey, used: Use) -> Option<Written> {
        let rank = self.rank(used);
        if !self.entries.contains_key(&key) {
            return None;
        }
        let file = self.use_entry(key, rank, used.parent).file;
        self.touch_before(used);
        file.map(|file| file.written)
    }

    /// Adds a put that a thread has taken; also a use of the block and of the blocks before it. The
    /// block is not missing until the put fails.
    pub(super) fn begin(&mut self, key: BlockKey, used: Use) -> Written {
        self.gone.remove(&key);
        let rank = self.rank(used);
        self.use_entry(key, rank, used.parent);
        self.touch_before(used);
        let id = Written(rank.clock);
        self.puts.push(Put { key, id, has_room: false });
        id
    }

    /// Gives room to a put.
    pub(super) fn reserve(&mut self, id: Written) {
        self.puts.iter_mut().filter(|put| put.id == id).for_each(|put| put.has_room = true);
    }

    /// Whether a put has room: false if a block of a higher rank has taken it.
    pub(super) fn has_room(&self, id: Written) -> bool {
        self.puts.iter().any(|put| put.id == id && put.has_room)
    }

    /// Ends a put whose object is now the block's file.
    pub(super) fn publish(&mut self, id: Written, expires: u64) {
        let Some(at) = self.puts.iter().position(|put| put.id == id) else { return };
        let put = self.puts.swap_remove(at);
        if let Some(entry) = self.entries.get_mut(&put.key) {
            let replaced = entry.file.replace(StoredFile { written: id, expires });
            self.files += usize::from(replaced.is_none());
        }
    }

    /// Ends a put that wrote no file, unless it has ended.
    pub(super) fn end(&mut self, id: Written, used: Use) {
        if let Some(at) = self.puts.iter().position(|put| put.id == id) {
            let put = self.puts.swap_remove(at);
            self.leave_out(put.key, Some(used));
        }
    }

    /// Takes the room of the puts of a block, for a write with this use.
    pub(super) fn displace(&mut self, key: BlockKey, used: Use) {
        self.puts.retain(|put| put.key != key || !put.has_room);
        self.leave_out(key, Some(used));
    }

    /// The rank of a block that is used now.
    fn rank(&mut self, used: Use) -> Rank {
        self.clock += 1;
        Rank { batch: used.batch.saturating_add(1), number: Reverse(used.number), clock: self.clock }
    }

    /// Records a use of the blocks before one in its sequence, up to those that were used in the
    /// same batch.
    fn touch_before(&mut self, used: Use) {
        self.touch_from(used.parent, used);
        // No thread may have taken the blocks in between yet: their batch is the same.
        if let Some(before) = used.before {
            self.touch_from(Some(before.key), Use { number: before.number.saturating_add(1), ..used });
        }
    }

    /// Records a use of a block and of those before it; `used` is the use of the block after it.
    fn touch_from(&mut self, mut next: Option<BlockKey>, mut used: Use) {
        while let Some(key) = next {
            used.number = used.number.saturating_sub(1);
            let rank = self.rank(used);
            let Some(entry) = self.entries.get(&key).filter(|entry| entry.rank.batch < rank.batch) else { break };
            next = entry.parent;
            self.use_entry(key, rank, next);
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

    /// Records that a block without a file and without puts is missing, and whose use was the
    /// reason, if there was one. Returns whether it is missing.
    fn leave_out(&mut self, key: BlockKey, used: Option<Use>) -> bool {
        let is_missing = self.forget(key);
        if is_missing {
            if self.gone.len() >= MAX_GONE {
                self.gone.clear();
            }
            self.gone.insert(key, used.map_or(0, |used| used.batch.saturating_add(1)));
        }
        is_missing
    }

    /// The entry of a block, or a new one, with at least this rank.
    fn use_entry(&mut self, key: BlockKey, rank: Rank, parent: Option<BlockKey>) -> &mut Entry {
        let entry = self.entries.entry(key).or_insert(Entry { rank, parent, file: None });
        entry.parent = parent;
        self.order.remove(&entry.rank);
        entry.rank = rank.max(entry.rank);
        self.order.insert(entry.rank, key);
        entry
    }

    /// Removes the file of a block.
    pub(super) fn remove(&mut self, key: BlockKey) {
        let file = self.entries.get_mut(&key).and_then(|entry| entry.file.take());
        self.files -= usize::from(file.is_some());
        self.forget(key);
    }

    /// Removes the file of a block for a write with this use. Returns whether the block is missing
    /// now: it is not if a put of it is in progress.
    pub(super) fn evict(&mut self, key: BlockKey, used: Option<Use>) -> bool {
        self.remove(key);
        self.leave_out(key, used)
    }

    /// Removes the entry of a block that has neither a file nor puts. Returns whether there is none
    /// now.
    fn forget(&mut self, key: BlockKey) -> bool {
        if self.contains(key) || self.puts.iter().any(|put| put.key == key) {
            return false;
        }
        if let Some(entry) = self.entries.remove(&key) {
            self.order.remove(&entry.rank);
        }
        true
    }

    /// When the file of a block was written.
    pub(super) fn written(&self, key: BlockKey) -> Option<Written> {
        self.file(key).map(|file| file.written)
    }

    fn file(&self, key: BlockKey) -> Option<StoredFile> {
        self.entries.get(&key).and_then(|entry| entry.file)
    }

    /// Whether a block has a file.
    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.file(key).is_some()
    }

    /// When a file expires, in milliseconds since 1970; 0: never, or not known. `None` if the block
    /// has no file.
    pub(super) fn expires(&self, key: BlockKey) -> Option<u64> {
        self.file(key).map(|file| file.expires)
    }

    pub(super) fn files(&self) -> usize {
        self.files
    }

    /// The number of files, including those that are being written.
    pub(super) fn taken(&self) -> usize {
        self.files + self.puts.iter().filter(|put| put.has_room).count()
    }

    /// The block that is evicted first, if its rank is below that of `key`: it has a file or a put
    /// with room.
    pub(super) fn first_below(&self, key: BlockKey) -> Option<BlockKey> {
        let rank = self.entries.get(&key)?.rank;
        let has_room = |key| self.contains(key) || self.puts.iter().any(|put| put.key == key && put.has_room);
        // At most one put for each thread has no room.
        self.order.range(..rank).map(|(_, &first)| first).find(|&first| has_room(first))
    }

    /// The file that is evicted first.
    pub(super) fn oldest(&self) -> Option<BlockKey> {
        self.order.values().copied().find(|&key| self.contains(key))
    }
}

#[cfg(test)]
mod tests;
