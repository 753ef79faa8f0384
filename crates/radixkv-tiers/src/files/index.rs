//! Which files a folder has, how long ago each was used, and how many bytes they take.

use std::collections::{BTreeMap, HashMap};

use crate::key::BlockKey;

/// The files of a folder, as one thread at a time sees them.
///
/// All objects of a folder take the same number of bytes, so capacity is a number of files; files of another length are
/// damaged, and count as if they were whole.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<BlockKey, Entry>,
    /// By use: the first is the least recently used.
    order: BTreeMap<u64, BlockKey>,
    /// Counts uses and writes.
    clock: u64,
    /// Files that are being written beside those that are there.
    reserved: usize,
}

/// A file.
#[derive(Debug)]
struct Entry {
    used: u64,
    written: Written,
}

/// When a file was written: no two writes have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written(u64);

impl Index {
    /// Makes a file the most recently used, and says when it was written; `None` if the index does not have it.
    pub(super) fn touch(&mut self, key: BlockKey) -> Option<Written> {
        let entry = self.entries.get_mut(&key)?;
        self.order.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.order.insert(self.clock, key);
        Some(entry.written)
    }

    /// Takes a file in that was written, or written again, as the most recently used.
    pub(super) fn insert(&mut self, key: BlockKey) {
        self.remove(key);
        self.clock += 1;
        self.entries.insert(key, Entry { used: self.clock, written: Written(self.clock) });
        self.order.insert(self.clock, key);
    }

    /// When a file was written.
    pub(super) fn written(&self, key: BlockKey) -> Option<Written> {
        self.entries.get(&key).map(|entry| entry.written)
    }

    pub(super) fn remove(&mut self, key: BlockKey) {
        if let Some(entry) = self.entries.remove(&key) {
            self.order.remove(&entry.used);
        }
    }

    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.entries.contains_key(&key)
    }

    pub(super) fn files(&self) -> usize {
        self.entries.len()
    }

    /// Files that are there or being written.
    pub(super) fn taken(&self) -> usize {
        self.entries.len() + self.reserved
    }

    pub(super) fn reserve(&mut self) {
        self.reserved += 1;
    }

    pub(super) fn end_reservation(&mut self) {
        self.reserved -= 1;
    }

    /// The least recently used file.
    pub(super) fn oldest(&self) -> Option<BlockKey> {
        self.order.first_key_value().map(|(_, &key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> BlockKey {
        BlockKey::from_bytes([number; 32])
    }

    #[test]
    fn the_least_recently_used_is_the_oldest() {
        let mut index = Index::default();
        (0..4).for_each(|number| index.insert(key(number)));
        let written = index.written(key(1));
        assert!(index.touch(key(0)).is_some() && index.touch(key(9)).is_none());
        assert!(index.touch(key(1)) == written);
        index.insert(key(1));
        assert!(index.written(key(1)).is_some_and(|again| Some(again) != written));
        index.remove(key(9));
        assert_eq!((index.files(), index.oldest()), (4, Some(key(2))));
        let mut order = Vec::new();
        while let Some(key) = index.oldest() {
            order.push(key);
            index.remove(key);
        }
        assert_eq!(order, [key(2), key(3), key(0), key(1)]);
        assert_eq!((index.files(), index.taken()), (0, 0));
    }
}
