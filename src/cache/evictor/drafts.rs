//! Drafts that subscribers have not copied yet, and the arrays that these name.
//!
//! Arrays that leave the tree are kept as long as a draft that names them is with a subscriber, and retired then. A subscriber
//! that does not read keeps what the drafts in its channel name, and these are bounded.

use std::collections::{BTreeMap, VecDeque};

use crate::cache::draft::Draft;
use crate::reclaim::{Guard, Link, Ref};
use crate::sync::{Arc, is_only};
use crate::tree::Arrays;

/// Drafts that one turn of the evictor looks at: more than it hands over, so that those of a subscriber that has gone go in time.
const LOOKS: usize = 4;

/// Drafts that were handed over, and what they name.
#[derive(Debug, Default)]
pub(in crate::cache) struct Drafts {
    waiting: VecDeque<Arc<Draft>>,
    /// The arrays that a draft names, with whether they have left the tree. Each is named by one draft, that of its run's store.
    /// An ordered map, because a large hash table is copied at once when it grows.
    named: BTreeMap<Link<Arrays>, bool>,
}

impl Drafts {
    /// Notes that the next draft names `arrays`.
    pub(super) fn name(&mut self, arrays: Link<Arrays>) {
        self.named.insert(arrays, false);
    }

    /// Ends the part of arrays that have left the tree: retires them, now or when the draft that names them is copied.
    #[inline]
    pub(super) fn let_go(&mut self, arrays: Ref<'_, Arrays>, guard: &Guard<'_>) {
        if self.named.is_empty() || !self.keep(arrays) {
            guard.retire(arrays);
        }
    }

    /// Keeps arrays if a draft names them.
    fn keep(&mut self, arrays: Ref<'_, Arrays>) -> bool {
        self.named.get_mut(&arrays.link()).map(|has_left| *has_left = true).is_some()
    }

    /// Takes a draft that was sent to subscribers, or to none.
    pub(super) fn add(&mut self, draft: Arc<Draft>) {
        self.waiting.push_back(draft);
    }

    /// Lets drafts go that no subscriber has any more: looks at a few of them, in turn.
    pub(super) fn release(&mut self, guard: &Guard<'_>) {
        for _ in 0..LOOKS.min(self.waiting.len()) {
            let Some(mut draft) = self.waiting.pop_front() else { return };
            if is_only(&mut draft) {
                self.end(&draft, guard);
            } else {
                self.waiting.push_back(draft);
            }
        }
    }

    fn end(&mut self, draft: &Draft, guard: &Guard<'_>) {
        for arrays in draft.arrays() {
            if self.named.remove(&arrays) == Some(true) {
                // Out of the tree, and named by this draft alone: the table's own.
                guard.retire(arrays.get(draft));
            }
        }
    }

    /// Copies what subscribers have not copied, because the cache ends.
    pub(in crate::cache) fn copy_all(&mut self, guard: &Guard<'_>) {
        for draft in std::mem::take(&mut self.waiting) {
            draft.batch();
            self.end(&draft, guard);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests {
    use super::*;
    use crate::reclaim::Domain;

    #[test]
    fn a_turn_ends_a_few_drafts_however_many_were_let_go() {
        let domain = Domain::new();
        let local = domain.register();
        let mut drafts = Drafts::default();
        let read: Vec<_> = (0..100).map(|_| Arc::new(Draft::default())).collect();
        read.iter().for_each(|draft| drafts.add(Arc::clone(draft)));
        drafts.release(&local.pin());
        assert_eq!(drafts.waiting.len(), 100, "subscribers have them");
        drop(read);
        for turn in 1..=100 / LOOKS {
            drafts.release(&local.pin());
            assert_eq!(drafts.waiting.len(), 100 - turn * LOOKS);
        }
    }
}
