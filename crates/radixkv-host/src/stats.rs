//! Statistics of a tier, and the check of its invariants.

use std::{fmt, time::Duration};

use radixkv::NamespaceName;

use crate::{
    remote::{Remote, RemoteStats},
    slots::SlotCounts,
    tier::HostTier,
};

/// Counts since the tier was built, protected by its lock.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) lookups: u64,
    pub(crate) hit_blocks: u64,
    pub(crate) arrived_blocks: u64,
    pub(crate) duplicate_blocks: u64,
    pub(crate) evicted_blocks: u64,
    pub(crate) removed_blocks: u64,
    pub(crate) cleared_blocks: u64,
    pub(crate) kept_out_blocks: u64,
    pub(crate) expired_blocks: u64,
    pub(crate) not_admitted_blocks: u64,
}

impl Counters {
    pub(crate) fn looked_up(&mut self, hit_blocks: usize) {
        self.lookups += 1;
        self.hit_blocks += hit_blocks as u64;
    }
}

/// The statistics of a host tier at one moment.
///
/// `cached + pinned + reserved + free` is the number of all its blocks, including staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStats {
    /// Blocks that the tier may hold.
    pub capacity_blocks: usize,
    /// Blocks that are cached and not pinned.
    pub cached_blocks: usize,
    /// Blocks that are being read: cached or removed.
    pub pinned_blocks: usize,
    /// Blocks that are being filled.
    pub reserved_blocks: usize,
    /// Blocks that hold nothing, staging blocks included.
    pub free_blocks: usize,
    /// Bytes of the index and of the order of use: tokens, blocks and runs.
    pub index_bytes: usize,
    /// The number of lookups.
    pub lookups: u64,
    /// Blocks that lookups found.
    pub hit_blocks: u64,
    /// Blocks that were stored.
    pub arrived_blocks: u64,
    /// Offered blocks that the tier already had.
    pub duplicate_blocks: u64,
    /// Blocks that were evicted to make room for others.
    pub evicted_blocks: u64,
    /// Blocks that moved to a cache.
    pub removed_blocks: u64,
    /// Blocks of namespaces that were cleared.
    pub cleared_blocks: u64,
    /// Offered blocks that were not stored because their namespace was cleared meanwhile or is kept
    /// out.
    pub kept_out_blocks: u64,
    /// Blocks that were removed because they had expired.
    pub expired_blocks: u64,
    /// Offered blocks that were not stored because they were offered for the first time
    /// ([`Admission`](crate::Admission)).
    pub not_admitted_blocks: u64,
}

/// The content of a tier for one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftovers {
    /// The namespace.
    pub namespace: NamespaceName,
    /// The number of its blocks.
    pub blocks: usize,
    /// The number of tokens in these blocks.
    pub tokens: usize,
    /// The number of bytes in these blocks.
    pub bytes: usize,
}

/// A violated invariant of a tier: a bug of this package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostViolation {
    /// Blocks were lost or counted twice.
    NotConserved {
        /// Blocks in all states.
        counted: usize,
        /// Blocks that the tier has.
        blocks: usize,
    },
    /// The number of blocks in the index differs from the number of cached blocks.
    Index {
        /// Blocks that the index holds.
        indexed: usize,
        /// Blocks that are cached.
        cached: usize,
    },
    /// A cached block is not at its position in the index.
    Misplaced {
        /// The block.
        block: u32,
    },
}

impl HostTier {
    /// The current statistics of the tier.
    pub fn stats(&self) -> HostStats {
        let state = self.inner.lock();
        let SlotCounts { listed, reserved, pinned, free } = state.slots.counts();
        let counters = &state.counters;
        HostStats {
            capacity_blocks: self.capacity_blocks(),
            cached_blocks: listed,
            pinned_blocks: pinned,
            reserved_blocks: reserved,
            free_blocks: free,
            index_bytes: state.index.bytes() + state.slots.bytes(),
            lookups: counters.lookups,
            hit_blocks: counters.hit_blocks,
            arrived_blocks: counters.arrived_blocks,
            duplicate_blocks: counters.duplicate_blocks,
            evicted_blocks: counters.evicted_blocks,
            removed_blocks: counters.removed_blocks,
            cleared_blocks: counters.cleared_blocks,
            kept_out_blocks: counters.kept_out_blocks,
            expired_blocks: counters.expired_blocks,
            not_admitted_blocks: counters.not_admitted_blocks,
        }
    }

    /// The statistics of the remote tiers; `None` if there are none.
    pub fn remote_stats(&self) -> Option<RemoteStats> {
        self.inner.remote().map(Remote::stats)
    }

    /// Waits up to `wait` until no block is in flight to or from the remote tiers; returns whether
    /// none is. Dropping a tier drops the blocks in flight.
    pub fn settle_remote(&self, wait: Duration) -> bool {
        self.inner.remote().is_none_or(|remote| remote.settle(wait))
    }

    /// The content of the tier by namespace, in the order of the names.
    pub fn leftovers(&self) -> Vec<Leftovers> {
        let state = self.inner.lock();
        let held = state.index.held().map(|(name, blocks)| Leftovers {
            namespace: name.clone(),
            blocks,
            tokens: blocks * self.block_size(),
            bytes: blocks * self.block_bytes(),
        });
        let mut held: Vec<Leftovers> = held.collect();
        held.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        held
    }

    /// Checks every invariant of the pool and the index.
    ///
    /// # Errors
    ///
    /// The first violated invariant.
    pub fn validate(&self) -> Result<(), HostViolation> {
        let state = self.inner.lock();
        let SlotCounts { listed, reserved, pinned, free } = state.slots.counts();
        let (counted, blocks) = (listed + reserved + pinned + free, self.inner.blocks());
        let cached = state.slots.cached();
        if counted != blocks || free > blocks {
            return Err(HostViolation::NotConserved { counted, blocks });
        }
        let indexed = state.index.held().map(|(_, held)| held).sum();
        if indexed != cached.len() {
            return Err(HostViolation::Index { indexed, cached: cached.len() });
        }
        match cached.into_iter().find(|&(block, place)| state.index.get(place) != Some(block)) {
            Some((block, _)) => Err(HostViolation::Misplaced { block }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for HostViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConserved { counted, blocks } => write!(f, "{counted} blocks were counted, the tier has {blocks}"),
            Self::Index { indexed, cached } => write!(f, "the index holds {indexed} blocks, {cached} are cached"),
            Self::Misplaced { block } => write!(f, "block {block} is not at its place in the index"),
        }
    }
}

impl std::error::Error for HostViolation {}
