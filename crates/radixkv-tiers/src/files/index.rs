//! Which files a folder has, how long ago each was used, and how many bytes they take.

use std::collections::{BTreeMap, HashMap};

use crate::key::BlockKey;

/// The files of a folder, as one thread at a time sees them.
///
/// All objects of a folder take the same number of bytes, so capacity is a number of files; files of another length are
/// damaged, and count as if they were whole.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// When each file was used, on a clock that counts uses.
    used: HashMap<BlockKey, u64>,
    /// The other way round: the first is the least recently used.
    order: BTreeMap<u64, BlockKey>,
    clock: u64,
    /// Files that are being written beside those that are there.
    reserved: usize,
}

impl Index {
    /// Makes a file the most recently used; `false` if the index does not have it.
    pub(super) fn touch(&mut self, key: BlockKey) -> bool {
        let Some(used) = self.used.get_mut(&key) else { return false };
        self.order.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.order.insert(self.clock, key);
        true
    }

    /// Takes a file in, as the most recently used.
    pub(super) fn insert(&mut self, key: BlockKey) {
        if !self.touch(key) {
            self.clock += 1;
            self.used.insert(key, self.clock);
            self.order.insert(self.clock, key);
        }
    }

    pub(super) fn remove(&mut self, key: BlockKey) {
        if let Some(used) = self.used.remove(&key) {
            self.order.remove(&used);
        }
    }

    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.used.contains_key(&key)
    }

    pub(super) fn files(&self) -> usize {
        self.used.len()
    }

    /// Files that are there or being written.
    pub(super) fn taken(&self) -> usize {
        self.used.len() + self.reserved
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
        assert!(index.touch(key(0)) && !index.touch(key(9)));
        index.insert(key(1));
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
