//! The entries that a process stored most recently in a namespace. They let a namespace with a
//! small quota find its own blocks in a large region (`blocks`). They are hints: the caller checks
//! each entry.

use std::collections::VecDeque;

use crate::sync::Mutex;

/// How many entries are remembered.
const MOST: usize = 4096;
/// The least recently used of this many entries is evicted.
const SAMPLE: usize = 8;

/// The numbers of entries, in the order in which they were stored.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<VecDeque<u32>>);

impl Recent {
    /// Remembers an entry, unless another thread holds the lock.
    pub(crate) fn push(&self, entry: usize) {
        if let (Ok(mut entries), Ok(entry)) = (self.0.try_lock(), u32::try_from(entry)) {
            if entries.len() == MOST {
                entries.pop_front();
            }
            entries.push_back(entry);
        }
    }

    /// Removes and returns the oldest of the first few entries. Entries without an age are
    /// forgotten.
    pub(crate) fn take_oldest(&self, age: impl Fn(usize) -> Option<i64>) -> Option<usize> {
        let mut entries = self.0.try_lock().ok()?;
        let mut known = Vec::with_capacity(SAMPLE);
        while known.len() < SAMPLE {
            let Some(entry) = entries.pop_front() else { break };
            known.extend(age(entry as usize).map(|age| (age, entry)));
        }
        let oldest = known.iter().max_by_key(|(age, _)| *age).map(|(_, entry)| *entry)?;
        for (_, entry) in known.into_iter().rev().filter(|(_, entry)| *entry != oldest) {
            entries.push_front(entry);
        }
        Some(oldest as usize)
    }
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_few_is_taken_and_the_others_stay_in_order() {
        let recent = Recent::default();
        (0..20).for_each(|entry| recent.push(entry));
        // 3 is the oldest of the first eight; 0 has no age.
        let age = |entry| (entry != 0).then_some(if entry == 3 { 9 } else { 1 });
        assert_eq!(recent.take_oldest(age), Some(3));
        let order: Vec<_> = std::iter::from_fn(|| recent.take_oldest(|entry| Some(100 - entry as i64))).collect();
        assert_eq!(order, [vec![1, 2], (4..20).collect()].concat());
    }

    #[test]
    fn no_more_than_a_few_thousand_are_remembered() {
        let recent = Recent::default();
        (0..MOST + 10).for_each(|entry| recent.push(entry));
        assert_eq!(recent.take_oldest(|entry| Some(MOST as i64 * 2 - entry as i64)), Some(10));
    }
}
