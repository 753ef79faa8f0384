//! Pending block copies of a scheduler, which its next step makes. Their source blocks are kept
//! until then, whatever happens to the sequences.
//!
//! # Invariants
//!
//! - **Y1** The destination of a pending copy is in the reservation of a running sequence.
//! - **Y2** The source of a pending copy is a running sequence's block, or is kept
//!   ([`Copies::keep`]). A block that no pending copy reads is not kept.

use std::collections::{HashMap, HashSet};

use radixkv::{BlockId, Lease, PartialHit, Reservation};

use super::batch::{Batch, BlockCopy};

/// The copies of one scheduler.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pending: Vec<BlockCopy>,
    kept: Vec<Kept>,
}

/// Source blocks, and the holder that keeps them.
#[derive(Debug)]
struct Kept {
    sources: Vec<BlockId>,
    _holder: Holder,
}

/// The owner of source blocks; dropped when their copies are made.
#[derive(Debug)]
pub(super) enum Holder {
    Lease(#[expect(dead_code, reason = "dropped, not read")] Lease),
    Partial(#[expect(dead_code, reason = "dropped, not read")] PartialHit),
    Own(#[expect(dead_code, reason = "dropped, not read")] Reservation),
}

impl Copies {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn push(&mut self, copy: BlockCopy) {
        self.pending.push(copy);
    }

    /// Maps the destination of each pending copy to the block that still holds the content.
    pub(super) fn origins(&self) -> HashMap<BlockId, BlockId> {
        self.pending.iter().map(|copy| (copy.destination, copy.source)).collect()
    }

    /// Keeps `holder` while a pending copy reads one of `sources`.
    pub(super) fn keep(&mut self, sources: Vec<BlockId>, holder: Holder) {
        self.kept.push(Kept { sources, _holder: holder });
    }

    /// Removes the pending copies that write to `own`, the reservation of a sequence that has ended
    /// or waits again. `own` is dropped when no pending copy reads from it.
    pub(super) fn drop_sequence(&mut self, own: Reservation) {
        if self.pending.is_empty() {
            return;
        }
        let gone: HashSet<BlockId> = own.blocks().iter().copied().collect();
        self.pending.retain(|copy| !gone.contains(&copy.destination));
        self.keep(own.blocks().to_vec(), Holder::Own(own));
        let read: HashSet<BlockId> = self.pending.iter().map(|copy| copy.source).collect();
        self.kept.retain(|kept| kept.sources.iter().any(|source| read.contains(source)));
    }

    /// Moves the copies into a step's batch.
    pub(super) fn move_to(&mut self, batch: &mut Batch) {
        self.pending.drain(..).for_each(|copy| batch.push_copy(copy));
    }

    /// Takes back the copies of a step that was not computed.
    pub(super) fn take_back(&mut self, batch: &Batch) {
        self.pending.extend_from_slice(batch.copies());
    }

    /// Releases the kept sources after a step has made the copies; returns whether there were any.
    pub(super) fn done(&mut self) -> bool {
        !std::mem::take(&mut self.kept).is_empty()
    }
}
