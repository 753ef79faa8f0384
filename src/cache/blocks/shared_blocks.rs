//! Reference counts of the blocks that several reservations have; for `fork` and `Reservation`.
//!
//! A block that was never forked has no count. The first fork allocates one for each block, which
//! every reservation that has the block shares; the last of them gives the block back. Blocks in
//! the tree are protected by leases and have no such count: a block enters the tree only from a
//! reservation that shares it with no other.
//!
//! # Invariants
//!
//! - **F1** A block is in several reservations only if each of them (or a
//!   [`PendingCopy`](crate::PendingCopy)) has a handle on its `SharedBlock`; the block returns to
//!   the pool when the last handle is dropped.
//! - **F2** If there is only one handle on a `SharedBlock`, no other reservation has the block:
//!   handles are made only from handles, under `&mut`.

use crate::block::BlockId;
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRef;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::sync::Arc;

/// A block that several reservations may hold.
#[derive(Debug)]
pub(in crate::cache) struct SharedBlock {
    /// The block to give back on drop; `None` if the only reservation that has it does that.
    block: Option<BlockId>,
    /// The charge for this one block: it counts once, however many reservations have it.
    charge: QuotaCharge,
    cache: StrongRef<Inner>,
}

impl SharedBlock {
    pub(in crate::cache) fn new(block: BlockId, charge: QuotaCharge, cache: StrongRef<Inner>) -> Self {
        Self { block: Some(block), charge, cache }
    }

    /// For a block of only one reservation, with another payer than the reservation's other blocks.
    pub(in crate::cache) fn alone(charge: QuotaCharge, cache: StrongRef<Inner>) -> Self {
        Self { block: None, charge, cache }
    }
}

impl Drop for SharedBlock {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            drop(std::mem::take(&mut self.charge));
            self.cache.give_back(&[block]);
        }
    }
}

/// The blocks of a reservation that other reservations may also have: an entry for each block, or
/// no entries before the first fork.
#[derive(Debug, Default)]
pub(in crate::cache) struct SharedBlocks(pub(in crate::cache) Vec<Option<Arc<SharedBlock>>>);

impl SharedBlocks {
    /// Splits off the entries of the blocks from `n` on.
    pub(in crate::cache) fn split_off(&mut self, n: usize) -> Self {
        Self(self.0.split_off(n.min(self.0.len())))
    }

    /// Appends the entries of blocks that follow the first `n`.
    pub(in crate::cache) fn append(&mut self, n: usize, mut behind: Self) {
        if !behind.0.is_empty() {
            self.0.resize(n, None);
            self.0.append(&mut behind.0);
        }
    }

    /// Number of blocks that are counted and charged one by one.
    pub(in crate::cache) fn counted(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Removes from `blocks` those that other reservations also have, and drops all handles.
    pub(in crate::cache) fn keep_alone(&mut self, blocks: &mut Vec<BlockId>, charge: &mut QuotaCharge) {
        if self.0.is_empty() {
            return;
        }
        let mut shared = std::mem::take(&mut self.0).into_iter();
        blocks.retain(|_| is_alone(&mut shared.next().flatten(), charge));
    }
}

/// Gives a block a reference count, before several reservations have it.
pub(in crate::cache) fn share(
    share: &mut Option<Arc<SharedBlock>>,
    block: BlockId,
    charge: &mut QuotaCharge,
    cache: &StrongRef<Inner>,
) {
    match share.as_mut().map(Arc::get_mut) {
        None => *share = Some(Arc::new(SharedBlock::new(block, charge.split(1), cache.clone()))),
        Some(Some(alone)) => alone.block = Some(block),
        Some(None) => {}
    }
}

/// Whether no other reservation has the block. If so, its count is removed and its charge is moved
/// to `charge`, unless another namespace pays for it.
pub(in crate::cache) fn is_alone(share: &mut Option<Arc<SharedBlock>>, charge: &mut QuotaCharge) -> bool {
    let Some(counted) = share else { return true };
    // `get_mut` orders this after everything that the other reservations did with the block (F2).
    let Some(shared) = Arc::get_mut(counted) else {
        return false;
    };
    shared.block = None;
    if charge.goes_with(&shared.charge) {
        charge.append(std::mem::take(&mut shared.charge));
        *share = None;
    }
    true
}
