//! Copies that the next step is to make, and what keeps their sources in place until then, whatever becomes of the
//! sequences.
//!
//! # Invariants
//!
//! - **K1** The destination of a pending copy is a block of a running sequence's own.
//! - **K2** The source of one is a running sequence's or kept; what no pending copy reads is not kept.

use std::collections::{HashMap, HashSet};

use super::batch::{Batch, BlockCopy};
use crate::block::BlockId;
use crate::cache::{Lease, PartialHit, Reservation};

/// To be done with the next step.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pending: Vec<BlockCopy>,
    kept: Vec<Kept>,
}

/// What keeps some sources in place.
#[derive(Debug)]
struct Kept {
    sources: Vec<BlockId>,
    _holder: Holder,
}

/// Held until the copies are done.
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

    /// For each block that is still to be copied into where its content is now.
    pub(super) fn origins(&self) -> HashMap<BlockId, BlockId> {
        self.pending.iter().map(|copy| (copy.destination, copy.source)).collect()
    }

    /// Has `holder` live for as long as a pending copy reads one of `sources`.
    pub(super) fn keep(&mut self, sources: Vec<BlockId>, holder: Holder) {
        self.kept.push(Kept { sources, _holder: holder });
    }

    /// A sequence goes, and with it the copies into its own blocks; those blocks when no copy reads them.
    pub(super) fn part_from(&mut self, own: Reservation) {
        if self.pending.is_empty() {
            return;
        }
        let gone: HashSet<BlockId> = own.blocks().iter().copied().collect();
        self.pending.retain(|copy| !gone.contains(&copy.destination));
        self.keep(own.blocks().to_vec(), Holder::Own(own));
        let read: HashSet<BlockId> = self.pending.iter().map(|copy| copy.source).collect();
        self.kept.retain(|kept| kept.sources.iter().any(|source| read.contains(source)));
    }

    /// Hands the copies to a step.
    pub(super) fn hand_to(&mut self, batch: &mut Batch) {
        self.pending.drain(..).for_each(|copy| batch.push_copy(copy));
    }

    /// Takes the copies of a step back that was not computed.
    pub(super) fn take_back(&mut self, batch: &Batch) {
        self.pending.extend_from_slice(batch.copies());
    }

    /// The step has made them; whether something was kept, and now is not.
    pub(super) fn done(&mut self) -> bool {
        !std::mem::take(&mut self.kept).is_empty()
    }
}
