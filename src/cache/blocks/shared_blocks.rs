//! Blocks that several reservations have, counted.
//!
//! A block that was never forked costs nothing. The first fork puts a count beside each block, shared by every
//! reservation that has the block; the last of them gives it back. Blocks in the tree are leased and not counted: a block
//! enters the tree only from the one reservation that has it.
//!
//! # Invariants
//!
//! - **F1** A block is in several reservations only if each of them (or a [`PendingCopy`](crate::PendingCopy)) has a handle on its
//!   `SharedBlock`; the block goes back to the pool when that is dropped.
//! - **F2** The only handle on a `SharedBlock` means that no other reservation has the block: handles are made from
//!   handles, under `&mut`.

use crate::block::BlockId;
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRef;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::sync::Arc;

/// A block that several reservations may hold.
#[derive(Debug)]
pub(in crate::cache) struct SharedBlock {
    /// `None` while one reservation has it alone.
    block: Option<BlockId>,
    /// Of this one block: it counts once, however many have it.
    charge: QuotaCharge,
    cache: StrongRef<Inner>,
}

impl SharedBlock {
    pub(in crate::cache) fn new(block: BlockId, charge: QuotaCharge, cache: StrongRef<Inner>) -> Self {
        Self { block: Some(block), charge, cache }
    }

    /// Of a block that one reservation has alone, whose other blocks another namespace pays for.
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

/// Which blocks of a reservation other reservations may have too: an entry for each block, or none before the first fork.
#[derive(Debug, Default)]
pub(in crate::cache) struct SharedBlocks(pub(in crate::cache) Vec<Option<Arc<SharedBlock>>>);

impl SharedBlocks {
    /// Splits off the entries of the blocks from `n` on.
    pub(in crate::cache) fn split_off(&mut self, n: usize) -> Self {
        Self(self.0.split_off(n.min(self.0.len())))
    }

    /// Takes over the entries of blocks that are appended behind the first `n`.
    pub(in crate::cache) fn append(&mut self, n: usize, mut behind: Self) {
        if !behind.0.is_empty() {
            self.0.resize(n, None);
            self.0.append(&mut behind.0);
        }
    }

    /// Blocks that are counted, and charged, one by one.
    pub(in crate::cache) fn counted(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Leaves in `blocks` only those that no other reservation has, and drops its handles on the others.
    pub(in crate::cache) fn keep_alone(&mut self, blocks: &mut Vec<BlockId>, charge: &mut QuotaCharge) {
        if self.0.is_empty() {
            return;
        }
        let mut shared = std::mem::take(&mut self.0).into_iter();
        blocks.retain(|_| is_alone(&mut shared.next().flatten(), charge));
    }
}

/// Counts a block that several reservations are going to have.
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

/// Whether no other reservation has the block; if so, its count is removed, and what it is charged goes to `charge`: unless
/// that is another namespace's.
pub(in crate::cache) fn is_alone(share: &mut Option<Arc<SharedBlock>>, charge: &mut QuotaCharge) -> bool {
    let Some(counted) = share else { return true };
    // Ordered after everything that the other reservations did with the block (F2).
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
