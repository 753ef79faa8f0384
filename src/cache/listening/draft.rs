//! Drafts: batches of events whose tokens are still in the tree's arrays.
//!
//! For a store the evictor records only where the tokens and ids are; the subscriber copies them
//! later, on its own thread. So an event costs a scheduler thread no more than a pointer. Arrays
//! that a draft names are not freed while a subscriber has the draft
//! (`evictor::listeners::drafts`).

use std::ops::Range;

use super::events::{EventBatch, EvictionReason, Gathered};
use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::name::NamespaceName;
use crate::reclaim::Link;
use crate::sync::OnceLock;
use crate::tree::Arrays;

/// A batch of events that is not completely copied yet.
#[derive(Debug, Default)]
pub(in crate::cache) struct Draft {
    /// For each store, only the tokens before its run.
    gathered: Gathered,
    rest: Vec<Rest>,
    batch: OnceLock<EventBatch>,
}

/// The part of a store that is not copied yet.
#[derive(Debug, Clone)]
pub(in crate::cache) struct Rest {
    pub(in crate::cache) arrays: Link<Arrays>,
    /// The ranges of these arrays.
    pub(in crate::cache) tokens: Range<usize>,
    pub(in crate::cache) blocks: Range<usize>,
}

impl Draft {
    /// An empty draft, with the next number.
    pub(in crate::cache) fn next(&self) -> Self {
        Self { gathered: Gathered::like(&self.gathered), rest: Vec::with_capacity(self.rest.len()), ..Self::default() }
    }

    pub(in crate::cache) fn number(&self) -> u64 {
        self.gathered.number()
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.gathered.len()
    }

    /// The arrays that it names.
    pub(in crate::cache) fn arrays(&self) -> impl Iterator<Item = Link<Arrays>> {
        self.rest.iter().map(|rest| rest.arrays)
    }

    /// Adds the store of the blocks of `rest`; the first of them is block number `first` of the
    /// sequence. `fill` appends the tokens before those of `rest`, from the depth at which that
    /// block begins.
    pub(in crate::cache) fn store(
        &mut self,
        namespace: NamespaceName,
        layout: BlockLayout,
        first: usize,
        parent: Option<BlockId>,
        rest: Rest,
        fill: impl FnOnce(usize, &mut Vec<Token>),
    ) {
        self.gathered.store(namespace, layout, first, parent, &[], |range, tokens| fill(range.start, tokens));
        self.rest.push(rest);
    }

    /// Adds the removal of `blocks`; the first of them is block number `first` of the sequence.
    pub(in crate::cache) fn remove(
        &mut self,
        namespace: NamespaceName,
        layout: BlockLayout,
        first: usize,
        blocks: &[BlockId],
        reason: EvictionReason,
    ) {
        self.gathered.remove(namespace, layout, first, blocks, reason);
    }

    pub(in crate::cache) fn clear_namespace(&mut self, namespace: NamespaceName) {
        self.gathered.clear_namespace(namespace);
    }

    /// The batch, copied now unless it was copied before. The caller keeps the cache alive
    /// meanwhile.
    pub(in crate::cache) fn batch(&self) -> EventBatch {
        if let Some(batch) = self.copied() {
            return batch;
        }
        let mut rest = self.rest.iter();
        let whole = self.gathered.completed(|tokens, blocks| {
            if let Some(Rest { arrays, tokens: named, blocks: held }) = rest.next() {
                let arrays = arrays.get(self);
                tokens.extend_from_slice(&arrays.tokens()[named.clone()]);
                blocks.extend_from_slice(&arrays.blocks()[held.clone()]);
            }
        });
        let batch = whole.batch();
        // Another subscriber may have been first, with an equal copy.
        drop(self.batch.set(batch.clone()));
        batch
    }

    /// The batch, if it was copied before.
    pub(in crate::cache) fn copied(&self) -> Option<EventBatch> {
        self.batch.get().cloned()
    }
}
