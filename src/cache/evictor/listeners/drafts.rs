//! Drafts: event batches that subscribers have not copied yet (`cache::listening::draft`), and the
//! arrays that these drafts name.
//!
//! Arrays that leave the tree are kept as long as a subscriber has a draft that names them, and
//! then retired. A subscriber that does not read keeps the arrays of all drafts in its channel,
//! which is bounded.

use std::collections::VecDeque;

use crate::cache::listening::draft::Draft;
use crate::reclaim::{Guard, Ref};
use crate::sync::{Arc, is_only};
use crate::tree::Arrays;

/// How many drafts one turn of the evictor checks: more than it hands over, so that the drafts of a
/// subscriber that has gone do not pile up.
const LOOKS: usize = 4;

/// Drafts that were handed to subscribers and not released yet.
#[derive(Debug, Default)]
pub(in crate::cache) struct Drafts {
    waiting: VecDeque<Arc<Draft>>,
}

/// Retires arrays that have left the tree: now, or when the last draft that names them is released.
/// Such drafts report that the run was stored, or that a piece was appended to it.
#[inline]
pub(in crate::cache) fn retire_unless_drafted(arrays: Ref<'_, Arrays>, guard: &Guard<'_>) {
    if !arrays.leave() {
        guard.retire(arrays);
    }
}

impl Drafts {
    /// Adds a draft that was sent to all subscribers, if there are any.
    pub(in crate::cache) fn add(&mut self, draft: Arc<Draft>) {
        self.waiting.push_back(draft);
    }

    /// Checks a few drafts, in rotation, and releases those that no subscriber has any more.
    pub(in crate::cache) fn release(&mut self, guard: &Guard<'_>) {
        for _ in 0..LOOKS.min(self.waiting.len()) {
            let Some(mut draft) = self.waiting.pop_front() else { return };
            if is_only(&mut draft) {
                end(&draft, guard);
            } else {
                self.waiting.push_back(draft);
            }
        }
    }

    /// Copies the drafts that subscribers have not copied, because the cache is dropped.
    pub(in crate::cache) fn copy_all(&mut self, guard: &Guard<'_>) {
        for draft in std::mem::take(&mut self.waiting) {
            draft.batch();
            end(&draft, guard);
        }
    }

    pub(in crate::cache) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Ends a draft that no subscriber has, or that is copied.
fn end(draft: &Draft, guard: &Guard<'_>) {
    for arrays in draft.arrays() {
        // The draft names them, so they are still there: in the tree, or kept after they left it.
        let arrays = arrays.get(draft);
        if arrays.unname() {
            guard.retire(arrays);
        }
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
